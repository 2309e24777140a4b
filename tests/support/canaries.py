"""Live services whose other namespaces carry amounts that are nowhere else: whoever reads one namespace sees none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cotenant.base.allocation.cpu_ownership import CpuOwner, CpuState, DeviceOwnership, NodeTopology, visible_to
from cotenant.base.people import Person
from cotenant.base.table import Table
from cotenant.scheduler_ext.queues.model.queue_service import HISTORY_STEP_SECONDS, QuotaHistory
from cotenant.scheduler_ext.queues.model.report import GangRow, GangState, QueueReport, QuotaRow, WaitingPodRow
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, MOVES, NODES, RebalanceReport
from tests.cluster.api import Api, Json
from tests.cluster.crds import install_crd
from tests.support.moves import FixedMoves, job
from tests.support.queues import NOW, FixedQueues

AMOUNT: Final = 791_977_907
"""In millicores, bytes and pieces; nothing else has these digits."""
MARKS: Final = (b"791977907", b"791,977,907", b"791977.9", b"791,977.9", b"791978", b"791,978")
"""How answers would write it: raw, in cores, rounded."""


def queues(own: str, others: Sequence[str]) -> FixedQueues:
    """A quota of the own namespace below one of all, one of each other; pods and gangs that name each other."""
    top, mine = f"top-{others[0]}", f"q-{own}"
    quotas = [_quota(top, "koordinator-root-quota", AMOUNT, (own, *others)), _quota(mine, top, 4_000, (own,))]
    quotas += [_quota(f"q-{other}", top, AMOUNT, (other,)) for other in others]
    sentence = f"quota {top} uses {AMOUNT}m of cpu; {others[0]}/batch requests {AMOUNT}m"
    waiting = [
        WaitingPodRow(own, "mine-0", mine, "", NOW, 1, "parent-quota-exceeded", sentence, top, "cpu", 2_000, AMOUNT,
                      ((f"q-{others[0]}", AMOUNT),), NOW + 9, f"by 12 pods of q-{others[0]}"),
        WaitingPodRow(own, "mine-1", f"q-{others[0]}", "", NOW, 1, "quota-exceeded", sentence, f"q-{others[0]}", "cpu",
                      2_000, AMOUNT),
    ]  # fmt: skip
    waiting += [WaitingPodRow(o, "p", f"q-{o}", "", NOW, 1, "quota-exceeded", sentence, f"q-{o}", "cpu", AMOUNT, AMOUNT)
                for o in others]  # fmt: skip
    gangs = [GangRow(name, "train", f"q-{name}", GangState.QUEUED, 2, 0, 2, 2, NOW, f"behind {others[0]}/train")
             for name in (own, *others)]  # fmt: skip
    problems = [(f"elasticquotas/{o}/q-{o}", f"min {AMOUNT}") for o in others]
    problems += [(f"elasticquotas/{mine}", f"ancestor quota {top} is invalid: min is {AMOUNT}")]
    past = QuotaHistory("", "cpu", int(NOW) - HISTORY_STEP_SECONDS, series={"used": (5.0, 6.0)})
    return FixedQueues(QueueReport(NOW, tuple(quotas), tuple(waiting), tuple(gangs), tuple(problems)), past)


def write_plans_and_policies(api: Api, own: str, others: Sequence[str]) -> None:
    """A reservation plan `mine` and an autopilot policy `mine` of the own namespace; the like of each other."""
    for kind in ("reservationplans", "autopilotpolicies"):
        install_crd(api, f"{kind}.cotenant.dev")
    for namespace in (own, *others):
        name, cpu = ("mine", "2") if namespace == own else (f"of-{namespace}", f"{AMOUNT}m")
        root = f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}"
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        plan = {
            "source": "Manual",
            "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"web-{namespace}"},
            "amount": {"perPod": {"cpu": cpu, "memory": "1Gi"}, "count": 4},
            "window": {"start": "2027-03-01T18:00:00.000000Z", "end": "2027-03-01T20:00:00.000000Z"},
        }
        _write(api, f"{root}/reservationplans", "ReservationPlan", name, plan)
        policy = {"mode": "Observe", "selector": {"matchLabels": {"team": f"of-{namespace}"}}, "atOnce": 3}
        _write(api, f"{root}/autopilotpolicies", "AutopilotPolicy", name, policy)


def _write(api: Api, path: str, kind: str, name: str, spec: Json) -> None:
    head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    api.create(path, {**head, "spec": spec})


def _quota(name: str, parent: str, amount: int, namespaces: tuple[str, ...]) -> QuotaRow:
    figures: dict[str, Any] = dict.fromkeys(
        ("minimum", "maximum", "weight", "runtime", "request", "used", "borrowed", "lent"), amount
    )
    return QuotaRow(tree="", quota=name, parent=parent, depth=1, resource="cpu", namespaces=namespaces, **figures)


def moves(own: str, others: Sequence[str]) -> FixedMoves:
    """A move, a job and a note of each namespace."""
    rows: list[dict[str, Any]] = [
        {"decision": "move", "pod": f"{name}/web-1", "source": "a", "target": "b", "reason": "overload now"}
        | {"cpu": amount, "memory": amount, "gain": 1.0, "cost": 1.0}
        for name, amount in [(own, 7), *((other, AMOUNT) for other in others)]
    ]
    notes = tuple(f"the last move of {row['pod']} failed: it needs {row['cpu']}m" for row in rows)
    report = RebalanceReport(NOW, Table.from_rows(NODES, []), Table.from_rows(MOVES, rows), notes, notes,
                             emptying=Table.from_rows(EMPTYING, []))  # fmt: skip
    amounts = {own: 7, **dict.fromkeys(others, AMOUNT)}
    jobs = [
        job(f"job-{number}", f"{name}/web-1", "Failed", message=f"{name}/web-1 needs {amount}m")
        for number, (name, amount) in enumerate(amounts.items())
    ]
    return FixedMoves(report, jobs)


class FixedMachine:
    """The same machine for every node: CPUs and shares of a GPU of pods of all namespaces."""

    def __init__(self, own: str, others: Sequence[str]) -> None:
        pods = tuple((f"{name}/train-0", 3) for name in (own, *others))
        cpus = tuple(CpuOwner(n, CpuState.POD, pod=pod) for n, (pod, _) in enumerate(pods))
        notes = tuple((pod, f"{pod} asks for {AMOUNT}") for pod, _ in pods[1:])
        self._machine = NodeTopology("n", cpus, (DeviceOwnership("gpu 0", "GPU-a", "", "", pods),), notes)

    def topology(self, who: Person, node: str) -> NodeTopology:  # noqa: ARG002 - the service's signature
        return visible_to(self._machine, who)
