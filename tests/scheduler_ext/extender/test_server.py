"""The extender over real HTTP: answers, limits, certificates, what people ask."""

from __future__ import annotations

import gc
import json
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from tests.scheduler_ext.extender.serving import Serving, args, client_tls, serving
from tests.scheduler_ext.extender.worlds import SOURCES, World, pod_json

pytestmark = pytest.mark.server

LS = {"koordinator.sh/qosClass": "LS"}
POD = pod_json("new", {"cpu": "1", "memory": "1Gi"}, labels=LS)


def fresh() -> World:
    """A view of now by the machine's own clock: `busy` is too busy, the others idle; `held` is being handed over."""
    now = time.time()
    cluster = (
        World().node("idle").metric("idle", cpu="1", updated=now).node("busy").metric("busy", cpu="9", updated=now)
    )
    cluster.node("held").metric("held", cpu="1m", updated=now).node("unreported")
    cluster.table.put_guards({"held": ["default/owner"]})
    frame = cluster.table.take(SOURCES, now, time.monotonic())
    cluster.view.take(frame)
    return cluster


@pytest.fixture(scope="module")
def extender() -> Any:
    with serving(fresh().view) as running:
        yield running


EMPTY: dict[str, Any] = {
    "Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""
}  # fmt: skip


@pytest.mark.slow
def test_filter_says_who_passes_in_the_order_asked(extender: Serving) -> None:
    response = extender.post("/filter", args(POD, ["unreported", "busy", "held", "idle", "stranger"]))
    assert response == {**EMPTY, "NodeNames": ["unreported", "idle", "stranger"]}


def test_filter_says_why_where_nobody_passes(extender: Serving) -> None:
    response = extender.post("/filter", args(POD, ["busy", "held"]))
    failed = {"busy": "cpu usage above 65 %"}
    hopeless = {"held": "the node's capacity is being handed over to another pod"}
    assert response == {**EMPTY, "FailedNodes": failed, "FailedAndUnresolvableNodes": hopeless}


def test_of_many_nodes_only_the_best_come_back_unless_the_pod_has_preferences() -> None:
    now, cluster = time.time(), World()
    for number in range(20):
        cluster.node(f"n{number}").metric(f"n{number}", cpu=f"{number * 100}m", updated=now)
    cluster.view.take(cluster.table.take(SOURCES, now, time.monotonic()))
    names = [f"n{number}" for number in range(20)]
    with serving(cluster.view, ExtenderSettings(weight=1, most_nodes=5)) as running:
        # 100 m of 10 cores are half a point of the mean of two resources: five nodes apart tell for sure
        best = running.post("/filter", args(POD, names))["NodeNames"]
        assert len(best) == 5
        assert all(int(name[1:]) < 10 for name in best)
        assert running.post("/filter", args(POD, names))["NodeNames"] == best
        choosy = pod_json("choosy", {"cpu": "1"}, labels=LS)
        preferred = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
        choosy["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
        assert running.post("/filter", args(choosy, names))["NodeNames"] == names
    with serving(cluster.view, ExtenderSettings(weight=1, most_nodes=0)) as running:
        assert running.post("/filter", args(POD, names))["NodeNames"] == names


def test_when_one_node_comes_back_pods_take_turns_on_nodes_that_are_alike() -> None:
    now, cluster, names = time.time(), World(), [f"n{number}" for number in range(20)]
    for number, name in enumerate(names):
        # half of the nodes are 30 points of CPU worse, 15 of the mean: more than a step of 2.5
        cluster.node(name).metric(name, cpu="100m" if number < 10 else "3100m", updated=now)
    cluster.view.take(cluster.table.take(SOURCES, now, time.monotonic()))
    with serving(cluster.view, ExtenderSettings(most_nodes=1)) as running:
        pods = [pod_json(f"p{number}", {"cpu": "10m"}, labels=LS) for number in range(200)]
        passing_names = [running.post("/filter", args(pod, names))["NodeNames"] for pod in pods]
    assert {len(node_names) for node_names in passing_names} == {1}
    taken = Counter(node_names[0] for node_names in passing_names)
    assert set(taken) == set(names[:10])
    assert max(taken.values()) <= 60  # of 200 on ten nodes: 20 each, and no node has most of them


def test_a_process_that_goes_on_without_the_server_collects_garbage_by_itself_again() -> None:
    with serving(fresh().view) as running:
        running.post("/filter", args(POD, ["idle"]))
    assert gc.isenabled()


def test_prioritize_leaves_out_who_gets_nothing(extender: Serving) -> None:
    response = extender.post("/prioritize", args(POD, ["unreported", "idle", "stranger", "held"]))
    # idle: cpu (10,000 - 1,000 - 850) -> 81, memory (102,400 - 10,240 - 717) -> 89; 85
    # held: cpu 91, memory 89; 90, the best; 5 points of 25 worse are 2 of 10
    assert response == [{"Host": "idle", "Score": 8}, {"Host": "held", "Score": 10}]
    assert extender.post("/prioritize", args(POD, ["unreported"])) == []


def test_answers_have_a_length_and_are_not_chunked(extender: Serving) -> None:
    for path in ("/filter", "/prioritize"):
        status, body, headers = extender.ask("POST", path, json.dumps(args(POD, ["idle"])).encode())
        assert status == 200
        assert headers["content-length"] == str(len(body))
        assert "transfer-encoding" not in headers
        assert headers["content-type"] == "application/json"


def test_one_connection_serves_many_calls(extender: Serving) -> None:
    connection = extender.connect()
    body = json.dumps(args(POD, ["idle"])).encode()
    for _ in range(20):
        connection.request("POST", "/filter", body)
        assert json.loads(connection.getresponse().read())["NodeNames"] == ["idle"]
    connection.close()


def test_a_scheduler_that_sends_whole_nodes_is_told_so_instead_of_losing_them(extender: Serving) -> None:
    response = extender.post("/filter", {"Pod": POD, "Nodes": {"items": []}, "NodeNames": None})
    assert "nodeCacheCapable" in response["Error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/filter", b"{", 400),
        ("POST", "/filter", b"{}", 400),
        ("POST", "/filter", b'{"Pod": {}, "NodeNames": [1]}', 400),
        ("POST", "/filter", b"\xff\xfe", 400),
        ("POST", "/nothing", b"{}", 404),
        ("DELETE", "/filter", None, 404),
        ("GET", "/nothing", None, 404),
        ("GET", "/why?namespace=default&name=nobody", None, 404),
        ("GET", "/healthz", None, 200),
        ("GET", "/metrics", None, 200),
    ],
)
def test_what_is_no_question_gets_no_answer_that_means_something(
    extender: Serving, method: str, path: str, body: bytes | None, status: int
) -> None:
    assert extender.ask(method, path, body)[0] == status


