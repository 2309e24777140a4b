"""A kill is never lost by a restart: what one run saw, a later process still knows from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from cotenant.base.cluster import Container, Inventory, Node, Pod, Workload
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Progress, Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, Usage
from cotenant.pipeline import daily_analysis
from cotenant.profiler.history import UsageBlock, pull
from cotenant.profiler.pull_state import SignalSpan
from cotenant.recommender.incomplete import NOTE
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.recommendation import Action, Field, Value
from cotenant.settings import Settings
from tests.support.scenario import MONDAY

pytestmark = pytest.mark.slow

WEB = WorkloadRef("shop", "Deployment", "web")
KILLED, NEXT = (PodContainerRef("shop", f"web-{name}", "app") for name in ("old", "new"))
KILL = MONDAY + 6 * DAY_SECONDS
LEVEL = {Signal.CPU_USAGE_MEAN: 100.0, Signal.MEMORY_WORKING_SET_MAX: 300.0 * MIB, Signal.MEMORY_LIMIT: 512.0 * MIB}


class Cluster:
    """A metric source: the old pod until it is killed for memory, a new one from then on; no events of its own."""

    def describe(self) -> str:
        return "one deployment"

    def inventory(self, now_seconds: int, window: tuple[int, int]) -> Inventory:
        node = Node(
            "node-1", {Resource.CPU: 4000, Resource.MEMORY: 8 * GIB}, {Resource.CPU: 3900, Resource.MEMORY: 7 * GIB}
        )
        container = Container("app", {Resource.MEMORY: 512 * MIB}, {Resource.MEMORY: 512 * MIB})
        pods = [Pod("shop", "web-old", WEB, "node-1", MONDAY, KILL if now_seconds > KILL else None)]
        if now_seconds > KILL:
            pods.append(Pod("shop", "web-new", WEB, "node-1", KILL))
        gone_is_forgotten = [p for p in pods if p.end_seconds is None or p.end_seconds > window[0]]
        return Inventory("test", now_seconds, (node,), (Workload(WEB, 1, (container,)),), tuple(gone_is_forgotten))

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        progress.stage("blocks", len(spans))
        for span in spans:
            yield UsageBlock(((span.signal, self._usage(span)),), settled={span.signal: span.end_seconds})

    def _usage(self, span: SignalSpan) -> Usage[PodContainerRef]:
        times, spec = span.grid.times(), span.signal.spec
        values = np.full((2, span.grid.size), np.nan, dtype=np.float32)
        if span.signal in LEVEL:
            values[0, times < KILL] = LEVEL[span.signal]
            values[1, times >= KILL] = LEVEL[span.signal]
        if span.signal is Signal.OOM_KILLS:
            values[0, times == KILL - HOUR_SECONDS] = 1
        has_usage = np.array([np.isfinite(row).any() for row in values])
        refs = tuple(ref for ref, is_present in zip((KILLED, NEXT), has_usage.tolist(), strict=True) if is_present)
        return Usage(refs, span.grid, values[has_usage], spec.resource, spec.statistic)

    errors = ()
    peak_seconds = 0.0

    def record(self, now_seconds: int) -> QualityRecord:
        return QualityRecord(now_seconds, self.describe(), 60, 1, 1)


class CountersUnread(Cluster):
    """The same source on the day on which its questions for the counters fail."""

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        yield from super().blocks([s for s in spans if s.signal is not Signal.OOM_KILLS], progress)
        yield from (UsageBlock((), (s,), {s.signal: s.end_seconds}) for s in spans if s.signal is Signal.OOM_KILLS)


class UsageUnread(Cluster):
    """The same source after a day on which its questions for CPU usage failed."""

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        yield from super().blocks(spans, progress)
        cpu = (s for s in spans if s.signal is Signal.CPU_USAGE_MEAN)
        yield from (
            UsageBlock((), (SignalSpan(s.signal, s.start_seconds, s.start_seconds + DAY_SECONDS),)) for s in cpu
        )


def memory(folder: Path, now_seconds: int, which: Field, source: Cluster | None = None) -> Value:
    """One whole run in what could be a fresh process: pull, analyse."""
    store = Store(folder.as_uri(), "test")
    settings = Settings()
    pull(source or Cluster(), store, settings.profiler, FixedClock(now_seconds), Silent())
    recommendations = daily_analysis.analyse(store, settings, FixedClock(now_seconds), Silent()).recommendations
    value = recommendations[0].value(Resource.MEMORY, which)
    assert value is not None
    return value


def memory_limit(folder: Path, now_seconds: int) -> Value:
    return memory(folder, now_seconds, Field.LIMIT)


def test_the_raise_after_a_kill_stands_in_later_runs_too(tmp_path: Path) -> None:
    first = memory_limit(tmp_path, KILL + HOUR_SECONDS)
    # killed under 512 MiB: max(512 + 100, 512 x 1.2 = 614.4), up to whole MiB
    assert (first.amount, first.reason) == (615 * MIB, Reason.OOM_BUMP)
    assert first.inputs["oom_kills"] == 1
    for days in (1, 3):
        later = memory_limit(tmp_path, KILL + days * DAY_SECONDS)
        assert (later.amount, later.reason) == (615 * MIB, Reason.OOM_BUMP)


def test_without_the_first_runs_store_the_kill_is_known_from_the_source_alone(tmp_path: Path) -> None:
    # the control: nothing but history tells of the kill, and history reaches back to it
    assert memory_limit(tmp_path, KILL + DAY_SECONDS).amount == 615 * MIB
    before = memory_limit(tmp_path / "other", KILL - 2 * HOUR_SECONDS)
    assert before.inputs["oom_kills"] == 0
    assert before.reason is not Reason.OOM_BUMP


def test_memory_is_not_lowered_while_the_kills_could_not_be_read(tmp_path: Path) -> None:
    unread = memory(tmp_path, KILL + HOUR_SECONDS, Field.REQUEST, CountersUnread())
    assert (unread.action, unread.reason, unread.amount) == (Action.WITHHELD, Reason.HISTORY_INCOMPLETE, None)
    read = memory(tmp_path, KILL + 2 * HOUR_SECONDS, Field.REQUEST)
    assert (read.amount, read.reason) == (615 * MIB, Reason.OOM_BUMP), "the next pull asks for what failed"


def test_nothing_is_called_idle_and_no_forecast_decides_alone_while_cpu_usage_could_not_be_read(tmp_path: Path) -> None:
    own = Settings().recommender
    settings = Settings(recommender=replace(own, findings=replace(own.findings, idle_pod_millicores=200)))
    store, clock = Store(tmp_path.as_uri(), "test"), FixedClock(KILL - HOUR_SECONDS)
    pull(UsageUnread(), store, settings.profiler, clock, Silent())
    run = daily_analysis.analyse(store, settings, clock, Silent())
    # 100m of the 200m that count as idle; the container has no CPU request either
    assert [f.kind for f in run.findings] == [FindingKind.MISSING_REQUEST]
    assert run.findings[0].evidence["history_not_read_hours"] == 24
    assert run.prod_peaks[Resource.CPU].days == 0 < run.prod_peaks[Resource.MEMORY].days
    notes = {r.resource: r.note for r in run.reclaimable if r.band is Band.MID}
    assert notes == {Resource.CPU: NOTE, Resource.MEMORY: ""}
