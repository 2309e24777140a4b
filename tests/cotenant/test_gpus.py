"""From stored GPU history to findings and the cluster's forecast."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.apps.pipeline import corridor, gpus
from cotenant.apps.pipeline.analysis import History
from cotenant.core.adapters.store import Store
from cotenant.core.model.finding import FindingKind
from cotenant.core.model.usage.usage import Signal
from cotenant.core.settings.root import Settings
from profiler.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=8, workloads=150, days=6, seed=7, rush=True)


@pytest.fixture(scope="module")
def history(store: Store, cluster: SyntheticCluster) -> History:
    assert cluster.usage[Signal.GPU_CORE_MEAN].refs
    return corridor.load(store, Settings())


def test_each_kind_of_gpu_workload_gets_its_finding(history: History) -> None:
    by_kind: dict[FindingKind, set[str]] = {}
    for finding in gpus.findings(history, Settings()):
        by_kind.setdefault(finding.kind, set()).add(str(finding.subject).split("/")[0])
    # notebooks and a staging copy rest, inference takes a third, and no exporter measures one workload in search
    assert "staging" in by_kind[FindingKind.IDLE_GPU] <= {"ml-batch", "staging"}
    assert by_kind[FindingKind.OVERSIZED_GPU] == {"recsys"}
    assert by_kind[FindingKind.UNMEASURED_GPU] == {"search"}


def test_the_clusters_gpu_use_is_the_sum_of_its_containers(history: History) -> None:
    total = gpus.cluster_total(history)
    assert total is not None
    usage = history.usage[Signal.GPU_CORE_MEAN].dense()
    newest = usage.values[:, -1]
    # in the last slot each running container counts once: none of them is silent there
    running = {(p.namespace, p.name) for p in history.inventory.pods if p.running}
    now = np.array([(ref.namespace, ref.pod) in running for ref in usage.refs])
    assert np.isfinite(newest[now]).all()
    assert float(total.values[0, -1]) == pytest.approx(float(np.nansum(newest)), rel=1e-4)