def test_a_body_above_the_cap_is_refused_unread() -> None:
    with serving(SnapshotFeed(), ExtenderSettings(max_body_bytes=10_000)) as running:
        assert running.ask("POST", "/filter", b" " * 10_001)[0] == 413
        connection = running.connect()
        chunks = iter([b" " * 6000, b" " * 6000])
        connection.request("POST", "/filter", chunks, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()
        assert running.ask("GET", "/healthz")[0] == 200


@pytest.mark.slow
def test_a_caller_that_trickles_is_cut_off_and_others_are_not_held_up() -> None:
    with serving(fresh().view, ExtenderSettings(read_seconds=2.0)) as running:
        slow = running.connect()
        slow.putrequest("POST", "/filter")
        slow.putheader("Content-Length", "100")
        slow.endheaders(b"{")
        assert running.post("/filter", args(POD, ["idle"]))["NodeNames"] == ["idle"]
        assert slow.getresponse().status == 408
        slow.close()


def test_why_tells_what_the_scheduler_was_told(extender: Serving) -> None:
    pod = pod_json("pending", {"cpu": "1"}, labels=LS)
    extender.post("/filter", args(pod, ["busy", "held", "idle"]))
    status, body, _ = extender.ask("GET", "/why?namespace=default&name=pending")
    document = json.loads(body)
    assert (status, document["asked"], document["passed"]) == (200, 3, 1)
    assert {(r["rule"], r["nodes"]) for r in document["refusals"]} == {("load-aware", 1), ("reservation", 1)}


def test_why_tries_a_pod_that_does_not_exist_on_every_node(extender: Serving) -> None:
    explanation = extender.post("/why", {"Pod": pod_json("big", {"cpu": "11"}, labels=LS)})
    assert (explanation["nodes"], explanation["fits"]) == (4, 0)
    # 11 cores are too much for every node of 10; 85 % of them for every node that reports
    assert {"rule": "resources", "reason": "too little cpu", "nodes": 4} in explanation["refusals"]
    small = extender.post("/why", {"Pod": pod_json("small", {"cpu": "1"}, labels=LS)})
    assert (small["fits"], small["best"][0]) == (2, "idle")


def test_what_it_counts_is_on_metrics(extender: Serving) -> None:
    extender.post("/filter", args(POD, ["busy"]))
    text = extender.ask("GET", "/metrics")[1].decode()
    assert 'cotenant_extender_answers_total{status="200",verb="filter"}' in text
    assert 'cotenant_extender_refused_nodes_total{rule="load-aware"}' in text
    assert "cotenant_extender_nodes 4.0" in text


def test_the_breaker_shows_on_metrics() -> None:
    cluster = World().node("a").metric("a", cpu="9", updated=time.time() - 500)
    cluster.view.take(cluster.table.take(SOURCES, time.time(), time.monotonic()))
    with serving(cluster.view) as running:
        assert running.post("/filter", args(POD, ["a"]))["NodeNames"] == ["a"]
        assert "cotenant_extender_load_rules_off 1.0" in running.ask("GET", "/metrics")[1].decode()


def test_only_a_caller_with_the_authoritys_certificate_is_served(tmp_path: Path) -> None:
    issue(tmp_path, "https://127.0.0.1:1")
    with serving(fresh().view, ExtenderSettings(certificate_folder=str(tmp_path / "server"))) as running:
        connection = running.connect(client_tls(tmp_path))
        connection.request("POST", "/filter", json.dumps(args(POD, ["idle"])).encode())
        assert json.loads(connection.getresponse().read())["NodeNames"] == ["idle"]
        connection.close()
        stranger = running.connect(client_tls(tmp_path, certificate=False))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            stranger.request("GET", "/healthz")
            stranger.getresponse()
        stranger.close()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.scheduler_ext.extender.serve.server.RELOAD_SECONDS", 0.05)
    issue(tmp_path / "first", "https://127.0.0.1:1")
    issue(tmp_path / "second", "https://127.0.0.1:1")
    folder = tmp_path / "first" / "server"
    with serving(SnapshotFeed(), ExtenderSettings(certificate_folder=str(folder))) as running:
        running.connect(client_tls(tmp_path / "first")).connect()
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).write_bytes((tmp_path / "second" / "server" / name).read_bytes())
        ends = time.monotonic() + 120
        shown = False
        while not shown and time.monotonic() < ends:
            try:
                running.connect(client_tls(tmp_path / "second")).connect()
                shown = True
            except ssl.SSLError:
                time.sleep(0.05)
        assert shown


