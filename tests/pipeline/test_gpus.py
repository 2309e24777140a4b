"""From stored GPU history to findings and the cluster's forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.base.identity import ClusterRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import DeviceResource
from cotenant.base.store import Store
from cotenant.base.store.tables import rows_of
from cotenant.base.table import Kind
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.base.usage.usage import Signal, Usage
from cotenant.cli.analysis.forecast import path
from cotenant.dashboard.figures import story
from cotenant.dashboard.pages import forecast as page
from cotenant.dashboard.sources.workload_story import ForecastDetail
from cotenant.pipeline import daily_analysis, gpus, stored_history, tables
from cotenant.pipeline.analysis import History
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.views import FORECASTS
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=8, workloads=150, days=6, seed=7, rush=True)


@pytest.fixture(scope="module")
def history(store: Store, cluster: SyntheticCluster) -> History:
    assert cluster.usage[Signal.GPU_CORE_MEAN].refs
    return stored_history.load(store, Settings())


def total_of(history: History) -> Usage[ClusterRef]:
    total = gpus.cluster_total(history)
    assert total is not None
    return total


def test_each_kind_of_gpu_workload_gets_its_finding(history: History) -> None:
    by_kind: dict[FindingKind, set[str]] = {}
    for finding in gpus.findings(history, Settings()):
        by_kind.setdefault(finding.kind, set()).add(str(finding.subject).split("/")[0])
    # notebooks and a staging copy rest, inference takes a third, and no exporter measures one workload in search
    assert "staging" in by_kind[FindingKind.IDLE_GPU] <= {"ml-batch", "staging"}
    assert by_kind[FindingKind.OVERSIZED_GPU] == {"recsys"}
    assert by_kind[FindingKind.UNMEASURED_GPU] == {"search"}


@pytest.mark.slow
def test_the_clusters_gpu_use_is_forecast_and_shown_on_page_and_command_line(store: Store, history: History) -> None:
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(SPEC.grid.end_seconds), Silent())
    forecasts = analysis.cluster_forecasts[DeviceResource.GPU_CORE]
    # its peak is no lower than what is computed now
    assert float(forecasts.peak_level(0.95)[0]) >= float(np.nanmax(total_of(history).values[0, -12:]))
    rows = (row for part in tables.forecast_parts(analysis) for row in rows_of(part, FORECASTS).rows())
    (row,) = (row for row in rows if row["resource"] == "gpu-core")
    assert (row["scope"], len(row["q50"])) == ("cluster", 48)
    assert [c.kind for c in path(row, DeviceResource.GPU_CORE).schema.columns[1:]] == [Kind.INTEGER] * 4
    phrases = page.forecast_words(row, DeviceResource.GPU_CORE)
    assert f"{PEAK_NAME}: {row['peak'] / 100:.1f} GPUs (p50" in phrases
    drawn = page.line(ForecastDetail.of(row, None), DeviceResource.GPU_CORE)
    figure = story.chart(drawn)
    assert f"{PEAK_NAME}: {row['peak'] / 100:.1f} GPUs" in figure.summary


def test_mig_instances_are_not_counted_as_whole_gpus(history: History) -> None:
    usage = history.usage[Signal.GPU_CORE_MEAN].dense()
    instance = int(np.nanargmax(usage.values[:, -1]))
    requests = history.usage[Signal.GPU_INSTANCE_REQUEST]
    hundred = np.full((1, requests.grid.size), 100, dtype=np.float32)
    instance_requests = Usage((usage.refs[instance],), requests.grid, hundred, requests.resource, requests.statistic)
    partitioned = replace(history, usage={**history.usage, Signal.GPU_INSTANCE_REQUEST: instance_requests})
    # percent of an instance are not percent of a device: the container leaves the sum with all it used
    before, after = (float(total_of(h).values[0, -1]) for h in (history, partitioned))
    assert before - after == pytest.approx(float(usage.values[instance, -1]), rel=1e-4)


def test_the_clusters_gpu_use_is_the_sum_of_its_containers(history: History) -> None:
    total = total_of(history)
    usage = history.usage[Signal.GPU_CORE_MEAN].dense()
    newest = usage.values[:, -1]
    # in the last slot each running container counts once: none of them is silent there
    running = {(p.namespace, p.name) for p in history.inventory.pods if p.running}
    now = np.array([(ref.namespace, ref.pod) in running for ref in usage.refs])
    assert np.isfinite(newest[now]).all()
    assert float(total.values[0, -1]) == pytest.approx(float(np.nansum(newest)), rel=1e-4)
