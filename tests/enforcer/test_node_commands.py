"""`cotenant node` and `cotenant node enforcer --once`: what a person sees of a node's agent."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from cotenant.cli.main import root
from cotenant.enforcer.report.status import NodeStatus, PodStatus, ValueInForce, VerdictStatus
from tests.enforcer.agents import BATCH, KNOBS, SUPPRESS
from tests.support import kubepods
from tests.support.kubepods import Kubepods

STATUS = NodeStatus(
    node="n1",
    updated="2026-11-20T12:00:00.000Z",
    dry_run=True,
    mode="act",
    ready="the policy is stale",
    policy_origin="NodeSLO",
    policy_age_seconds=12.4,
    pods=(
        PodStatus(
            "data",
            "etl",
            "u1",
            "BE",
            "koord-batch",
            "BestEffort",
            cpu_millicores=250.0,
            memory_bytes=1 << 20,
            values=(
                ValueInForce("kubepods/besteffort/podu1", "cpu.shares", 1024, "be-totals", "its batch resources", 2),
            ),
            verdicts=(VerdictStatus("Starved", "gets nothing"),),
        ),
        PodStatus("shop", "web", "u2", "", "", "Burstable"),
    ),
    others=(ValueInForce("kubepods/besteffort", "cpu.quota", -1, "cpu-suppress", "off"),),
)


def run(*argv: str) -> Result:
    return CliRunner().invoke(root, list(argv))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "status.json"
    path.write_bytes(msgspec.json.encode(STATUS))
    return path


def test_status_has_a_row_for_each_value_each_finding_and_each_pod_of_which_nothing_is_held(file: Path) -> None:
    done = run("node", "status", "--file", str(file), "-o", "json")
    rows = json.loads(done.stdout)
    columns = [(row["pod"], row["knob"], row["value"], row["original"], row["why"]) for row in rows]
    assert columns == [
        ("data/etl", "cpu.shares", "1024", "2", "its batch resources"),
        ("data/etl", "", "", "", "Starved: gets nothing"),
        ("shop/web", "", "", "", ""),
        ("", "cpu.quota", "-1", "", "off"),
    ]
    assert rows[0]["cpu_millicores"] == 250 and rows[2]["memory_bytes"] is None


def test_status_says_how_the_agent_is(file: Path) -> None:
    done = run("node", "status", "--file", str(file))
    assert "act, policy from NodeSLO, policy age 12 s; dry run: nothing is written" in done.stderr
    assert "not ready: the policy is stale" in done.stderr


def test_without_an_agent_status_says_where_one_belongs_and_how_to_get_it(tmp_path: Path) -> None:
    done = run("node", "status", "--file", str(tmp_path / "none"))
    assert done.exit_code == 1
    assert "no agent has saved its status" in done.stderr
    (fix,) = (line for line in done.stderr.splitlines() if line.startswith("fix: "))
    assert "runs as a DaemonSet" in fix and "`cotenant install --enforcer --apply`" in fix
    # by hand on a node alone: whoever reads this may sit at a laptop
    assert fix.index("DaemonSet") < fix.index("On a node") < fix.index("cotenant node enforcer")


@pytest.mark.server
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/status", "file:///etc/passwd"])
def test_an_address_that_does_not_answer_is_an_error_and_a_file_is_no_address(url: str) -> None:
    done = run("node", "status", "--url", url)
    assert done.exit_code in (1, 2) and "error:" in done.stderr and "root:" not in done.stdout


@pytest.mark.server
def test_what_answers_in_no_http_is_an_error_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            with server.accept()[0] as asker:
                asker.recv(4096)
                asker.sendall(b"HTTP/1.1 maybe\r\n\r\n")

        answering = threading.Thread(target=babble)
        answering.start()
        done = run("node", "status", "--url", f"http://127.0.0.1:{server.getsockname()[1]}/status")
        answering.join()
    assert done.exit_code == 1
    assert "no status from http://127.0.0.1" in done.stderr


def test_replay_of_no_file_says_how_to_record_one(tmp_path: Path) -> None:
    done = run("node", "replay", str(tmp_path / "none"))
    assert done.exit_code == 2 and "record_file" in done.stderr


def test_what_install_prints_for_the_agent_is_its_rights_its_guards_and_its_daemonset() -> None:
    done = run("install", "--enforcer", "--components", "priority-classes", "--print")
    kinds = {(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(done.stdout)}
    assert ("DaemonSet", "cotenant-enforcer") in kinds
    assert ("ValidatingAdmissionPolicy", "cotenant-enforcer-own-pods") in kinds
    assert ("DaemonSet", "cotenant-enforcer") not in {
        (d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(run("install", "--print").stdout)
    }


@pytest.fixture
def node() -> Iterator[Kubepods]:
    if why := kubepods.missing():
        pytest.skip(f"no real cgroups: {why}")
    with Kubepods() as tree:
        yield tree


def test_once_shows_what_would_be_written_and_writes_nothing(node: Kubepods, tmp_path: Path) -> None:
    node.pod("etl", qos="BE", priority=5500, resources=BATCH)
    node.write_pods(tmp_path / "pods.json")
    (tmp_path / "policy.yaml").write_text(SUPPRESS)
    before = node.values(KNOBS)
    settings = [f"enforcer.cgroup_base={node.base}", "enforcer.tick_seconds=0.2", "enforcer.kubelet_config="]
    options = [word for setting in settings for word in ("--set", setting)]
    files = ["--policy", str(tmp_path / "policy.yaml"), "--pods", str(tmp_path / "pods.json")]
    done = run(*options, "node", "enforcer", "--once", *files, "--state-dir", str(tmp_path / "state"), "-o", "json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    # 1000 batch-cpu = 1024 shares, on the pod and on its container.
    columns = [
        (r["pod"], r["before"], r["value"], r["outcome"]) for r in rows if r["knob"] == "cpu.shares" and r["pod"]
    ]
    assert columns == [("bench/etl", "2", "1024", "would-write")] * 2
    assert node.values(KNOBS) == before


def machine_file(folder: Path) -> Path:
    path = folder / "machine.yaml"
    path.write_text('sockets: 2\ncoresPerSocket: 2\nthreadsPerCore: 2\noffline: "7"\nisolated: "0"\n')
    return path


def test_topology_draws_a_cell_a_core_and_says_which_cpus_are_withheld(tmp_path: Path) -> None:
    result = run("node", "topology", "--topology", str(machine_file(tmp_path)))
    # cores 0-1 on socket 0, 2-3 on socket 1; the second threads are 4-7, of which 7 is off
    assert result.stdout.splitlines() == [
        "socket 0, NUMA node 0: 2 cores, 4 CPUs",
        "  core    0  !. ..",
        "socket 1, NUMA node 1: 2 cores, 3 CPUs",
        "  core    2  .. .",
        "",
        ".  shared: 1-6",
        "!  isolated: 0",
        "-  offline: 7",
    ]


def test_topology_as_json_has_a_row_for_each_cpu(tmp_path: Path) -> None:
    rows = json.loads(run("node", "topology", "--topology", str(machine_file(tmp_path)), "-o", "json").stdout)
    assert rows[4] == {"cpu": 4, "core": 0, "socket": 0, "numa_node": 0, "state": "shared", "pod": ""}
    assert rows[7] == {"cpu": 7, "core": None, "socket": None, "numa_node": None, "state": "offline", "pod": ""}


def test_topology_needs_a_node_or_a_file(tmp_path: Path) -> None:
    result = run("node", "topology")
    assert result.exit_code == 2 and "--topology" in result.stderr