def test_strangers_cannot_reach_an_extender_without_certificates() -> None:
    app = ExtenderApp(ExtenderDependencies(SnapshotFeed(), ExtenderSettings(), SystemClock(), Metrics("test", "3")))
    with pytest.raises(UsageError, match="certificate_folder"):
        ExtenderServer(app, ExtenderSettings(host="0.0.0.0", port=0))
    with pytest.raises(UsageError, match=r"tls\.crt is missing"):
        ExtenderServer(app, ExtenderSettings(certificate_folder="/nonexistent", port=0))


NAMES = st.lists(st.one_of(st.sampled_from(["idle", "busy", "held", "unreported"]), st.text(max_size=8)), max_size=8)


@settings(max_examples=60)
@given(names=NAMES, cpu=st.sampled_from(["0", "1", "100", "1e999999"]), labels=st.dictionaries(st.text(), st.text()))
def test_no_question_gets_a_name_back_that_it_did_not_ask_or_a_score_out_of_bounds(
    extender: Serving, names: list[str], cpu: str, labels: dict[str, str]
) -> None:
    """The traps of the protocol: a foreign name fails the scheduler's whole call, a score of 11 is multiplied on."""
    question = args(pod_json("any", {"cpu": cpu}, labels=labels), names)
    response = extender.post("/filter", question)
    assert set(response) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    refused = set(response["FailedNodes"]) | set(response["FailedAndUnresolvableNodes"])
    assert response["NodeNames"] == [name for name in names if name in response["NodeNames"]]
    assert refused == (set() if response["NodeNames"] else set(names))
    scores = extender.post("/prioritize", question)
    assert all(
        set(score) == {"Host", "Score"} and score["Host"] in names and 1 <= score["Score"] <= 10 for score in scores
    )


def test_preempt_never_answers_with_a_node_without_victims(extender: Serving) -> None:
    victims = {"idle": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}, "busy": {"Pods": [], "NumPDBViolations": 0}}
    response = extender.post("/preempt", {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})
    assert response == {"NodeNameToMetaVictims": {"idle": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}}}
    full_victims = {"idle": {"Pods": [{"metadata": {"uid": "a"}}], "NumPDBViolations": 0}}
    response = extender.post("/preempt", {"Pod": POD, "NodeNameToVictims": full_victims, "NodeNameToMetaVictims": None})
    assert response == {"NodeNameToMetaVictims": {"idle": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}}
