"""Objects of many workloads that are listed together say what each says alone, also of one that is gone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.dashboard.review_open import cut
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.changes.access.kubeconfig_access import at_this_machine, door_of
from cotenant.changes.model.service import ChangeRequest, WorkloadReview
from cotenant.changes.model.settings import ActionSettings, ledger_location
from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
from cotenant.profiler.synthetic import SyntheticSpec, generate
from cotenant.settings import Settings
from cotenant.simulation.api_server import EmbeddedServer
from cotenant.simulation.population import initial_objects

pytestmark = pytest.mark.server


def said(review: WorkloadReview) -> tuple[object, ...]:
    """What a review says but its id, and quotas, of which those that are reviewed together take one after another."""
    rules = [(rule.name, rule.outcome, rule.why) for rule in review.rules if "quota" not in rule.name]
    return review.workload, review.error, review.moves, review.suggested, review.impossible, rules


def test_a_review_of_many_says_of_each_workload_what_a_review_of_it_alone_says(tmp_path: Path) -> None:
    inventory = generate(SyntheticSpec(6, 60, 1, 7)).inventory
    proposals = {w.ref: found for w in inventory.workloads if (found := cut(w))}
    clock = FixedClock(inventory.time_seconds)
    server = EmbeddedServer(clock=clock)
    for collection, item in initial_objects(inventory, inventory.time_seconds, {}):
        server.state.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)
    gone = next(ref for ref in proposals if ref.kind == "Deployment")
    server.state.remove(("apps", "deployments"), (gone.namespace, gone.name))
    with server:
        kube = replace(Settings().kube, kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        settings, who = replace(Settings(), kube=kube), at_this_machine(kube)()
        actions = ActionSettings(ledger=str(tmp_path / "ledger.db"))
        place = ledger_location(actions, os.environ)
        config = ChangeServiceConfig(door_of(settings), place, actions, clock, lambda ref: proposals[ref], lambda: 0)
        service = ClusterChangeService(config)

        def reviewed(refs: Sequence[WorkloadRef]) -> list[WorkloadReview]:
            return service.review(who, ChangeRequest(tuple(refs)))

        together = reviewed(list(proposals))
        alone = [review for ref in proposals for review in reviewed([ref])]
    assert [said(review) for review in together] == [said(review) for review in alone]
    assert sum(bool(review.moves) for review in together) > 20
    assert "not in the cluster any more" in next(review.error for review in together if review.workload == gone)
