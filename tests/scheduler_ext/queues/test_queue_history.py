"""A quota's last day, asked of a real Prometheus that scraped the manager."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from cotenant.base.errors import NoData, SourceUnfit
from cotenant.base.kube import KubeClient
from cotenant.base.people import Person
from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import GIB
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from cotenant.scheduler_ext.queues.model.queue_service import HISTORY_SECONDS, HISTORY_STEP_SECONDS
from cotenant.scheduler_ext.queues.service.cluster_queue_service import METRICS, ClusterQueueService
from cotenant.settings import Settings
from tests.support.prometheus import Server, blocks_from

pytestmark = [pytest.mark.server, pytest.mark.prometheus]

NOW = 1_700_000_100 - 1_700_000_100 % HISTORY_STEP_SECONDS
ADA = Person("ada")


def nobody(_who: Person) -> AbstractContextManager[KubeClient]:
    raise AssertionError("history asks no cluster")


def test_the_last_day_is_in_the_resources_unit_of_the_one_cluster_and_quota(tmp_path: Path) -> None:
    """Half a day of samples; another cluster's quota of the same name, and another quota, do not count."""
    series = {
        'cotenant_quota_used{cluster="a",quota="research",resource="cpu"}': 24.5,
        'cotenant_quota_runtime{cluster="a",quota="research",resource="cpu"}': 26,
        'cotenant_quota_used{cluster="b",quota="research",resource="cpu"}': 99,
        'cotenant_quota_used{cluster="a",quota="shop",resource="cpu"}': 98,
        'cotenant_quota_used{cluster="a",quota="research",resource="memory"}': 3 * GIB,
        'cotenant_quota_waiting_pods{cluster="a",quota="research"}': 3,
    }
    lines = []
    for name in sorted(METRICS.values()):
        lines.append(f"# TYPE {name} gauge")
        for text, value in series.items():
            if text.startswith(f"{name}{{"):
                lines += [
                    f"{text} {value} {t}" for t in range(NOW - HISTORY_SECONDS // 2, NOW + 1, HISTORY_STEP_SECONDS)
                ]
    (tmp_path / "m.txt").write_text("\n".join([*lines, "# EOF", ""]))
    blocks_from(tmp_path / "m.txt", tmp_path / "data")
    with Server(tmp_path / "data") as server:
        prometheus = PrometheusSettings(url=server.url, labels={"cluster": "a"})
        profiler = msgspec.structs.replace(Settings().profiler, prometheus=prometheus)
        settings = msgspec.structs.replace(Settings(), profiler=profiler)
        service = ClusterQueueService(nobody, settings, FixedClock(NOW), lambda: Client(prometheus))
        past = service.history(ADA, "research", "cpu")
        assert (past.start_seconds, past.step_seconds) == (NOW - HISTORY_SECONDS, HISTORY_STEP_SECONDS)
        count = HISTORY_SECONDS // HISTORY_STEP_SECONDS + 1
        assert {name: len(values) for name, values in past.series.items()} == dict.fromkeys(METRICS, count)
        assert past.series["used"][0] is None and past.series["used"][-1] == 24_500
        assert past.series["runtime"][-1] == 26_000 and past.series["waiting"][-1] == 3
        assert set(past.series["request"]) == {None}
        assert service.history(ADA, "research", "memory").series["used"][-1] == 3 * GIB
        with pytest.raises(NoData, match="no sample of quota lab"):
            service.history(ADA, "lab", "cpu")
        everything = msgspec.structs.replace(prometheus, labels={})
        settings = msgspec.structs.replace(settings, profiler=msgspec.structs.replace(profiler, prometheus=everything))
        with pytest.raises(SourceUnfit, match="2 clusters, by the label cluster: a, b"):
            ClusterQueueService(nobody, settings, FixedClock(NOW), lambda: Client(everything)).history(
                ADA, "research", "cpu"
            )
