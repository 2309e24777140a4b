"""Recommendation CRs are written when there is news, and only then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.controllers.published import ExistingObject
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.manager.decisions.recommendations import (
    EVIDENCE_ANNOTATION,
    STATE_LABEL,
    RecommendationObject,
    RecommendationView,
    decide,
)
from cotenant.manager.decisions.results import ContainerAdvice, RunResults, WorkloadAdvice
from cotenant.recommender.model.recommendation import object_name

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NOW = 1_790_000_000
WEB = WorkloadRef("shop", "Deployment", "web")
OWNER = ExistingObject("apps/v1", "Deployment", "web", "u-1")


def advice(ref: WorkloadRef = WEB, cpu: int | None = 200, **changes: Any) -> WorkloadAdvice:
    amounts = {MEMORY: 256 << 20} | ({CPU: cpu} if cpu is not None else {})
    withheld = {} if cpu is not None else {CPU: Reason.HPA_UNSOLVED.value}
    workload_advice = WorkloadAdvice(
        namespace=ref.namespace,
        kind=ref.kind,
        name=ref.name,
        containers=(ContainerAdvice("app", amounts, {MEMORY: 512 << 20}, withheld),),
        settings_digest="aaaabbbbcccc",
        record_digest="111122223333",
        start_seconds=NOW - 14 * 86_400,
        end_seconds=NOW - 600,
        figures={"cpu_p95": 150.0, "cpu_cv": 0.4},
    )
    return msgspec.structs.replace(workload_advice, **changes)


def owner(ref: WorkloadRef, uid: str = "u-1") -> ExistingObject:
    return ExistingObject("apps/v1", ref.kind, ref.name, uid)


def merged(
    previous: dict[tuple[str, str], dict[str, Any]], intents: Iterable[Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """What the API server would hold: main fields and status live apart, as with the status subresource."""
    bodies = {key: dict(value) for key, value in previous.items()}
    for intent in intents:
        assert isinstance(intent, Apply)
        key = (intent.address.namespace, intent.address.name)
        fields = ("status",) if intent.subresource else ("metadata", "spec")
        bodies[key] = {**bodies.get(key, {}), **{f: intent.body[f] for f in fields}}
    return bodies


def objects(bodies: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], RecommendationObject]:
    return {key: msgspec.convert(body, RecommendationObject) for key, body in bodies.items()}


def settle(
    workloads: list[WorkloadAdvice],
    bodies: dict[tuple[str, str], dict[str, Any]] | None = None,
    owners: dict[WorkloadRef, ExistingObject] | None = None,
    now: float = NOW,
) -> tuple[dict[tuple[str, str], dict[str, Any]], list[int]]:
    """Rounds until nothing is left to write; what is held then, and how many were written in each round."""
    bodies = bodies or {}
    written: list[int] = []
    all_owners = {w.ref: owner(w.ref) for w in workloads} if owners is None else owners
    for _ in range(4):
        intents = decide(
            RecommendationView(RunResults(NOW, tuple(workloads)), objects(bodies), all_owners), now
        ).intents
        if not intents:
            return bodies, written
        bodies = merged(bodies, intents)
        written.append(len(intents))
    raise AssertionError(f"does not settle: {written}")


def test_a_new_workload_gets_its_object_and_then_its_status() -> None:
    bodies, written = settle([advice()])
    # Round 1: the object. Round 2: its status, which a server ignores when an object is created.
    assert written == [1, 1]
    recommendation = bodies["shop", "deployment-web"]
    assert recommendation["spec"]["target"] == {
        "type": "workload",
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    }
    assert recommendation["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert recommendation["status"]["podStatus"]["containerStatuses"] == [
        {"containerName": "app", "resources": {"cpu": "200m", "memory": "256Mi"}}
    ]
    states = {c["type"]: (c["status"], c["reason"]) for c in recommendation["status"]["conditions"]}
    assert states == {"Ready": ("True", "Computed"), "Stale": ("False", "Fresh"), "Withheld": ("False", "None")}


def test_the_evidence_names_digests_span_figures_and_limits() -> None:
    bodies, _ = settle([advice()])
    evidence = msgspec.json.decode(bodies["shop", "deployment-web"]["metadata"]["annotations"][EVIDENCE_ANNOTATION])
    assert (evidence["settings"], evidence["record"]) == ("aaaabbbbcccc", "111122223333")
    # NOW is 2026-09-21T14:13:20Z; the history ends 10 minutes and begins 14 days before.
    assert (evidence["from"], evidence["to"]) == ("2026-09-07T14:13:20Z", "2026-09-21T14:03:20Z")
    assert (evidence["cpu_p95"], evidence["limits"]) == (150.0, {"app": {"memory": "512Mi"}})


@pytest.mark.parametrize(
    ("cpu", "hours", "written"),
    [
        (219, 0, []),  # 19 of 200: inside the dead-band of 10 %
        (220, 0, []),  # exactly 10 % is still inside
        (221, 0, [2]),  # beyond: status, and the evidence that belongs to it
        (181, 48, []),
        (179, 23, []),  # a fall waits until a day has passed since the last write
        (179, 24, [2]),
    ],
)
def test_an_amount_is_written_again_only_outside_of_the_dead_band(cpu: int, hours: int, written: list[int]) -> None:
    bodies, _ = settle([advice()])
    now = NOW + hours * 3600
    again = advice(cpu=cpu, record_digest="444455556666", end_seconds=now - 600)
    assert settle([again], bodies, now=now)[1] == written


def test_what_swings_around_an_edge_of_the_band_is_not_written_at_every_run() -> None:
    bodies, _ = settle([advice(cpu=1000)])
    writes = 0
    for hour in range(1, 25):
        now = NOW + hour * 3600
        swung = advice(cpu=880 if hour % 2 else 1000, end_seconds=now - 600)
        bodies, written = settle([swung], bodies, now=now)
        writes += sum(written)
    # 24 hours after the first write the low value's hour is over (odd hours), so nothing was written at all.
    assert writes == 0


def test_slow_drift_is_not_lost_in_the_dead_band() -> None:
    # The band lies around what is published, not around the last run: 5 % a day leaves it on the third day.
    bodies, _ = settle([advice(cpu=1000)])
    rounds = []
    for cpu in (1050, 1100, 1150):
        bodies, written = settle([advice(cpu=cpu)], bodies)
        rounds.append(sum(written))
    assert rounds == [0, 0, 1]


def test_a_withheld_resource_is_left_out_and_says_why() -> None:
    bodies, _ = settle([advice()])
    bodies, written = settle([advice(cpu=None)], bodies)
    assert sum(written) > 0
    recommendation = bodies["shop", "deployment-web"]
    assert recommendation["status"]["podStatus"]["containerStatuses"][0]["resources"] == {"memory": "256Mi"}
    withheld = next(c for c in recommendation["status"]["conditions"] if c["type"] == "Withheld")
    assert (withheld["status"], withheld["reason"]) == ("True", "HpaUnsolved")
    assert "app cpu" in withheld["message"]
    assert recommendation["metadata"]["labels"][STATE_LABEL] == "current"


def test_a_workload_without_history_is_marked_stale_once_and_keeps_its_amounts() -> None:
    bodies, _ = settle([advice()])
    bodies, written = settle([], bodies, owners={WEB: OWNER})
    recommendation = bodies["shop", "deployment-web"]
    assert sum(written) == 2
    assert recommendation["metadata"]["labels"][STATE_LABEL] == "stale"
    assert recommendation["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "200m"
    assert {c["type"]: c["status"] for c in recommendation["status"]["conditions"]} == {
        "Ready": "False",
        "Stale": "True",
        "Withheld": "False",
    }
    assert settle([], bodies, owners={WEB: OWNER})[1] == []
    assert settle([advice()], bodies)[0]["shop", "deployment-web"]["metadata"]["labels"][STATE_LABEL] == "current"


def test_an_old_history_is_stale_although_the_run_is_new() -> None:
    bodies, _ = settle([advice(end_seconds=NOW - 25 * 3600)])
    assert bodies["shop", "deployment-web"]["metadata"]["labels"][STATE_LABEL] == "stale"


def test_a_workload_that_is_gone_is_left_to_the_garbage_collector() -> None:
    bodies, _ = settle([advice()])
    assert settle([advice()], bodies, owners={})[1] == []
    assert settle([], bodies, owners={})[1] == []


def test_a_workload_made_anew_takes_its_object_over() -> None:
    bodies, _ = settle([advice()])
    bodies, written = settle([advice()], bodies, owners={WEB: owner(WEB, "u-2")})
    assert written == [1]
    assert [r["uid"] for r in bodies["shop", "deployment-web"]["metadata"]["ownerReferences"]] == ["u-2"]


def test_an_object_of_somebody_else_is_left_alone_and_noted() -> None:
    bodies, _ = settle([advice()])
    bodies["shop", "deployment-web"]["metadata"] = {"name": "deployment-web", "namespace": "shop"}
    decision = decide(RecommendationView(RunResults(NOW, (advice(cpu=900),)), objects(bodies), {WEB: OWNER}), NOW)
    assert decision.intents == ()
    assert [note.reason for note in decision.notes] == ["NotOurs"]


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    bodies, _ = settle([advice()])
    bodies, _ = settle([advice(cpu=900)], bodies, now=NOW + 3600)
    times = {c["lastTransitionTime"] for c in bodies["shop", "deployment-web"]["status"]["conditions"]}
    assert times == {"2026-09-21T14:13:20Z"}
    assert bodies["shop", "deployment-web"]["status"]["updateTime"] == "2026-09-21T15:13:20Z"


def test_names_tell_kinds_apart_and_fit_kubernetes() -> None:
    long = WorkloadRef("shop", "StatefulSet", "x" * 253)
    assert object_name(WEB) != object_name(WorkloadRef("shop", "StatefulSet", "web"))
    assert len(object_name(long)) <= 253
    assert object_name(long) != object_name(WorkloadRef("shop", "StatefulSet", "x" * 252 + "y"))


workloads = st.dictionaries(
    st.sampled_from([WorkloadRef("shop", kind, name) for kind in ("Deployment", "Job") for name in ("a", "b", "c")]),
    st.builds(
        lambda cpu, end: (cpu, end),
        st.none() | st.integers(1, 10**6),
        st.integers(NOW - 60 * 86_400, NOW),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(workloads, workloads)
def test_nothing_changed_means_nothing_written(first: dict[Any, Any], second: dict[Any, Any]) -> None:
    def listed(amounts_by_ref: dict[Any, Any]) -> list[WorkloadAdvice]:
        return [advice(ref, cpu, end_seconds=end) for ref, (cpu, end) in amounts_by_ref.items()]

    owners = {ref: owner(ref) for ref in {*first, *second}}
    bodies, _ = settle(listed(first), owners=owners)
    bodies, _ = settle(listed(second), bodies, owners)
    # settle() ended with a round without intents; one more, an hour later, is as quiet unless a history grew stale.
    assert settle(listed(second), bodies, owners)[1] == []
