"""Managed and multi-tenant servers: a real Prometheus behind a proxy with their rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from cotenant.base.cluster import Inventory
from cotenant.base.errors import SourceError, SourceForbidden, SourceTooLong
from cotenant.base.process.clock import FixedClock
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, TimeWindow
from cotenant.cli.cluster.probes import metrics
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import ProfilerSettings
from tests.profiler.conftest import DAYS, Served, profiler_settings, pulled, store_in
from tests.support.prometheus import Server, blocks_from
from tests.support.strict_server import CUT, Rules, StrictServer

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
SIGNALS = tuple(signal for signal in Signal if "gpu" not in signal.value)


@pytest.fixture(scope="module")
def plain(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What a scan of the server itself stores."""
    store = store_in(tmp_path_factory.mktemp("plain"))
    pulled(store, served.end, profiler_settings(served.server.url))
    return store


def values(store: Store, end: int, signal: Signal) -> dict[object, np.ndarray]:
    usage = store.read(signal, TimeGrid.from_span(end - DAYS * DAY_SECONDS, end, signal.spec.step_seconds))
    return dict(zip(usage.refs, usage.values, strict=True))


def without_source(store: Store) -> Inventory:
    inventory = store.read_inventory()
    assert inventory is not None
    return inventory


def assert_same(store: Store, plain: Store, end: int) -> None:
    assert without_source(store) == without_source(plain)
    for signal in SIGNALS:
        ours, theirs = values(store, end, signal), values(plain, end, signal)
        assert ours.keys() == theirs.keys(), signal
        for ref, row in theirs.items():
            np.testing.assert_array_equal(ours[ref], row, err_msg=f"{signal} {ref}")


EXACT = {
    "google": Rules(exact_names=True),
    "unprocessable": Rules(exact_names=True, pattern_status=422),
    "forbidden": Rules(exact_names=True, pattern_status=403),
    "forbidden, and post": Rules(exact_names=True, pattern_status=403, refuses_post=403),
    "no list of names": Rules(exact_names=True, lists_names=False),
    "a cut list of names": Rules(exact_names=True, most_names=5),
    "get alone": Rules(exact_names=True, refuses_post=405),
    "a parameter": Rules(exact_names=True, needs_parameter=("project", "shop 1")),
}


@pytest.mark.parametrize("rules", EXACT.values(), ids=EXACT)
def test_a_server_that_finds_series_by_whole_names_alone_gives_the_same_numbers(
    served: Served, plain: Store, tmp_path: Path, rules: Rules
) -> None:
    store = store_in(tmp_path)
    with StrictServer(served.server.url, rules) as strict:
        name, value = rules.needs_parameter
        url = f"{strict.url}/?{name}={value.replace(' ', '%20')}" if name else strict.url
        record = pulled(store, served.end, profiler_settings(url))
    assert Defect.QUERY_FAILED not in record.defects and not record.unread_seconds
    assert_same(store, plain, served.end)
    # What was refused was asked once more in other words, and not again and again: names, the first POST, a pattern.
    assert len(strict.refused) <= 3


def test_a_pattern_is_tried_once_and_not_at_all_where_it_is_taken(served: Served, tmp_path: Path) -> None:
    with StrictServer(served.server.url, Rules()) as strict:
        pulled(store_in(tmp_path), served.end, profiler_settings(strict.url))
    texts = [text for _, _, query in strict.requests for text in query.get("query", ())]
    assert any("__name__=~" in text for text in texts)
    assert not any("cotenant_name" in text for text in texts)


@pytest.mark.parametrize("status", [403, 405, 501, 404, 400, 401, 406, 411, 415, 422, 426, 302, 307])
def test_a_server_that_refuses_post_is_asked_with_get(
    served: Served, plain: Store, tmp_path: Path, status: int
) -> None:
    store = store_in(tmp_path)
    with StrictServer(served.server.url, Rules(refuses_post=status)) as strict:
        pulled(store, served.end, profiler_settings(strict.url))
    assert [method for method, _, _ in strict.requests].count("POST") == 1
    assert_same(store, plain, served.end)


