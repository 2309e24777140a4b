"""Objects of many workloads that are listed together say what each says alone; what is stored is read once for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.dashboard.review_open import cut
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.changes.access.configured_service import recommended_of
from cotenant.changes.access.kubeconfig_access import at_this_machine, door_of
from cotenant.changes.model.service import ChangeRequest, WorkloadReview
from cotenant.changes.model.settings import ActionSettings, ledger_location
from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
from cotenant.recommender import stored_recommendations
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.population import initial_objects
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.server


def review_facts(review: WorkloadReview) -> tuple[object, ...]:
    """What a review says but its id, and quotas, of which those that are reviewed together take one after another."""
    rules = [(rule.name, rule.outcome, rule.why) for rule in review.rules if "quota" not in rule.name]
    return review.workload, review.error, review.moves, review.suggested, review.impossible, rules


def test_a_review_of_many_says_of_each_workload_what_a_review_of_it_alone_says(tmp_path: Path) -> None:
    inventory = generate(SyntheticSpec(6, 60, 1, 7)).inventory
    proposals = {w.ref: recommendations for w in inventory.workloads if (recommendations := cut(w))}
    clock = FixedClock(inventory.time_seconds)
    server = EmbeddedServer(clock=clock)
    for collection, item in initial_objects(inventory, inventory.time_seconds, {}):
        server.state.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)
    removed = next(ref for ref in proposals if ref.kind == "Deployment")
    server.state.remove(("apps", "deployments"), (removed.namespace, removed.name))
    with server:
        kube = replace(Settings().kube, kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        settings, who = replace(Settings(), kube=kube), at_this_machine(kube)()
        actions = ActionSettings(ledger=str(tmp_path / "ledger.db"))
        place = ledger_location(actions, os.environ)
        config = ChangeServiceConfig(
            door_of(settings),
            place,
            clock,
            actions,
            lambda refs: [r for ref in refs for r in proposals[ref]],
        )
        service = ClusterChangeService(config)

        def reviewed(refs: Sequence[WorkloadRef]) -> list[WorkloadReview]:
            return service.review(who, ChangeRequest(tuple(refs)))

        together = reviewed(list(proposals))
        alone = [review for ref in proposals for review in reviewed([ref])]
    assert [review_facts(review) for review in together] == [review_facts(review) for review in alone]
    assert sum(bool(review.moves) for review in together) > 20
    assert "not in the cluster any more" in next(review.error for review in together if review.workload == removed)


def test_what_is_recommended_for_many_workloads_is_read_once_for_a_namespace(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    proposals = {w.ref: cuts for w in generate(SyntheticSpec(6, 120, 1, 7)).inventory.workloads if (cuts := cut(w))}
    with store.publishing() as draft:
        stored_recommendations.write(draft, [r for proposal in proposals.values() for r in proposal])
    opened: list[str] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(str(tmp_path)):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    recommendations = recommended_of(store)(list(proposals))
    # For each namespace the name of the run, before and with its document: three files, whatever its workloads.
    spaces = {ref.namespace for ref in proposals}
    assert len(opened) <= 3 * len(spaces) < len(spaces) + len(proposals)
    assert [r.container for r in recommendations] == [r.container for proposal in proposals.values() for r in proposal]
