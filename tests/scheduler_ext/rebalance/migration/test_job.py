"""PodMigrationJobs are read as Koordinator writes them, and what is written is read back as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import Condition, Reference
from cotenant.base.process.shipped_manifests import deploy
from cotenant.scheduler_ext.rebalance.migration.churn import EvictionRate
from cotenant.scheduler_ext.rebalance.migration.job import (
    JobMode,
    JobPhase,
    JobStatus,
    MigrationJob,
    arbitrated_condition,
    status_intent,
    status_with_changes,
)
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.scheduler_ext.rebalance.small_cluster import NOW

NAMES = st.from_regex(r"[a-zA-Z0-9./-]{0,30}", fullmatch=True)
TEXT = st.text(max_size=20)
CONDITIONS = st.lists(
    st.builds(Condition, TEXT, st.sampled_from(("True", "False")), TEXT, TEXT), unique_by=lambda one: one.type
)
STATUSES = st.builds(
    JobStatus,
    st.sampled_from(JobPhase),
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    st.none() | st.builds(Reference, st.just("Pod"), TEXT, TEXT, TEXT, st.just("v1")),
)


def body(**spec: Any) -> dict[str, Any]:
    meta = {"name": "move", "uid": "u", "creationTimestamp": moment(NOW)}
    return {"metadata": meta, "spec": {"podRef": {"namespace": "shop", "name": "web-1"}, **spec}}


def test_the_shipped_example_is_read() -> None:
    text = (deploy() / "examples" / "podmigrationjob.yaml").read_text("utf-8")
    job = MigrationJob.parse(yaml.safe_load(text))
    assert (job.pod_key, job.pod.uid, job.mode, job.ttl_seconds) == (
        ("default", "web-0"), "91c2", JobMode.RESERVATION_FIRST, 300.0
    )  # fmt: skip
    assert (job.runs, job.status.step, job.status.successor and job.status.successor.name) == (
        True,
        "Evicting",
        "web-1",
    )
    assert job.delete_options["gracePeriodSeconds"] == 30 and job.reservation_template["spec"] == {"allocateOnce": True}


def test_a_condition_without_a_body_is_empty_and_one_of_another_kind_is_refused() -> None:
    empty = MigrationJob.parse(body() | {"status": {"conditions": [None]}})
    assert [(condition.type, condition.status) for condition in empty.status.conditions] == [("", "")]
    with pytest.raises(UsageError, match=r"an entry of status\.conditions is int, not an object"):
        MigrationJob.parse(body() | {"status": {"conditions": [3]}})


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"podRef": {}}, "podRef names no pod"),
        ({"podRef": "web"}, "podRef is str, not an object"),
        ({"mode": "Teleport"}, "mode 'Teleport' is unknown"),
        ({"ttl": "soon"}, "'soon' is not a duration"),
        ({"reservationOptions": []}, "reservationOptions is list, not an object"),
        ({"reservationOptions": {"template": 3}}, "template is int, not an object"),
    ],
)
def test_what_cannot_be_read_names_the_job_and_the_field(spec: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match="podmigrationjob move") as error:
        MigrationJob.parse(body(**spec))
    assert part in error.value.message


@given(STATUSES, CONDITIONS)
def test_a_status_is_read_back_as_it_was_written(status: JobStatus, conditions: list[Condition]) -> None:
    job = MigrationJob.parse(body())
    object.__setattr__(job, "status", status)
    written = status_with_changes(job, NOW, conditions)
    intent = status_intent(MigrationJob.parse(body()), written)
    if intent is None:
        assert written == JobStatus()
        return
    again = MigrationJob.parse({**body(), "status": intent.body["status"]})
    assert again.status == written
    assert status_intent(again, written) is None


@given(NAMES, NAMES)
def test_what_arbitration_saw_is_read_back(workload: str, node: str) -> None:
    assert JobStatus(conditions=(arbitrated_condition(workload, node),)).source == (workload, node)


@given(
    per_second=st.floats(0.1, 50),
    burst=st.integers(1, 5),
    waits=st.lists(st.floats(0, 3), min_size=1, max_size=40),
)
def test_no_more_is_evicted_than_burst_and_rate_permit(per_second: float, burst: int, waits: list[float]) -> None:
    rate, now, sent = EvictionRate(per_second, burst, float(burst), 0.0), 0.0, 0
    for wait in waits:
        now += wait
        rate = rate.at(now)
        assert rate.permitted <= burst and (rate.permitted > 0) == (rate.wait_seconds == 0.0)
        sent += rate.permitted
        rate = rate.less(rate.permitted)
    assert sent <= burst + per_second * now + 1e-6
    assert rate.at(now - 100).tokens == rate.tokens