def test_parameters_of_the_address_travel_with_every_request(served: Served, tmp_path: Path) -> None:
    with StrictServer(served.server.url, Rules(needs_parameter=("dedup", "false"))) as strict:
        record = pulled(store_in(tmp_path), served.end, profiler_settings(f"{strict.url}?dedup=false&key=s3cret"))
        assert not strict.refused and len(strict.requests) > 3
        assert all(query["key"] == ["s3cret"] for _, _, query in strict.requests)
    assert {"POST", "GET"} == {method for method, _, _ in strict.requests}
    assert "s3cret" not in record.source


def of_one_namespace(inventory: Inventory, namespace: str) -> tuple[set[object], set[object]]:
    pods: set[object] = {(p.name, p.workload, p.running) for p in inventory.pods if p.namespace == namespace}
    return pods, {w.ref for w in inventory.workloads if w.ref.namespace == namespace}


@pytest.mark.parametrize("status", [403, 0])
def test_who_may_read_one_namespace_scans_it(served: Served, plain: Store, tmp_path: Path, status: int) -> None:
    namespace = next(pod.namespace for pod in without_source(plain).pods if pod.running)
    rules = Rules(tenancy=True, allowed=frozenset({namespace}), refuses_post=status)
    store = store_in(tmp_path)
    with StrictServer(served.server.url, rules) as strict:
        pulled(store, served.end, profiler_settings(f"{strict.url}/?namespace={namespace}"))
    inventory = without_source(store)
    assert of_one_namespace(inventory, namespace) == of_one_namespace(without_source(plain), namespace)
    assert {pod.namespace for pod in inventory.pods} == {namespace} and not inventory.nodes
    for signal in (signal for signal in SIGNALS if not signal.spec.per_node):
        ours = values(store, served.end, signal)
        theirs = {
            ref: row
            for ref, row in values(plain, served.end, signal).items()
            if getattr(ref, "namespace", "") == namespace
        }
        assert ours.keys() == theirs.keys(), signal
        for ref, row in theirs.items():
            np.testing.assert_array_equal(ours[ref], row)


def test_a_namespace_that_may_not_be_read_is_refused_with_what_helps(served: Served, tmp_path: Path) -> None:
    rules = Rules(tenancy=True, allowed=frozenset({"mine"}))
    with StrictServer(served.server.url, rules) as strict, pytest.raises(SourceForbidden) as caught:
        pulled(store_in(tmp_path), served.end, profiler_settings(f"{strict.url}/?namespace=yours"))
    assert "namespace" in caught.value.fix


def test_a_question_that_is_refused_in_any_words_names_what_helps(served: Served, tmp_path: Path) -> None:
    rules = Rules(needs_parameter=("project", "x"))
    with StrictServer(served.server.url, rules) as strict, pytest.raises(SourceError, match="project") as caught:
        pulled(store_in(tmp_path), served.end, profiler_settings(strict.url))
    assert caught.value.fix


