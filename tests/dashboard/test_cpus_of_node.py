"""The panel of a node's CPUs: whose each is, by sign and words, for who may see it, and only when it is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_ownership import (
    HIDDEN,
    NodeTopology,
    core_groups,
    legend,
    owners,
    sign_of,
    visible_to,
)
from cotenant.base.allocation.cpu_topology import parse_cpus, regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, PodCpus
from cotenant.base.people import Grant, Person, Role
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.nodes import cpus_of_node
from cotenant.enforcer.commands.topology import cpu_drawing_lines
from tests.dashboard.test_states import text_of
from tests.support import dashboard as support
from tests.support.machines import CPUS, MACHINE, FixedTopologies

ADMIN = Person("ann", grants=(Grant(Role.ADMIN),))
OF_SHOP = Person("bob", grants=(Grant(Role.OWNER, ("shop",)),))


def view_of(service: FixedTopologies | None) -> View:
    context = DashboardContext(topologies=service, current_user=lambda: ADMIN)
    return View(None, support.QUICK, lambda: 0.0, context)  # type: ignore[arg-type]


def test_command_and_page_say_the_same_of_each_cpu() -> None:
    page = text_of(cpus_of_node.topology_drawing(MACHINE))
    lines = list(cpu_drawing_lines(MACHINE.cpus))
    for sign, whose, cpus in (
        ("a", "shop/web-0", "0,8"), ("b", "etl/join", "4-5,12-13"), ("%", "kubelet-reserved", "15"),
    ):  # fmt: skip
        assert f"{sign}  {whose}: {cpus}" in lines
        assert whose in page and cpus in page
    # the first socket has cores 0 to 3, and of core 0 both threads are web's
    assert lines[:2] == ["socket 0, NUMA node 0: 4 cores, 8 CPUs", "  core    0  aa .. .. .."]
    assert "socket 1, NUMA node 1: 4 cores, 8 CPUs" in page
    assert "etl/join 40 %" in page and "left out: shop/odd" in page


def test_no_pod_s_cpus_have_the_colour_of_danger_however_many_pods_there_are() -> None:
    machine = regular_topology(1, 12, 1)
    pods = tuple(PodCpus("shop", f"p{cpu}", str(cpu), frozenset({cpu})) for cpu in range(12))
    drawn = cpus_of_node.topology_drawing(NodeTopology("n", tuple(owners(NodeCpus(machine, pods=pods), {}, "n"))))
    classes = {str(getattr(part, "className", "")) for part in drawn._traverse()}
    assert {name for name in classes if "tone-" in name} and not any(
        "red" in name.split("tone-")[-1] for name in classes
    )


def test_a_person_sees_that_a_cpu_is_taken_and_not_by_whom_elsewhere() -> None:
    mine = visible_to(MACHINE, OF_SHOP)
    assert {cpu.pod for cpu in mine.cpus} == {"", "shop/web-0", HIDDEN}
    page = text_of(cpus_of_node.topology_drawing(mine))
    assert "etl" not in page and f"{HIDDEN} 40 %" in page and "shop/odd" in page
    assert visible_to(MACHINE, ADMIN) is MACHINE


def test_the_cluster_is_asked_by_the_button_alone_and_a_read_only_dashboard_says_the_command() -> None:
    service = FixedTopologies()
    assert "Show them" in text_of(cpus_of_node.panel(view_of(service), "n1"))
    assert service.questions == 0
    assert "cotenant node topology n1" in text_of(cpus_of_node.panel(view_of(None), "n1"))


@given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 2), st.lists(st.integers(0, 15), max_size=8, unique=True))
def test_every_cpu_is_in_one_legend_entry_and_drawn_once_with_its_sign(
    sockets: int, cores: int, threads: int, taken: list[int]
) -> None:
    topology = regular_topology(sockets, cores, threads)
    cpus = {p.id for p in topology.processors}
    pods = tuple(PodCpus("shop", f"p{cpu}", str(cpu), frozenset({cpu})) for cpu in taken if cpu in cpus)
    cpu_owners = list(owners(NodeCpus(topology, pods=pods), {}, "n"))
    entries = legend(cpu_owners)
    listed = [cpu for entry in entries for cpu in parse_cpus(entry.cpus)]
    assert sorted(listed) == sorted(cpus)
    cells = [owner for group in core_groups(cpu_owners) for core in group.cores for owner in core]
    assert sorted(owner.cpu for owner in cells) == sorted(cpus)
    by_sign = {entry.sign: parse_cpus(entry.cpus) for entry in entries}
    assert all(owner.cpu in by_sign[sign_of(owner, entries)] for owner in cells)


def test_behind_the_last_letter_pods_share_a_sign_and_are_told_by_name() -> None:
    pods = tuple(PodCpus("shop", f"p{n}", str(n), frozenset({n})) for n in range(60))
    entries = legend(list(owners(NodeCpus(regular_topology(1, 64), pods=pods), {}, "n")))
    # 52 letters, then one sign for the other eight
    assert [entry.sign for entry in entries if entry.pod][51:54] == ["Z", "*", "*"]
    assert len({entry.label for entry in entries}) == 61
    assert CPUS.pods[0].cpus == {0, 8}
