"""`cotenant size` against an API server that serves given objects: what it prints of autoscalers, and what it reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scheduler_ext.cluster_size.two_nodes import AMOUNTS, pod
from tests.support.api_server import ApiServer
from tests.support.command_line import cotenant
from tests.support.prometheus import Server, blocks_from

Json = dict[str, Any]
KARPENTER = "/apis/karpenter.sh"


def cluster_node(name: str, **labels: str) -> Json:
    own = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z", **labels}
    status = {"allocatable": AMOUNTS, "capacity": AMOUNTS}
    return {"metadata": {"name": name, "labels": own}, "spec": {}, "status": status}


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """Two nodes of a NodePool with one pod each: one node could leave."""
    server = ApiServer(None, None)
    labels = {"karpenter.sh/nodepool": "default"}
    server.objects = {
        "/api/v1/nodes": [cluster_node("a", **labels), cluster_node("b", **labels)],
        "/api/v1/pods": [pod("p", "a"), pod("q", "b")],
        "/api/v1/namespaces": [{"metadata": {"name": "shop"}}],
        "/api/v1/persistentvolumeclaims": [],
        "/api/v1/persistentvolumes": [],
        "/apis/policy/v1/poddisruptionbudgets": [],
        "/apis/storage.k8s.io/v1/csinodes": [],
        KARPENTER: {"preferredVersion": {"version": "v1"}},
        f"{KARPENTER}/v1/nodepools": [
            {"metadata": {"name": "default"}, "spec": {"disruption": {"consolidateAfter": "Never"}}}
        ],
        f"{KARPENTER}/v1/nodeclaims": [],
    }
    yield server
    server.stop()


def size(api: ApiServer, folder: Path, *argv: str) -> tuple[int, str, str]:
    """Exit code, output and messages of the command with a kubeconfig of the server and an empty store."""
    file = folder / "kubeconfig"
    connection = {"clusters": [{"name": "c", "cluster": {"server": api.url}}], "users": [{"name": "u", "user": {}}]}
    context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **connection, **context}))
    store = (folder / "store").as_uri()
    done = cotenant("size", "--kubeconfig", str(file), "--store", store, *argv)
    return done.returncode, done.stdout, done.stderr


def test_obstacles_and_steps_are_printed_as_tables_and_as_one_document(api: ApiServer, tmp_path: Path) -> None:
    code, out, messages = size(api, tmp_path, "--show", "obstacles", "-o", "json")
    assert code == 0, messages
    (row,) = json.loads(out)
    # One of the two nodes could leave; the setting of the pool keeps both.
    assert (row["object"], row["nodes"], row["leaving"], row["even_empty"]) == ("NodePool default", 2, 1, "yes")
    assert "Karpenter removes no node of NodePool default (2 nodes)" in messages
    assert "2 steps, of which 1 has no date yet" in messages
    code, out, messages = size(api, tmp_path, "--show", "all", "-o", "json")
    document = json.loads(out)
    assert document["obstacles"] == [row]
    assert [step["action"] for step in document["steps"]] == ["empty", "take"]
    assert document["steps"][0]["earliest"] is not None and document["steps"][1]["earliest"] is None
    code, out, messages = size(api, tmp_path, "--show", "steps", "-o", "csv")
    assert len(out.splitlines()) == 3 and "spec.disruption.consolidateAfter: Never" in out


def test_people_read_the_first_ten_nodes_and_the_answer_below_them_and_programs_all_rows(
    api: ApiServer, tmp_path: Path
) -> None:
    names = [f"n{number:02d}" for number in range(13)]
    api.objects["/api/v1/nodes"] = [cluster_node(name) for name in names]
    api.objects["/api/v1/pods"] = [pod(f"p{name}", name) for name in names]
    code, out, messages = size(api, tmp_path)
    assert code == 0, messages
    header, *rows, blank, summary = out.splitlines()
    assert (header.split()[0], len(rows), blank) == ("NODE", 10, "")
    assert " of 13 nodes could leave" in summary and summary not in messages
    assert "3 rows more: -o wide shows all rows, --top N shows N rows" in messages  # 13 nodes less the 10 shown
    _, out, messages = size(api, tmp_path, "-o", "json")
    assert len(json.loads(out)) == 13 and summary in messages
    assert len(size(api, tmp_path, "-o", "wide")[1].splitlines()) == 13 + 3  # the header, a blank line, the answer
    assert len(json.loads(size(api, tmp_path, "-o", "json", "--top", "4")[1])) == 4


def test_karpenter_that_may_not_be_read_is_a_sentence_and_no_gap_of_the_answer(api: ApiServer, tmp_path: Path) -> None:
    api.forbidden = {f"{KARPENTER}/v1/nodepools", "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"}
    code, out, messages = size(api, tmp_path, "--show", "obstacles", "-o", "json")
    assert code == 0 and json.loads(out) == []
    assert "nodepools of Karpenter could not be read" in messages
    assert "the status of cluster-autoscaler could not be read" in messages


def test_a_cluster_without_karpenter_is_asked_for_none_of_its_objects(api: ApiServer, tmp_path: Path) -> None:
    for path in [path for path in api.objects if path.startswith(KARPENTER)]:
        del api.objects[path]
    code, _, messages = size(api, tmp_path)
    assert code == 0 and "Neither Karpenter nor cluster-autoscaler was found" in messages
    assert not [path for path, _, _ in api.requests if path.startswith(f"{KARPENTER}/")]


def test_the_flags_of_cluster_autoscaler_are_read_from_its_pod(api: ApiServer, tmp_path: Path) -> None:
    address = "/api/v1/namespaces/kube-system/pods/my-cluster-autoscaler-1"
    owned = [{"kind": "DaemonSet", "name": "ca", "controller": True}]
    body = pod("my-cluster-autoscaler-1", "a", namespace="kube-system", owners=owned)
    body["spec"]["containers"][0]["command"] = ["./cluster-autoscaler", "--scale-down-enabled=false"]
    api.objects["/api/v1/pods"] = [body, pod("p", "a"), pod("q", "b")]
    api.objects[address] = body
    api.objects["/api/v1/nodes"] = [cluster_node("a"), cluster_node("b")]
    code, out, messages = size(api, tmp_path, "--show", "obstacles", "-o", "json")
    assert code == 0, messages
    (row,) = [load for load in json.loads(out) if load["obeyed_by"] == "cluster-autoscaler"]
    assert (row["object"], row["setting"]) == (
        "Pod kube-system/my-cluster-autoscaler-1",
        "flag --scale-down-enabled=false",
    )
    assert (row["nodes"], row["leaving"]) == (2, 1)


SHAPES = "machine_type,price_per_hour,currency,allocatable_cpu,allocatable_memory,pods\nsmall,1,EUR,2,8Gi,10\n"


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_bills_and_the_mix_are_those_of_the_list(api: ApiServer, tmp_path: Path) -> None:
    shapes = written(tmp_path, "shapes.csv", SHAPES + "big,9,EUR,,,\n")
    code, out, messages = size(api, tmp_path, "--shapes", shapes, "--show", "all", "-o", "json")
    assert code == 0, messages
    document = json.loads(out)
    # Two pods of one core: one small node of 2 cores, 1 EUR an hour, 730 a month. Nodes of today have no machine type.
    assert document["mix"] == [{"machine": "small", "zone": "z", "count": 1, "price_month": 730.0}]
    bills = {row["bill"]: (row["nodes"], row["price_month"], row["unpriced"]) for row in document["bills"]}
    assert bills["today"] == (2, None, 2) and bills["packing alone"] == (1, 730.0, 0)
    # No scan is stored: nothing is known of right-sized requests.
    assert bills["both"] == bills["right-sizing alone"] == (None, None, None)
    assert "Cheapest mix found: 1 node, 730 EUR a month, 1.00 x the lowest possible price (730 EUR)" in messages
    assert "1 machine type is of unknown CPU and memory" in messages and "2 nodes are without the label" in messages


def test_lists_in_two_currencies_are_refused(api: ApiServer, tmp_path: Path) -> None:
    shapes = written(tmp_path, "shapes.csv", SHAPES)
    prices = written(tmp_path, "prices.csv", "machine_type,price_per_hour,currency\nm5,1,USD\n")
    code, _, messages = size(api, tmp_path, "--shapes", shapes, "--prices", prices)
    assert code == 2 and "prices in 2 currencies" in messages


@pytest.mark.parametrize(
    ("option", "header"),
    [
        ("--shapes", "machine_type,price_per_hour,currency,cpu,memory,pods,provider;"),
        ("--prices", "machine_type,price_per_hour,currency;"),
    ],
)
def test_a_list_that_cannot_be_read_is_named_with_the_form_of_such_a_list(
    api: ApiServer, tmp_path: Path, option: str, header: str
) -> None:
    file = tmp_path / "none.csv"
    code, _, messages = size(api, tmp_path, option, str(file))
    assert code == 2 and f"error: {file} cannot be read: No such file" in messages
    assert f"fix: The header is {header}" in messages


@pytest.mark.parametrize(
    ("argv", "zones", "phrase"),
    [
        (["--reserve-nodes", "2"], "zz", "--reserve-nodes 2: the cluster has 2 nodes, and none would be left"),
        (["--reserve-nodes", "30"], "zy", "--reserve-nodes 30: the cluster has 2 nodes, and none would be left"),
        (["--reserve-zone"], "zz", "--reserve-zone: all nodes are in zone 'z', and none would be left"),
        (["--reserve-zone"], "  ", "--reserve-zone: no node has the label topology.kubernetes.io/zone, and none would"),
    ],
)
def test_a_reserve_for_the_loss_of_the_whole_cluster_is_refused(
    api: ApiServer, tmp_path: Path, argv: list[str], zones: str, phrase: str
) -> None:
    labels = [{"topology.kubernetes.io/zone": zone.strip()} for zone in zones]
    api.objects["/api/v1/nodes"] = [cluster_node(name, **own) for name, own in zip("ab", labels, strict=True)]
    code, out, messages = size(api, tmp_path, *argv)
    assert (code, out) == (2, "")
    assert f"error: {phrase}" in messages


def test_one_node_that_is_kept_is_told_as_one(api: ApiServer, tmp_path: Path) -> None:
    code, _, messages = size(api, tmp_path)
    assert code == 0 and "1 node kept, 1.00 x the fewest possible (1)" in messages


def test_batch_work_on_lent_capacity_is_priced_beside_the_bills(api: ApiServer, tmp_path: Path) -> None:
    lent = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"}
    body = {"containers": [{"name": "main", "resources": {"requests": lent}}]}
    api.objects["/api/v1/pods"] = [pod("p", "a"), pod("q", "b"), pod("job", "b", body)]
    code, _, messages = size(api, tmp_path, "--shapes", written(tmp_path, "s.csv", SHAPES))
    assert code == 0, messages
    # 2 batch cores on a node of 2 cores.
    assert (
        "Batch work, counted separately: 1 pod that requests 2 cores, 1 GiB; "
        "on 1 separate node, batch would cost 730 EUR a month"
    ) in messages
    code, _, messages = size(api, tmp_path)
    assert "the price of separate nodes is unknown: no node has both a machine type and a price" in messages


def test_prices_of_opencost_come_from_prometheus_and_where_there_are_none_the_fix_is_named(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, messages = size(api, tmp_path, "--prices", "opencost")
    assert code == 2 and "profiler.prometheus.url" in messages
    text, now = tmp_path / "text", int(time.time())
    series = [f'node_total_hourly_cost{{node="{name}"}} {price} {now}' for name, price in (("a", 0.5), ("b", 0))]
    text.write_text("\n".join(["# TYPE node_total_hourly_cost gauge", *series, "# EOF", ""]))
    blocks_from(text, tmp_path / "data")
    with Server(tmp_path / "data") as prometheus:
        monkeypatch.setenv("COTENANT_PROFILER__PROMETHEUS__URL", prometheus.url)
        code, out, messages = size(api, tmp_path, "--prices", "opencost", "-o", "json")
        assert code == 0, messages
        # 730 hours a month at 0.5; a price of 0 says that OpenCost knows none.
        assert {row["node"]: row["price_month"] for row in json.loads(out)} == {"a": 365.0, "b": None}
        assert "OpenCost exports the price 0 an hour; 1 node is without a price" in messages
        monkeypatch.setenv("COTENANT_PROFILER__PROMETHEUS__LABELS", '{"cluster": "other"}')
        code, _, messages = size(api, tmp_path, "--prices", "opencost")
        assert code != 0 and "has no recent sample of node_total_hourly_cost" in messages and "machines.csv" in messages
