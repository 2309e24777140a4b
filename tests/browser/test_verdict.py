"""Why a change is found good or bad, seen: usage through it, and every rule with its numbers of a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Grant, Person, Role
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.service import ClusterChangeService
from tests.browser.conftest import Open
from tests.support import acting
from tests.support.plans import TestClock
from tests.support.prometheus import Server, blocks_from

pytestmark = pytest.mark.server

ADMIN = Person("ann", grants=(Grant(Role.ADMIN),))
SPAN = 3600
QUERY = 'max(app_p99_seconds{namespace="$namespace",pod=~"$pods"})'


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


def samples(workload: WorkloadRef, begin_seconds: int) -> dict[str, list[str]]:
    """An hour before and an hour after the change, of a pod of each: 2 % and 40 % throttled, 80 and 150 ms."""
    lines: dict[str, list[str]] = {}
    for pod, start, throttled, p99, request in (
        ("aaaaa", begin_seconds - SPAN, 0.02, 0.08, 1.0),
        ("bbbbb", begin_seconds, 0.4, 0.15, 0.6),
    ):
        labels = f'namespace="{workload.namespace}",pod="{workload.name}-7d4b-{pod}",container="app"'
        rates = {"cpu_usage_seconds": 0.5, "cpu_cfs_periods": 10.0, "cpu_cfs_throttled_periods": 10 * throttled}
        for t in range(start, start + SPAN + 1, 60):
            for name, rate in rates.items():
                series = lines.setdefault(f"container_{name} counter", [])
                series.append(f"container_{name}_total{{{labels}}} {rate * (t - start):.3f} {t}")
            if t > start:
                lines.setdefault("app_p99_seconds gauge", []).append(f"app_p99_seconds{{{labels}}} {p99} {t}")
                text = f'kube_pod_container_resource_requests{{{labels},resource="cpu"}} {request} {t}'
                lines.setdefault("kube_pod_container_resource_requests gauge", []).append(text)
    return lines


@contextmanager
def measured(folder: Path, workload: WorkloadRef, start: int) -> Iterator[str]:
    lines = [line for kind, texts in samples(workload, start).items() for line in (f"# TYPE {kind}", *texts)]
    (folder / "m.txt").write_text("\n".join([*lines, "# EOF", ""]))
    blocks_from(folder / "m.txt", folder / "data")
    with Server(folder / "data") as server:
        yield server.url


def service(cluster: acting.Scene, url: str, clock: TestClock) -> ClusterChangeService:
    """A service that has a metric source, by which 20 % longer and 10 points more throttling are harm."""
    settings = cluster.settings
    prometheus = msgspec.structs.replace(settings.profiler.prometheus, url=url)
    profiler = msgspec.structs.replace(settings.profiler, prometheus=prometheus)
    actions = msgspec.structs.replace(settings.actions, latency_query=QUERY)
    return change_service_of(
        msgspec.structs.replace(settings, profiler=profiler, actions=actions), cluster.store, clock=clock
    )


@pytest.mark.slow
def test_a_regression_shows_usage_through_the_change_and_the_rule_it_broke(
    prepared_store: acting.Prepared, tmp_path: Path, open_page: Open
) -> None:
    with acting.embedded(tmp_path, prepared_store) as cluster:
        start = cluster.end_seconds - 12 * 3600
        ref = next(workload_ref for workload_ref in cluster.acceptable() if workload_ref.kind == "Deployment")
        with measured(tmp_path, ref, start) as url:
            clock = TestClock(start)
            acts = service(cluster, url, clock)
            (done,) = acts.accept(ADMIN, ChangeRequest((ref,)))
            acting.settle_rollouts(cluster)
            clock.seconds = start + SPAN
            (judged,) = acts.verify(ADMIN, [done.change.id])
        assert judged.state is ChangeState.REGRESSED
        with acting.served(cluster) as address:
            page = open_page(f"{address}/changes?open={done.change.id}")
            locator = page.locator("#change-told")
            rules = locator.get_by_role("table", name="Rules of the verdict")
            throttled = rules.get_by_role("row").filter(has_text="throttled CPU periods")
            expect(throttled).to_contain_text(re.compile(r"2\.0 %.*(39|40|41)\.\d %.*12\.0 %.*worse"))
            expect(rules.get_by_role("row").filter(has_text="p99 latency")).to_contain_text(
                re.compile("80 ms.*150 ms.*96 ms.*worse")
            )
            expect(rules.get_by_role("row").filter(has_text="PSI")).to_contain_text("no samples")
            # Half a core all the time; the first minutes of a counter say less. One core was requested before.
            usage = re.compile(r"CPU: mean usage (4\d\d|500) m before .* 5\d\d m after; requested 1 core before")
            expect(locator.get_by_role("img").first).to_have_attribute("aria-label", usage)
            expect(locator.locator(".js-plotly-plot .legendtext").filter(has_text="Request after")).to_be_visible()
            page.goto(f"{address}/workload/{ref.namespace}/{ref.kind}/{ref.name}")
            expect(page.locator("#last-change")).to_contain_text("it did harm")
