from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.errors import SettingsError, SourceForbidden, SourceProtocol, SourceUnreachable
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, TimeWindow
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.client import TELLING_BYTES, Client, worth_compressing
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from tests.profiler.conftest import DAYS, Served, profiler_settings, pulled, store_in
from tests.support.extent import full, full_rows
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.prometheus import Server, free_port
from tests.support.timer import LeapingTimer

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
SECOND_OF_USAGE = 17
"""Which question of a pull is the second for usage, the first of which is answered.

Names, the survey, the intervals of series scraped often and rarely, and the inventory come before them.
"""


@pytest.fixture
def proxy(served: Served) -> Iterator[FaultProxy]:
    with FaultProxy(served.server.url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def truth(served: Served, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    store = store_in(tmp_path_factory.mktemp("truth"))
    pulled(store, served.end, profiler_settings(served.server.url))
    return usage(store, served)


def usage(store: Store, served: Served) -> np.ndarray:
    grid = TimeGrid.from_span(served.end - DAYS * DAY_SECONDS, served.end, 300)
    return store.read(Signal.CPU_USAGE_MEAN, grid).values


def many(url: str, **options: object) -> ProfilerSettings:
    """Settings that make a pull of dozens of queries."""
    return profiler_settings(url, max_points_per_query=5_000, **options)


def once(fault: str, number: int) -> Fault:
    return lambda count, _: fault if count == number else None


@pytest.mark.parametrize("fault", ["503-html", "422-store", *full("500", "502-html", "429", "close", "truncate")])
def test_a_passing_fault_is_asked_again_and_nothing_is_lost(
    served: Served, proxy: FaultProxy, truth: np.ndarray, tmp_path: Path, fault: str
) -> None:
    proxy.fault = once(fault, SECOND_OF_USAGE)
    store = store_in(tmp_path)
    record = pulled(store, served.end, many(proxy.url))
    assert Defect.QUERY_FAILED not in record.defects
    np.testing.assert_array_equal(usage(store, served), truth)


@pytest.mark.parametrize("fault", ["hang", *full("503-timeout")])
def test_a_query_that_takes_too_long_is_split(
    served: Served, proxy: FaultProxy, truth: np.ndarray, tmp_path: Path, fault: str
) -> None:
    proxy.fault = once(fault, SECOND_OF_USAGE)
    store = store_in(tmp_path)
    record = pulled(store, served.end, many(proxy.url, timeout_seconds=2.0))
    assert record.defects[Defect.QUERY_SPLIT] == 1
    assert Defect.QUERY_FAILED not in record.defects
    np.testing.assert_array_equal(usage(store, served), truth)


@pytest.mark.parametrize("fault", ["500", *full("200-html", "200-error", "422-duplicate", "403", "redirect")])
def test_a_part_that_keeps_failing_is_a_counted_gap_and_the_next_pull_fills_it(
    served: Served, proxy: FaultProxy, truth: np.ndarray, tmp_path: Path, fault: str
) -> None:
    proxy.fault = lambda _, query: fault if "working_set_bytes{container" in query else None
    store = store_in(tmp_path)
    record = pulled(store, served.end, many(proxy.url))
    assert record.defects[Defect.QUERY_FAILED] >= 1
    np.testing.assert_array_equal(usage(store, served), truth)
    assert store.span(Signal.MEMORY_WORKING_SET_MAX) is None
    proxy.fault = lambda _count, _query: None
    pulled(store, served.end, many(proxy.url))
    grid = TimeGrid.from_span(served.end - DAYS * DAY_SECONDS, served.end, 300)
    filled = store.read(Signal.MEMORY_WORKING_SET_MAX, grid)
    assert (~np.isnan(filled.values)).sum() == (~np.isnan(truth)).sum()


@pytest.mark.parametrize(
    ("fault", "error"),
    [("401", SourceForbidden), ("403", SourceForbidden), ("200-html", SourceProtocol), ("redirect", SourceProtocol),
     ("500", SourceUnreachable), ("close", SourceUnreachable)],
)  # fmt: skip
def test_a_source_that_gives_nothing_is_a_typed_error_that_names_it(
    served: Served, proxy: FaultProxy, tmp_path: Path, fault: str, error: type[Exception]
) -> None:
    proxy.fault = lambda _count, _query: fault
    with pytest.raises(error) as caught:
        pulled(store_in(tmp_path), served.end, profiler_settings(proxy.url))
    assert "127.0.0.1" in str(caught.value)


def test_nobody_listening_is_unreachable_soon(served: Served, tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(SourceUnreachable, match="no connection"):
        pulled(store_in(tmp_path), served.end, profiler_settings(f"http://127.0.0.1:{free_port()}"))
    assert time.monotonic() - start < 30


def test_a_server_that_falls_silent_in_the_middle_does_not_hold_the_pull_for_long(
    served: Served, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.fault = lambda count, _: "hang" if count >= SECOND_OF_USAGE else None
    start = time.monotonic()
    record = pulled(store_in(tmp_path), served.end, many(proxy.url, timeout_seconds=2.0))
    # The circuit opens after five unanswered questions, with four in flight: a few seconds, not one for each query.
    assert time.monotonic() - start < 60
    assert record.defects[Defect.QUERY_FAILED] > 3


class Outages:
    """A fault that begins with each question that was not asked before and lasts by a timer's clock."""

    def __init__(self, timer: LeapingTimer, seconds: float, fault: str) -> None:
        self.timer, self.seconds, self.name = timer, seconds, fault
        self.ends: dict[str, float] = {}

    def __call__(self, _count: int, query: str) -> str | None:
        now = self.timer.monotonic_seconds()
        return self.name if now < self.ends.setdefault(query, now + self.seconds) else None


@pytest.mark.parametrize(
    ("fault", "seconds"), [("503-html", 40.0), ("429", 5.0), *full_rows(("503-html", 5.0), ("429", 40.0))]
)
def test_an_outage_at_each_question_in_turn_costs_time_and_no_data(
    served: Served, proxy: FaultProxy, truth: np.ndarray, tmp_path: Path, fault: str, seconds: float
) -> None:
    timer, store = LeapingTimer(), store_in(tmp_path)
    proxy.fault = outages = Outages(timer, seconds, fault)
    record = pulled(store, served.end, profiler_settings(proxy.url, outage_seconds=90.0, backoff_seconds=0.5), timer)
    assert len(outages.ends) > 5, "names, survey, series, state and the usage were asked"
    assert sum(timer.pauses) > 2 * seconds
    assert Defect.QUERY_FAILED not in record.defects
    assert not record.unread_seconds
    np.testing.assert_array_equal(usage(store, served), truth)


def test_a_server_that_restarts_in_the_middle_costs_time_and_no_data(
    served: Served, truth: np.ndarray, tmp_path: Path
) -> None:
    timer = LeapingTimer()
    # A second server on a copy: the shared one must not go away under other tests.
    copy = tmp_path / "data"
    shutil.copytree(served.server.data, copy, ignore=shutil.ignore_patterns("lock", "wal", "chunks_head", "queries.*"))
    with Server(copy) as server, FaultProxy(server.url) as proxy:
        turn = threading.Lock()  # pauses leap, the start does not: nobody's patience ends while the server starts

        def restart(count: int, _query: str) -> None:
            with turn:
                if count == 5:
                    server.stop()
                elif count >= 8 and server.process is None:
                    server.start()
                    proxy.target = server.url

        proxy.fault = restart
        store = store_in(tmp_path)
        record = pulled(store, served.end, profiler_settings(proxy.url, outage_seconds=90.0), timer)
    assert not record.unread_seconds
    np.testing.assert_array_equal(usage(store, served), truth)


def test_no_more_than_the_set_number_of_queries_is_in_flight(served: Served, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.delay_seconds = 0.02
    pulled(store_in(tmp_path), served.end, many(proxy.url, in_flight=3))
    assert proxy.count > 20
    assert proxy.most_in_flight == 3


def test_owners_that_are_too_many_for_one_answer_are_asked_namespace_by_namespace(
    served: Served, proxy: FaultProxy
) -> None:
    proxy.fault = lambda _, query: "422-too-large" if "_owner" in query and "namespace" not in query else None
    window = TimeWindow(served.end - DAYS * DAY_SECONDS, served.end)
    split, unsplit = (PrometheusSource(profiler_settings(url).prometheus) for url in (proxy.url, served.server.url))
    assert split.inventory(served.end, window) == unsplit.inventory(served.end, window)
    assert split.record(served.end).defects[Defect.QUERY_SPLIT] > 0
    split.close()
    unsplit.close()


def encodings(proxy: FaultProxy, end: int, **options: object) -> list[str]:
    """In which answers were asked for, one after another: a large one twice."""
    asking = Client(profiler_settings(proxy.url, **options).prometheus)
    for _ in range(2):
        body = asking.range('{__name__="container_memory_working_set_bytes"}', end - DAY_SECONDS, end, 60)
        assert len(memoryview(body)) > TELLING_BYTES
    asking.close()
    return [headers["Accept-Encoding"] for _, _, headers in proxy.requests]


def test_answers_come_plain_until_a_large_one_shows_that_the_network_is_slow(served: Served, proxy: FaultProxy) -> None:
    proxy.bytes_per_second = 10e6
    assert encodings(proxy, served.end) == ["identity", "gzip"]


def test_a_header_says_how_answers_come(served: Served, proxy: FaultProxy) -> None:
    assert encodings(proxy, served.end, headers={"Accept-Encoding": "gzip"}) == ["gzip", "gzip"]


def test_compressing_is_worth_it_where_it_takes_less_time_than_it_saves() -> None:
    # 3 MB: 0.1 s of a server's processor
    assert worth_compressing(3_000_000, 0.3)
    assert not worth_compressing(3_000_000, 0.03)


def test_credentials_headers_and_tenant_travel_with_every_request(
    served: Served, proxy: FaultProxy, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    options = {"bearer_token_file": str(token), "tenant": "team-a", "headers": {"X-Own": "1"}}
    record = pulled(store_in(tmp_path / "store"), served.end, profiler_settings(proxy.url, **options))
    assert len(proxy.requests) > 3
    for _, _, headers in proxy.requests:
        assert headers["Authorization"] == "Bearer s3cret"
        assert headers["X-Scope-OrgID"] == "team-a"
        assert headers["X-Own"] == "1"
    assert any("without encryption" in note for note in record.notes)
    assert any("not tested" in note for note in record.notes)


def test_a_user_in_the_address_is_sent_as_basic_authentication_and_never_shown(
    served: Served, proxy: FaultProxy, tmp_path: Path
) -> None:
    address = proxy.url.replace("http://", "http://me:p%40ss@")
    record = pulled(store_in(tmp_path), served.end, profiler_settings(address))
    # The header is "me:p@ss" in base 64.
    assert all(headers["Authorization"] == "Basic bWU6cEBzcw==" for _, _, headers in proxy.requests)
    assert "p%40ss" not in record.source
    assert "me" not in record.source.split("//")[1]


@pytest.mark.parametrize("url", ["", "ftp://host", "file:///etc/passwd", "prometheus:9090", "http://"])
def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="http"):
        PrometheusSource(PrometheusSettings(url=url))


def test_a_missing_token_file_is_named(served: Served, tmp_path: Path) -> None:
    settings = profiler_settings(served.server.url, bearer_token_file=str(tmp_path / "gone"))
    with pytest.raises(SettingsError, match="gone"):
        pulled(store_in(tmp_path), served.end, settings)


@pytest.mark.parametrize("option", ["bearer_token_file", "password_file"])
def test_a_credential_file_that_is_not_text_is_named(tmp_path: Path, option: str) -> None:
    (tmp_path / "binary").write_bytes(b"\x80\x00\xff")
    options: dict[str, Any] = {option: str(tmp_path / "binary"), "username": "ada"}
    with pytest.raises(SettingsError, match="binary is not text: byte 0") as caught:
        Client(PrometheusSettings(url="http://127.0.0.1:9", retries=0, **options)).range("up", 0, 60, 60)
    assert "as text" in caught.value.fix


def test_an_address_that_is_refused_does_not_show_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        PrometheusSource(PrometheusSettings(url="ftp://ada:hunter2@host"))
    assert "hunter2" not in str(caught.value) and "host" in str(caught.value)


def test_a_path_prefix_is_kept(served: Served, proxy: FaultProxy, tmp_path: Path) -> None:
    # The server answers 404 below the prefix: what counts is where the question went.
    with pytest.raises(SourceProtocol) as caught:
        pulled(store_in(tmp_path), served.end, profiler_settings(f"{proxy.url}/prom/"))
    assert proxy.requests[0][0].startswith("/prom/api/v1/")
    assert "path prefix" in caught.value.fix


@pytest.mark.parametrize(
    "page", ["/graph", "/query", "/classic/graph", "/targets", "/api/v1", "/api/v1/", "/api/v1/query?query=up"]
)
def test_the_address_of_a_page_is_told_from_that_of_the_server(served: Served, tmp_path: Path, page: str) -> None:
    with pytest.raises(SourceProtocol) as caught:
        pulled(store_in(tmp_path), served.end, profiler_settings(f"{served.server.url}{page}"))
    bare = page.partition("?")[0].rstrip("/")
    assert caught.value.fix == f"Remove {bare} from the address: cotenant appends the path of the API itself."


@pytest.mark.parametrize("form", ["{}/", "{}//", " {}", "{} ", "{}\n", "{}#top", "{}/?a=b#top"])
def test_what_people_copy_with_an_address_changes_nothing(served: Served, tmp_path: Path, form: str) -> None:
    record = pulled(store_in(tmp_path), served.end, profiler_settings(form.format(served.server.url)))
    assert record.source == f"prometheus {served.server.url}"
