"""Keeping traffic classes with real tc and nft in network namespaces of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.enforcer.apply.traffic import TABLE, TrafficKeeper, nft_program, read_uplink
from cotenant.enforcer.contract import Surface, SurfaceWant, Traffic, TrafficClass, Uplink, text_of
from tests.enforcer.network_namespaces import Network, missing, network

pytestmark = pytest.mark.server

WHY = missing()
real = pytest.mark.skipif(bool(WHY), reason=f"traffic classes are NOT tested: {WHY}")
LS = TrafficClass("LS", 0x20, 50_000_000, 100_000_000, 1)
BE = TrafficClass("BE", 0x30, 10_000_000, 20_000_000, 7, ("10.9.1.2", "fd00::2"))


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network() as pod_network:
        yield pod_network


@pytest.fixture
def keeper(net: Network) -> Iterator[TrafficKeeper]:
    traffic_keeper = TrafficKeeper(net.execute, monotonic=lambda: 1000.0)
    yield traffic_keeper
    traffic_keeper.restore()


def want(*classes: TrafficClass, device: str = "uplink", total: int = 100_000_000) -> list[SurfaceWant]:
    return [SurfaceWant(Surface.TRAFFIC, device, text_of(Traffic(total, classes)), "network", "because")]


def qdiscs(net: Network) -> str:
    return net.execute(["tc", "qdisc", "show"])


def tables(net: Network) -> str:
    return net.execute(["nft", "list", "tables"])


@pytest.mark.slow
@real
def test_a_pods_packets_go_through_its_class_and_the_nodes_own_do_not(net: Network, keeper: TrafficKeeper) -> None:
    assert keeper.apply(want(LS, BE)) == []
    net.send(20)
    net.send(15, "node")
    sent = net.sent()
    assert sent["c07e:30"] >= 20
    assert sent["c07e:20"] == 0
    # The root class sees what its children send; the node's own packets pass beside it.
    assert sent["c07e:1"] == sent["c07e:30"]


@real
def test_rates_change_in_place_and_classes_go(net: Network, keeper: TrafficKeeper) -> None:
    assert keeper.apply(want(LS, BE)) == []
    net.send(10)
    before = net.sent()["c07e:30"]
    slower = TrafficClass("BE", 0x30, 5_000_000, 10_000_000, 7, BE.addresses)
    assert keeper.apply(want(slower)) == []
    assert set(net.sent()) == {"c07e:1", "c07e:30"}
    assert net.sent()["c07e:30"] >= before
    assert "rate 5Mbit ceil 10Mbit" in net.execute(["tc", "class", "show", "dev", "uplink"])


@real
def test_everything_comes_back(net: Network, keeper: TrafficKeeper) -> None:
    before = (qdiscs(net), tables(net))
    keeper.apply(want(BE))
    assert qdiscs(net) != before[0]
    assert TABLE in tables(net)
    assert keeper.apply([]) == []
    assert (qdiscs(net), tables(net)) == before


@real
def test_a_new_agent_removes_what_a_killed_one_left(net: Network, keeper: TrafficKeeper) -> None:
    before = (qdiscs(net), tables(net))
    keeper.apply(want(BE))
    assert TrafficKeeper(net.execute).apply([]) == []
    assert (qdiscs(net), tables(net)) == before


@real
def test_somebody_elses_queueing_is_not_touched(net: Network, keeper: TrafficKeeper) -> None:
    net.execute(["tc", "qdisc", "add", "dev", "uplink", "root", "handle", "5:", "htb"])
    try:
        wrong = keeper.apply(want(BE))
        assert wrong == ["uplink already has another program's queueing discipline (5:): not changed"]
        assert TABLE not in tables(net)
        assert keeper.restore() == []
        assert "htb 5:" in qdiscs(net)
    finally:
        net.execute(["tc", "qdisc", "del", "dev", "uplink", "root"])


@real
def test_a_device_that_is_not_there_is_told(net: Network, keeper: TrafficKeeper) -> None:
    (wrong,) = keeper.apply(want(BE, device="eth9"))
    assert wrong.startswith("eth9: ")
    (refused,) = keeper.apply(want(BE, device="up;reboot"))
    assert refused == '"up;reboot" is not the name of a network device'


@real
def test_programs_run_only_when_something_changes_or_is_due(net: Network) -> None:
    ran, now = [], [0.0]

    def execute(command: list[str], text: str = "") -> str:
        ran.append(command)
        return net.execute(command, text)

    keeper = TrafficKeeper(execute, monotonic=lambda: now[0])
    keeper.apply(want(BE))
    first = len(ran)
    keeper.apply(want(BE))
    assert len(ran) == first
    net.execute(["tc", "qdisc", "del", "dev", "uplink", "root"])  # somebody takes it away
    now[0] = 61.0
    assert keeper.apply(want(BE)) == []
    assert "c07e:30" in net.sent()
    keeper.restore()


def test_without_the_programs_nothing_can_stand_and_wants_are_told() -> None:
    def execute(command: list[str], text: str = "") -> str:
        raise FileNotFoundError(2, "No such file or directory", command[0])

    keeper = TrafficKeeper(execute)
    assert keeper.restore() == []
    assert all("No such file or directory" in line for line in TrafficKeeper(execute).apply(want(BE)))
    assert TrafficKeeper(execute).apply([]) == []


def test_classes_that_could_not_be_taken_away_are_taken_away_a_minute_later() -> None:
    removed: list[list[str]] = []
    now, busy = [0.0], [True]

    def execute(command: list[str], text: str = "") -> str:
        if command[:3] == ["tc", "-j", "qdisc"]:
            return "[]" if removed else '[{"dev": "uplink", "root": true, "handle": "c07e:"}]'
        if command[:3] == ["tc", "qdisc", "del"]:
            if busy[0]:
                raise subprocess.CalledProcessError(2, command, stderr="RTNETLINK answers: Device or resource busy\n")
            removed.append(command)
        return ""

    keeper = TrafficKeeper(execute, monotonic=lambda: now[0])
    assert "busy" in keeper.apply([])[0]
    busy[0] = False
    now[0] = 61.0
    assert keeper.apply([]) == []
    assert removed == [["tc", "qdisc", "del", "dev", "uplink", "root", "handle", "c07e:"]]


def test_a_program_that_fails_is_quoted() -> None:
    def execute(command: list[str], text: str = "") -> str:
        if command[:2] == ["tc", "-j"]:
            return "[]"
        raise subprocess.CalledProcessError(2, command, stderr="RTNETLINK answers: Operation not permitted\n")

    wrong = TrafficKeeper(execute).apply(want(BE))
    assert wrong[0].endswith("RTNETLINK answers: Operation not permitted")


def test_the_program_for_nft_replaces_the_table_as_a_whole() -> None:
    program = nft_program({"uplink": Traffic(1, (LS, BE))})
    assert program.startswith(f"table inet {TABLE} {{}}\ndelete table inet {TABLE}\n")
    assert 'oifname "uplink" ip saddr { 10.9.1.2 } meta priority set c07e:30' in program
    assert 'oifname "uplink" ip6 saddr { fd00::2 } meta priority set c07e:30' in program
    assert "c07e:20" not in program  # nobody is in LS
    with pytest.raises(ValueError, match="drop"):
        nft_program({"uplink": Traffic(1, (TrafficClass("BE", 0x30, 1, 1, 7, ("10.0.0.1; drop",)),))})


def test_the_uplink_is_the_default_routes_device(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    speed = tmp_path / "class/net/eth1"
    speed.mkdir(parents=True)
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    assert read_uplink(tmp_path, tmp_path, tmp_path) is None
    rows = [
        "eth0\t00000000\t0100000A\t0003\t0\t0\t200\t00000000",
        "eth1\t00000000\t0100000A\t0003\t0\t0\t100\t00000000",
    ]
    (tmp_path / "net/route").write_text(head + "\n".join([*rows, "eth2\t0000000A\t0\t1\t0\t0\t0\t00FFFFFF"]))
    assert read_uplink(tmp_path, tmp_path, tmp_path) == Uplink("eth1", 0)
    (speed / "speed").write_text("10000\n")
    assert read_uplink(tmp_path, tmp_path, tmp_path) == Uplink("eth1", 10_000_000_000)
    (speed / "speed").write_text("-1\n")
    assert read_uplink(tmp_path, tmp_path, tmp_path) == Uplink("eth1", 0)
    other = tmp_path / "other"
    (other / "net").mkdir(parents=True)
    (other / "net/route").write_text(head)
    assert read_uplink(tmp_path, other, tmp_path) is None  # not on the host's network
    (tmp_path / "net/route").write_text(head)
    assert read_uplink(tmp_path, tmp_path, tmp_path) is None