def test_owners_that_the_server_cuts_are_asked_in_smaller_questions(
    served: Served, plain: Store, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    largest = max(
        sum(pod.namespace == namespace for pod in without_source(plain).pods)
        for namespace in {pod.namespace for pod in without_source(plain).pods}
    )
    with StrictServer(served.server.url, Rules(most_series=largest)) as strict:
        record = pulled(store, served.end, profiler_settings(strict.url))
    assert record.defects[Defect.QUERY_SPLIT] > 0
    assert not any("owners are incomplete" in note for note in record.notes)
    assert_same(store, plain, served.end)


def test_owners_that_stay_cut_are_said_to_be_incomplete(served: Served, tmp_path: Path) -> None:
    with StrictServer(served.server.url, Rules(most_series=1)) as strict:
        record = pulled(store_in(tmp_path), served.end, profiler_settings(strict.url))
    (note,) = [note for note in record.notes if "owners are incomplete" in note]
    assert CUT in note


@pytest.mark.parametrize("refuses", [False, True], ids=["cut with a warning", "refused"])
def test_a_limit_on_series_cuts_namespaces_and_not_time(
    served: Served, plain: Store, tmp_path: Path, refuses: bool
) -> None:
    with StrictServer(served.server.url, Rules()) as strict:
        pulled(store_in(tmp_path / "free"), served.end, profiler_settings(strict.url))
        free = len(strict.requests)
    # Every pod of a container has up to six series of amounts: the largest namespace's must fit.
    inventory = without_source(plain)
    most = 6 * max(sum(p.namespace == w.ref.namespace for p in inventory.pods) for w in inventory.workloads)
    store = store_in(tmp_path / "bound")
    with StrictServer(served.server.url, Rules(most_results=most, refuses_results=refuses)) as strict:
        record = pulled(store, served.end, profiler_settings(strict.url))
        bound = len(strict.requests)
    assert Defect.QUERY_FAILED not in record.defects and record.defects[Defect.QUERY_SPLIT] > 0
    # A union of seven parts falls into 13 questions; cut by time, one part of one day alone would be 2 * 288 - 1.
    assert bound <= 13 * free < 575
    assert_same(store, plain, served.end)


@pytest.mark.parametrize(
    "phrase",
    [
        "the query time range exceeds the limit (query length: 48h0m0s, limit: 12h0m0s) (err-mimir-max-query-length)",
        "query range must be less than 12h",
    ],
    ids=["Mimir", "in other words"],
)
def test_a_limit_on_the_span_of_a_query_cuts_time_alone(
    served: Served, plain: Store, tmp_path: Path, phrase: str
) -> None:
    store = store_in(tmp_path)
    with StrictServer(served.server.url, Rules(most_seconds=12 * HOUR_SECONDS, too_long_span=phrase)) as strict:
        record = pulled(store, served.end, profiler_settings(strict.url))
    assert Defect.QUERY_FAILED not in record.defects
    # Of two days one is of 36 hours: each of three unions of parts is refused four times at most until it is cut into
    # pieces of at most 12 hours, the survey once and the intervals twice.
    assert len(strict.refused) <= 3 * 4 + 3
    assert_same(store, plain, served.end)


def test_owners_of_pods_that_are_gone_are_found_where_the_index_is_read_for_half_a_day_alone(
    served: Served, plain: Store, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    with StrictServer(served.server.url, Rules(series_seconds=12 * HOUR_SECONDS)) as strict:
        pulled(store, served.end, profiler_settings(strict.url))
        count = [path for _, path, _ in strict.requests].count("/api/v1/series")
    # at once, the oldest half day, and four pieces of two days
    assert count == 6
    assert_same(store, plain, served.end)


@pytest.mark.parametrize(
    "warning",
    [
        CUT,
        "receive series from 10.0.0.7: rpc error: code = Unavailable desc = gone",
        # Prometheus leaves out what its remote storage does not answer (storage/fanout.go, storage/remote/read.go)
        "remote_read: remote server http://long:9201/read returned http status 500 Internal Server Error: down",
        'remote_read: error sending request: Post "http://long:9201/read": context deadline exceeded',
        'error sending request: Post "http://long:9201/read": dial tcp: lookup long: no such host',
    ],
)
def test_a_part_of_an_answer_is_no_answer(served: Served, warning: str) -> None:
    with StrictServer(served.server.url, Rules(warns=warning)) as strict:
        client = Client(profiler_settings(strict.url, retries=0).prometheus)
        with pytest.raises(SourceError) as caught:
            client.range("up", served.end - 60, served.end, 60)
        client.close()
    assert warning in caught.value.message and caught.value.fix


def test_a_token_that_is_renewed_while_a_scan_runs_is_read_again(served: Served, plain: Store, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0\n")
    with StrictServer(served.server.url, Rules()) as strict:
        settings = profiler_settings(strict.url, bearer_token_file=str(token), max_points_per_query=5_000)
        source = PrometheusSource(settings.prometheus)
        window = TimeWindow(served.end - DAYS * DAY_SECONDS, served.end)
        source.survey(window)
        token.write_text("t1\n")  # as a sidecar or a cron job renews it
        source.inventory(served.end, window)
        source.close()
    assert strict.tokens[0] == "Bearer t0" and strict.tokens[-1] == "Bearer t1"


# --- a large cluster behind a proxy that limits addresses -----------------------------------------------------------
NAMESPACES = 1_500
END = 1_795_046_400 + 6 * HOUR_SECONDS
API_PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A container in each of 1,500 namespaces with long names, for an hour."""
    folder = tmp_path_factory.mktemp("large")
    text = folder / "metrics.txt"
    with text.open("w") as lines:
        for name in ("container_cpu_usage_seconds", "container_memory_working_set_bytes"):
            kind, suffix = ("counter", "_total") if "cpu" in name else ("gauge", "")
            lines.write(f"# TYPE {name} {kind}\n")
            for i in range(NAMESPACES):
                labels = f'namespace="customer-production-eu-west-1-{i:04d}",pod="web-0",container="web",node="n"'
                lines.writelines(
                    f"{name}{suffix}{{{labels}}} {(i + 1) * (at + 1)} {END - 3600 + 300 * at}\n" for at in range(13)
                )
        lines.write("# EOF\n")
    blocks_from(text, folder / "data")
    with Server(folder / "data") as server:
        yield server


def scanned(server: Server, folder: Path, rules: Rules) -> tuple[int, Store]:
    store = store_in(folder)
    with StrictServer(server.url, rules) as strict:
        settings = replace_window(profiler_settings(strict.url, max_points_per_query=50_000))
        record = pulled(store, END, settings)
    assert Defect.QUERY_FAILED not in record.defects, record.notes
    return len(strict.requests), store


def replace_window(settings: ProfilerSettings) -> ProfilerSettings:
    """The settings with a day of history."""
    return structs.replace(settings, window_days=1)


@pytest.mark.parametrize("most_bytes", [8_000, 4_000])
def test_many_namespaces_behind_a_proxy_that_limits_addresses_cost_as_many_queries_as_without(
    large: Server, tmp_path: Path, most_bytes: int
) -> None:
    rules = Rules(prefix=API_PROXY)
    free, by_free = scanned(large, tmp_path / "free", rules)
    bound, by_bound = scanned(large, tmp_path / "bound", replace(rules, address_bytes=most_bytes))
    # No selector is longer than two names, so nothing has to be cut for its length but unions of parts, each once.
    assert free > 40
    assert bound <= free * 1.1
    grid = TimeGrid.from_span(END - HOUR_SECONDS, END, 300)
    ours, theirs = (store.read(Signal.CPU_USAGE_MEAN, grid) for store in (by_bound, by_free))
    assert len(ours.refs) == NAMESPACES
    np.testing.assert_array_equal(ours.values, theirs.values)


@pytest.mark.parametrize(
    "too_long",
    [(414, b"<html>too large</html>"), (431, b""), (400, b"<html>Request Header Or Cookie Too Large</html>")],
)
def test_an_address_limit_below_every_question_is_told_and_soon(
    large: Server, tmp_path: Path, too_long: tuple[int, bytes]
) -> None:
    rules = Rules(prefix=API_PROXY, address_bytes=600, too_long=too_long)
    with StrictServer(large.url, rules) as strict, pytest.raises(SourceTooLong) as caught:
        pulled(store_in(tmp_path), END, replace_window(profiler_settings(strict.url)))
    assert len(strict.requests) < 10
    assert "large_client_header_buffers" in caught.value.fix


@pytest.mark.parametrize(
    "rules", [Rules(exact_names=True), Rules(exact_names=True, lists_names=False, refuses_post=403)]
)
def test_a_doctor_finds_of_a_strict_server_what_it_finds_of_the_server_itself(served: Served, rules: Rules) -> None:
    def findings(url: str) -> list[tuple[str, str]]:
        clock = FixedClock(served.end)
        return [(f.probe, f.state.value) for f in metrics.probes(profiler_settings(url), clock)]

    with StrictServer(served.server.url, rules) as strict:
        assert findings(strict.url) == findings(served.server.url)
