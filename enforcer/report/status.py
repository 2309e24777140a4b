"""The status of the agent and of every pod: values in force, the strategies that set them, and why. Pure.

The agent writes it as `status.json` in its state folder and serves it as /status; `cotenant node status` shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cotenant.enforcer.contract import CgroupPath, GroupReading, Observation, PodReading, Value, Verdict
from cotenant.enforcer.decide.changes import Done, Notes
from cotenant.enforcer.decide.loop import TickDecision
from cotenant.enforcer.decide.unsupported import Unsupported

FILE: Final = "status.json"
LAST_ACTIONS: Final = 50


class ValueInForce(msgspec.Struct, frozen=True):
    """A value that the agent enforces on a cgroup; `original` is restored at the end, None if not written yet."""

    cgroup: str
    knob: str
    value: Value
    strategy: str
    why: str
    original: Value | None = None


class VerdictStatus(msgspec.Struct, frozen=True):
    """A verdict in the agent's status document."""

    reason: str
    message: str
    warning: bool = False


class PodStatus(msgspec.Struct, frozen=True):
    """The status of one pod; its usage is None if not known."""

    namespace: str
    name: str
    uid: str
    qos: str
    priority: str
    kubernetes_qos: str
    cpu_millicores: float | None = None
    memory_bytes: int | None = None
    values: tuple[ValueInForce, ...] = ()
    verdicts: tuple[VerdictStatus, ...] = ()


class ActionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One action of the agent (done, due or failed), or one finding of a strategy; also a line of `actions.jsonl`."""

    time: str
    action: str
    """write, restore, evict or verdict."""
    subject: str
    """The cgroup or the pod."""
    outcome: str
    strategy: str = ""
    why: str = ""
    knob: str = ""
    before: Value | None = None
    value: Value | None = None
    pod: str = ""
    message: str = ""
    dry_run: bool = False
    node: str = ""
    """Name of the node, so that the lines of many nodes can be kept together."""


class NodeStatus(msgspec.Struct, frozen=True):
    """The whole response of /status: the agent's state, the values in force by pod, verdicts and last actions."""

    node: str
    updated: str
    dry_run: bool
    mode: str
    ready: str
    """Empty if the agent does its work, else why not."""
    policy_origin: str
    policy_age_seconds: float | None
    strategies: tuple[str, ...] = ()
    pods: tuple[PodStatus, ...] = ()
    others: tuple[ValueInForce, ...] = ()
    """Values on cgroups that belong to no pod: QoS tiers, host applications."""
    verdicts: tuple[VerdictStatus, ...] = ()
    """Verdicts on the node."""
    notes: tuple[str, ...] = ()
    """Problems with the inputs that the agent reads."""
    last_actions: tuple[ActionRecord, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    """Fields of the policy that have no effect on this node."""


def status(
    observation: Observation,
    what: TickDecision,
    originals: Notes,
    *,
    dry_run: bool = True,
    ready: str = "",
    policy_origin: str = "",
    **agent: Any,
) -> NodeStatus:
    """Return the status after a tick; `originals` are the journal's values, `agent` further fields of NodeStatus."""
    owners = {path: pod.spec.uid for pod in observation.pods for path in paths_of(pod)}
    of_pod: dict[str, list[ValueInForce]] = {}
    for want in what.wants:
        original = getattr(originals.get(want.place), "original", None)
        value = ValueInForce(want.path, want.knob.value, want.value, want.strategy, want.why, original)
        of_pod.setdefault(owners.get(want.path, ""), []).append(value)
    verdicts_by_subject: dict[str, list[VerdictStatus]] = {}
    for verdict in what.verdicts:
        verdict_status = VerdictStatus(verdict.reason, verdict.message, verdict.warning)
        verdicts_by_subject.setdefault(verdict.subject, []).append(verdict_status)
    keys = {pod.spec.key for pod in observation.pods}
    age = observation.policy_age_seconds
    return NodeStatus(
        node=observation.node.name,
        updated=stamp(observation.wall_seconds),
        dry_run=dry_run,
        mode=what.mode.value,
        ready=ready,
        policy_origin=policy_origin,
        policy_age_seconds=round(age, 1) if age < 1e9 else None,
        pods=tuple(
            _pod(pod, of_pod.get(pod.spec.uid, ()), verdicts_by_subject.get(pod.spec.key, ()))
            for pod in observation.pods
        ),
        others=tuple(of_pod.get("", ())),
        verdicts=tuple(s for subject, all_of in verdicts_by_subject.items() if subject not in keys for s in all_of),
        **agent,
    )


def paths_of(pod: PodReading) -> Iterable[CgroupPath]:
    """Return the paths of a pod's cgroup and of its containers' cgroups."""
    groups: Sequence[GroupReading | None] = (pod.group, *(container.group for container in pod.containers))
    return (group.path for group in groups if group is not None)


def action_of(done: Done, time: str, pod: str, dry_run: bool) -> ActionRecord:
    """Return a write and its outcome as a log record; `time` is RFC 3339, `pod` "namespace/name" or ""."""
    return ActionRecord(
        time=time,
        action="restore" if done.outcome.value == "restored" else "write",
        subject=done.path,
        outcome=done.outcome.value,
        strategy=done.strategy,
        why=done.why,
        knob=done.knob.value,
        before=done.before,
        value=done.value,
        pod=pod,
        message=done.message,
        dry_run=dry_run,
    )


def verdict_record(verdict: Verdict, time: str) -> ActionRecord:
    """Return a verdict as a record of the action log."""
    return ActionRecord(time, "verdict", verdict.subject, verdict.reason, message=verdict.message)


def stamp(unix_seconds: float) -> str:
    """Return a Unix time as an RFC 3339 timestamp in UTC with milliseconds."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pod(pod: PodReading, values: Iterable[ValueInForce], verdicts: Iterable[VerdictStatus]) -> PodStatus:
    spec, group = pod.spec, pod.group
    return PodStatus(
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid,
        qos=spec.qos_class.value,
        priority=spec.effective_priority.value,
        kubernetes_qos=spec.kube_qos.value,
        cpu_millicores=None if group is None or group.cpu.millicores is None else round(group.cpu.millicores, 1),
        memory_bytes=None if group is None or group.memory is None else group.memory.working_set,
        values=tuple(values),
        verdicts=tuple(verdicts),
    )
