"""How a feature's state is told: reasons for errors, the ConfigMap, the board's notion of news."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from cotenant.base.controllers.audit import Audit, new_value
from cotenant.base.controllers.clocks import server_disagrees
from cotenant.base.controllers.contract import camel
from cotenant.base.controllers.feature import (
    ControllerCondition,
    FeatureState,
    condition_of_error,
    condition_of_failure,
    message_of,
    status_intent,
)
from cotenant.base.errors import (
    ClusterAbsent,
    ClusterDenied,
    ClusterError,
    ClusterForbidden,
    ClusterUnreachable,
    CotenantError,
    NoData,
    NotLeader,
    SourceForbidden,
    SourceProtocol,
    SourceUnreachable,
    StoreError,
    StoreForbidden,
)
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Outcome
from cotenant.base.logs.metrics import Metrics
from cotenant.base.reasons import Reason
from cotenant.manager.feature_status import Board
from cotenant.manager.pipeline import PipelineFailed


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (ClusterForbidden("no"), ControllerCondition.FORBIDDEN),
        (ClusterAbsent("no"), ControllerCondition.ABSENT),
        (ClusterUnreachable("no"), ControllerCondition.UNREACHABLE),
        (NotLeader("no"), ControllerCondition.STANDBY),
        (NoData("no"), ControllerCondition.NO_DATA),
        (ClusterDenied("no"), ControllerCondition.DEGRADED),
        (ClusterError("no"), ControllerCondition.DEGRADED),
        (KeyError("no"), ControllerCondition.FAILED),
    ],
)
def test_each_kind_of_error_has_its_own_answer(error: Exception, condition: ControllerCondition) -> None:
    assert condition_of_error(error) is condition


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (SourceUnreachable("no"), ControllerCondition.UNREACHABLE),
        (SourceProtocol("no"), ControllerCondition.UNREACHABLE),
        (SourceForbidden("no"), ControllerCondition.FORBIDDEN),
        (StoreError("no"), ControllerCondition.UNREACHABLE),
        (StoreForbidden("no"), ControllerCondition.FORBIDDEN),
        (ClusterError("500"), ControllerCondition.UNREACHABLE),
        (ClusterForbidden("no"), ControllerCondition.FORBIDDEN),
        (PipelineFailed("its process ended"), ControllerCondition.FAILED),
        (NoData("no"), ControllerCondition.NO_DATA),
    ],
)
def test_a_feature_that_could_not_decide_never_counts_as_working(
    error: CotenantError, condition: ControllerCondition
) -> None:
    assert condition_of_failure(error) is condition
    assert not condition.works


def _every_kind(kind: type[CotenantError]) -> Iterator[type[CotenantError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _every_kind(below)


def test_no_error_of_ours_that_ends_a_decision_is_called_degraded() -> None:
    kinds = [kind for kind in _every_kind(CotenantError) if kind.__module__ == CotenantError.__module__]
    assert len(kinds) > 30  # the tree of base.errors
    conditions = {condition_of_failure(kind.__new__(kind)) for kind in kinds}
    assert not any(condition.works for condition in conditions)


def test_an_error_is_told_with_what_helps() -> None:
    assert message_of(ClusterForbidden("cannot list pods", fix="Grant it.")) == "cannot list pods. Grant it."
    assert message_of(ValueError()) == "ValueError"


def test_only_what_a_person_must_mend_counts_as_broken() -> None:
    broken = {s for s in ControllerCondition if s.broken}
    assert broken == {
        ControllerCondition.STALE,
        ControllerCondition.FORBIDDEN,
        ControllerCondition.ABSENT,
        ControllerCondition.UNREACHABLE,
        ControllerCondition.FAILED,
    }


def test_the_status_is_one_condition_a_feature() -> None:
    states = {
        "colocation": FeatureState("colocation", ControllerCondition.UP, "", 1_790_000_000),
        "forecasts": FeatureState("forecasts", ControllerCondition.FORBIDDEN, "cannot patch", 1_790_000_000),
    }
    intent = status_intent("koordinator-system", states)
    assert str(intent.address) == "configmaps/koordinator-system/cotenant-status"
    assert json.loads(intent.body["data"]["forecasts"]) == {
        "type": "Available",
        "status": "False",
        "reason": "Forbidden",
        "message": "cannot patch",
        "lastTransitionTime": "2026-09-21T14:13:20Z",
    }
    assert json.loads(intent.body["data"]["colocation"])["status"] == "True"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_a_reason_for_kubernetes_too(reason: Reason) -> None:
    assert camel(reason.value).isalnum()
    assert camel(reason.value)[0].isupper()


def board() -> tuple[Board, Metrics]:
    metrics = Metrics("test", "3")
    return Board("ns", Audit(metrics), None), metrics


def test_the_board_writes_a_state_once_and_keeps_its_time() -> None:
    status_board, metrics = board()
    status_board.report(FeatureState("colocation", ControllerCondition.UP, "", 100.0))
    (intent,) = status_board.decide({}, 100.0).intents
    status_board.sent([Outcome(intent)])
    status_board.report(FeatureState("colocation", ControllerCondition.UP, "", 160.0))
    assert status_board.decide({}, 160.0).intents == ()
    status_board.report(FeatureState("colocation", ControllerCondition.UP, "another message", 220.0))
    assert status_board.states["colocation"].since_seconds == 100.0  # the same standing since then
    status_board.report(FeatureState("colocation", ControllerCondition.STALE, "", 280.0))
    assert status_board.states["colocation"].since_seconds == 280.0
    assert len(status_board.decide({}, 280.0).intents) == 1
    assert b'cotenant_feature_up{feature="colocation"} 0.0' in generate_latest(metrics.registry)


def test_a_status_that_was_not_written_is_due_again() -> None:
    status_board, _ = board()
    status_board.report(FeatureState("colocation", ControllerCondition.UP, "", 100.0))
    (intent,) = status_board.decide({}, 100.0).intents
    status_board.sent([Outcome(intent, error=ClusterForbidden("no"))])
    assert len(status_board.decide({}, 102.0).intents) == 1


def test_a_state_that_changes_while_the_status_is_written_is_written_next() -> None:
    status_board, _ = board()
    status_board.report(FeatureState("colocation", ControllerCondition.UP, "", 100.0))
    (intent,) = status_board.decide({}, 100.0).intents
    status_board.report(FeatureState("colocation", ControllerCondition.STALE, "", 101.0))
    status_board.sent([Outcome(intent)])
    (late,) = status_board.decide({}, 102.0).intents
    assert isinstance(late, Apply)
    assert "Stale" in late.body["data"]["colocation"]


def test_readiness_names_what_is_not_there_yet() -> None:
    status_board, _ = board()
    status_board.report(FeatureState("colocation", ControllerCondition.WAITING, "nodes are being listed.", 100.0))
    status_board.report(FeatureState("forecasts", ControllerCondition.FORBIDDEN, "a person has to act", 100.0))
    status_board.report(FeatureState("recommendations", ControllerCondition.NO_DATA, "no history is stored", 100.0))
    away = FeatureState("node-metric", ControllerCondition.UNREACHABLE, "prometheus is away", 100.0, of_source=True)
    status_board.report(away)  # an upgrade must not wait for it: it may be what mends the address
    assert status_board.wrong() == "colocation: nodes are being listed."


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=600), max_size=5))
def test_a_log_line_has_the_whole_new_value_and_not_the_name(data: dict[str, str]) -> None:
    address = Address("v1", "configmaps", "c", "ns")
    assert json.loads(new_value(Apply(address, {"metadata": {"name": "c"}, "data": data}))) == {"data": data}
    assert new_value(Delete(address)) == ""


NOW = 1_800_000_000.0
GATEWAY = "the source answered 502: upstream connect error, x-request-id: {}"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (
            GATEWAY.format("6f9619ff-8b86-d011-b42d-00c04fc964ff"),
            GATEWAY.format("7d444840-9dc0-11d1-b245-5ffdce74fad2"),
            True,
        ),
        (server_disagrees(NOW + 3600, NOW, []), server_disagrees(NOW + 3610, NOW + 10, []), True),
        ("node n1 has no report", "node n2 has no report", False),
        (server_disagrees(NOW + 3600, NOW, []), server_disagrees(NOW - 3600, NOW, []), False),
    ],
    ids=["a proxy's signature", "two clocks that go on", "another node", "another direction"],
)
def test_an_outage_that_goes_on_is_one_state(first: str, second: str, same: bool) -> None:
    """Each new state is a warning, an Event and a write of the ConfigMap: one in each round for as long as it lasts."""
    feature_state, two = (
        FeatureState("colocation", ControllerCondition.STALE, text, at) for at, text in enumerate((first, second))
    )
    assert feature_state.same(two) is same and two.same(feature_state) is same
