"""Managers that admit pods under quotas, an API server and a scheduler, for every order of their steps.

What a manager does is the real `QueueController`: it decides on mirrors that lag, sends its writes in any order, and
remembers what it has let go until a mirror shows it. It crashes with a write under way, answers are lost, pods come,
are bound, touched by others and end, quotas are lowered and nodes lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from cotenant.base.errors import ClusterAbsent, ClusterConflict, ClusterUnreachable
from cotenant.base.kubernetes.intent import Create, Outcome, Patch
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.base.kubernetes.quota_tree import OVER_SINCE_ANNOTATION, QuotaNode
from cotenant.scheduler_ext.queues.controller import DOUBTFUL_SECONDS, EVICTION_PAUSE_SECONDS, QueueController
from cotenant.scheduler_ext.queues.decide import QueueWrites
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.queue_objects import WatchedQueuePod
from cotenant.scheduler_ext.queues.quota_admission import quota_admission
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView
from cotenant.scheduler_ext.reservations.guard import Guard

DELAY = 300.0
SETTINGS = QueueSettings(revoke=True, delay_evict_seconds=DELAY)
BEGIN = 1_000.0
MIRRORS = ("ended-members", "pod-groups", "quota-profiles", "reservations")
"""Of which there are no objects here."""


class Pod(NamedTuple):
    """A pod of so many cores; version: its resourceVersion."""

    name: str
    quota: str
    cores: int
    priority: int = 0
    gated: bool = True
    bound: bool = False
    version: int = 1


class Limits(NamedTuple):
    """The quotas, each with min and max in cores, and the cores of the node."""

    quotas: tuple[tuple[str, int, int], ...]
    cores: int


class Memory(NamedTuple):
    """What a manager knows that no mirror shows; over_since: what quotas say of it. started: whether it has decided."""

    started: bool = False
    released: tuple[tuple[str, tuple[str, float]], ...] = ()
    evicted: tuple[tuple[str, float], ...] = ()
    refused: tuple[tuple[str, float], ...] = ()
    over_since: tuple[tuple[str, float], ...] = ()


NOTHING = Memory()


class Seen(NamedTuple):
    """What a round is decided on."""

    pods: tuple[Pod, ...]
    limits: Limits
    now_seconds: float
    memory: Memory


class Write(NamedTuple):
    """What a round wants of a pod: to let it go as it was seen, or to evict it."""

    pod: str
    version: int
    evicts: bool


class Answer(NamedTuple):
    """What became of a write, as its sender knows it: done, refused, or lost."""

    write: Write
    kind: str


@dataclass(frozen=True, slots=True)
class World:
    """One state. shown_pods, shown_limits: the mirrors; round_: what a manager sends now was decided on, with answers.

    loosest: the limits of the beginning; over_since: since when each quota uses more than its runtime, in truth; bad:
    what a round should not have decided; evicted: the pods whose evictions this manager knows to be done. coming: pods
    that are made some time; lowered: limits that come into force some time; and how often: crashes, losses of answers,
    touches of a pod by somebody else, ends of pods, delays that pass. Planted faults: forgets: a manager does not
    remember what it has let go and evicted; trusts: it takes a lost answer for a refusal; unfenced: writes of a dead
    manager arrive while its successor works.
    """

    pods: tuple[Pod, ...]
    limits: Limits
    loosest: Limits
    shown_pods: tuple[Pod, ...]
    shown_limits: Limits
    memory: Memory = NOTHING
    round_: Seen | None = None
    sending: tuple[Write, ...] = ()
    answers: tuple[Answer, ...] = ()
    now_seconds: float = BEGIN
    over_since: tuple[tuple[str, float], ...] = ()
    bad: str = ""
    evicted: tuple[str, ...] = ()
    coming: tuple[Pod, ...] = ()
    lowered: tuple[Limits, ...] = ()
    flying: tuple[Write, ...] = ()
    crashes: int = 0
    losses: int = 0
    touches: int = 0
    ends: int = 0
    delays: int = 0
    forgets: bool = False
    trusts: bool = False
    unfenced: bool = False
    steady: bool = False
    """Whether nobody asks for more, gives back or lowers anything, so that runtimes stay."""


# --- the manager ------------------------------------------------------------------------------------------------------
class _Shown:
    """A mirror that shows these objects."""

    def __init__(self, objects: Mapping[Any, Any], error: Exception | None = None) -> None:
        self._objects, self.error, self.refusals = objects, error, dict[Any, str]()

    def snapshot(self) -> Mapping[Any, Any]:
        return self._objects

    def wait_synced(self, _seconds: float) -> bool:
        return True


@lru_cache(maxsize=100_000)
def watched(pod: Pod, number: int) -> WatchedQueuePod:
    queue_pod = QueuePod(
        "shop",
        pod.name,
        f"uid-{pod.name}",
        str(pod.version),
        node="n1" if pod.bound else "",
        gates=(QUOTA_GATE,) if pod.gated else (),
        requests={"cpu": 1000 * pod.cores},
        priority=pod.priority,
        created_seconds=float(number),
    )
    return WatchedQueuePod(queue_pod, pod.quota, gated_for=pod.quota)


def quotas_of(limits: Limits) -> dict[str, QuotaNode]:
    return {
        name: QuotaNode(name, "shop", minimum={"cpu": 1000 * least}, maximum={"cpu": 1000 * most})
        for name, least, most in limits.quotas
    }


def controller(observed: Seen) -> QueueController:
    """The real controller with these mirrors and this memory."""
    published = {name: {OVER_SINCE_ANNOTATION: moment(since)} for name, since in observed.memory.over_since}
    quotas = {
        ("shop", name): replace(quota, published=published.get(name, {}))
        for name, quota in quotas_of(observed.limits).items()
    }
    node = QueueNode("n1", {"cpu": 1000 * observed.limits.cores, "pods": 100})
    served = Guard(version="1", queues_served_until_seconds=observed.now_seconds + SETTINGS.served_seconds)
    mirrors: dict[str, Any] = {name: _Shown({}) for name in MIRRORS}
    mirrors |= {
        "native-gangs": _Shown({}, ClusterAbsent("not served")),
        "queue-nodes": _Shown({("", "n1"): node}),
        "queue-pods": _Shown({("shop", pod.name): watched(pod, ORDER.index(pod.name)) for pod in observed.pods}),
        "quotas": _Shown(quotas),
        "swapguards": _Shown({("", "swaps"): served}),
    }
    queue_controller = QueueController(mirrors, SETTINGS)
    if observed.memory.started:
        queue_controller._last = QueueWrites(over_since=dict(observed.memory.over_since))
    queue_controller._released, queue_controller._evicted = (
        dict(observed.memory.released),
        dict(observed.memory.evicted),
    )
    queue_controller._evictions_refused = dict(observed.memory.refused)
    return queue_controller


ORDER = ("a1", "a2", "b1", "b2", "urgent")
"""The pods there may be, by age."""


@lru_cache(maxsize=200_000)
def decided(observed: Seen) -> tuple[Write, ...]:
    """What a round writes to pods; promises and figures of quotas change nothing here."""
    return tuple(write for write, _ in _intents(controller(observed), observed))


def _intents(queue_controller: QueueController, observed: Seen) -> list[tuple[Write, Any]]:
    versions = {pod.name: pod.version for pod in observed.pods}
    intents = queue_controller.decide({}, observed.now_seconds).intents
    return [
        (Write(intent.address.name, versions[intent.address.name], isinstance(intent, Create)), intent)
        for intent in intents
        if isinstance(intent, Patch | Create) and intent.address.resource == "pods"
    ]


@lru_cache(maxsize=200_000)
def remembered(observed: Seen, answers: tuple[Answer, ...]) -> Memory:
    """The manager's memory after a round and the answers to its writes."""
    queue_controller = controller(observed)
    by_write = dict(_intents(queue_controller, observed))
    errors = {"done": None, "refused": ClusterConflict("changed"), "lost": ClusterUnreachable("no answer")}
    queue_controller.sent([Outcome(by_write[outcome.write], error=errors[outcome.kind]) for outcome in answers])
    assert queue_controller._last is not None
    released = tuple(sorted(queue_controller._released.items()))
    timed = (queue_controller._evicted, queue_controller._evictions_refused, queue_controller._last.over_since)
    evicted, refused, over_since = (tuple(sorted(part.items())) for part in timed)
    return Memory(True, released, evicted, refused, over_since)


# --- what may happen --------------------------------------------------------------------------------------------------
def following(state: World) -> Iterator[tuple[str, World]]:
    """Every step that may come next."""
    for step_text, after in _steps(state):
        yield step_text, _with_truth(after)


def _steps(state: World) -> Iterator[tuple[str, World]]:
    yield from _manager_steps(state)
    for number, write in enumerate(state.flying):
        remaining = replace(state, flying=(*state.flying[:number], *state.flying[number + 1 :]))
        yield f"the dead manager {_told(write)}: it arrives", _applied(remaining, write)[0]
    for pod in state.pods:
        others = tuple(other for other in state.pods if other != pod)
        if (
            not pod.gated
            and not pod.bound
            and sum(o.cores for o in others if o.bound) + pod.cores <= state.limits.cores
        ):
            bound = pod._replace(bound=True, version=pod.version + 1)
            yield f"the scheduler binds {pod.name}", replace(state, pods=_ordered(*others, bound))
        if state.touches:
            touched = pod._replace(version=pod.version + 1)
            after = replace(state, pods=_ordered(*others, touched), touches=state.touches - 1)
            yield f"somebody annotates {pod.name}", after
        if state.ends and pod.bound:
            yield f"{pod.name} ends", replace(state, pods=others, ends=state.ends - 1)
    for number, pod in enumerate(state.coming):
        left_pods = (*state.coming[:number], *state.coming[number + 1 :])
        yield f"{pod.name} is created", replace(state, pods=_ordered(*state.pods, pod), coming=left_pods)
    if state.lowered:
        yield "the limits are lowered", replace(state, limits=state.lowered[0], lowered=state.lowered[1:])
    if is_quiet(state) and (in_doubt(state) or state.delays):
        passed = max(DOUBTFUL_SECONDS, EVICTION_PAUSE_SECONDS) if in_doubt(state) else DELAY + 1
        later = replace(state, now_seconds=state.now_seconds + passed)
        left_delays = state.delays if in_doubt(state) else state.delays - 1
        yield f"{passed:g} seconds pass", replace(later, delays=left_delays)


def _manager_steps(state: World) -> Iterator[tuple[str, World]]:
    if state.shown_pods != state.pods:
        yield "the mirror of pods catches up", replace(state, shown_pods=state.pods)
    if state.shown_limits != state.limits:
        yield "the mirrors of quotas and nodes catch up", replace(state, shown_limits=state.limits)
    if state.round_ is None:
        observed = _seen(state)
        writes = decided(observed)
        bad = _needless(state, writes)
        after = (
            replace(state, round_=observed, sending=writes, bad=bad)
            if writes
            else replace(state, memory=remembered(observed, ()))
        )
        if after != state:
            yield "the manager decides: " + (", ".join(map(_told, writes)) or "nothing"), after
    elif not state.sending:
        memory = remembered(state.round_, state.answers)
        next_memory = memory._replace(released=(), evicted=()) if state.forgets else memory
        yield "the round ends", replace(state, memory=next_memory, round_=None, answers=())
    for number, write in enumerate(state.sending):
        remaining = replace(state, sending=(*state.sending[:number], *state.sending[number + 1 :]))
        yield from _write_steps(remaining, write)
    if state.crashes:
        yield from _crashes(state)


def _write_steps(state: World, write: Write) -> Iterator[tuple[str, World]]:
    after, done = _applied(state, write)
    kind = "done" if done else "refused"
    evicted = tuple(sorted({*state.evicted, write.pod})) if done and write.evicts else state.evicted
    after_answer = replace(after, answers=(*state.answers, Answer(write, kind)), evicted=evicted)
    yield f"the manager {_told(write)}: {kind}", after_answer
    if state.losses:
        unknown = (*state.answers, Answer(write, "refused" if state.trusts else "lost"))
        lost: dict[str, Any] = {"answers": unknown, "losses": state.losses - 1}
        yield f"the manager {_told(write)}: {kind}, but the answer is lost", replace(after, **lost)
        yield f"the manager {_told(write)}: it is lost", replace(state, **lost)


def _crashes(state: World) -> Iterator[tuple[str, World]]:
    """Another manager begins with mirrors that it has just read; what was under way has arrived by then, or never."""
    fates = [(" with nothing under way", state)]
    for write in state.sending:
        fates.append((f" as it {_told(write)}, which arrives", _applied(state, write)[0]))
        if state.unfenced:
            fates.append((f" as it {_told(write)}, which arrives later", replace(state, flying=(write,))))
    for fate, after in fates:
        memory = Memory(over_since=state.memory.over_since)  # it stands in the quotas' annotations
        shown: dict[str, Any] = {"shown_pods": after.pods, "shown_limits": after.limits, "memory": memory}
        ended = replace(after, round_=None, sending=(), answers=(), evicted=(), crashes=state.crashes - 1, **shown)
        yield f"the manager crashes{fate}, and another one begins", ended


def _seen(state: World) -> Seen:
    return Seen(state.shown_pods, state.shown_limits, state.now_seconds, state.memory)


def _applied(state: World, write: Write) -> tuple[World, bool]:
    """The state after a write has reached the API server, and whether it was taken."""
    pod = next((pod for pod in state.pods if pod.name == write.pod), None)
    if pod is None or (not write.evicts and pod.version != write.version):
        return state, False
    others = tuple(other for other in state.pods if other != pod)
    if not write.evicts:
        return replace(state, pods=_ordered(*others, pod._replace(gated=False, version=pod.version + 1))), True
    return replace(state, pods=others), True


def _needless(state: World, writes: tuple[Write, ...]) -> str:
    """What is wrong with evictions, by what their manager can know: its mirrors, and the answers that it got."""
    evictions = [write for write in writes if write.evicts and write.pod not in state.evicted]  # gone twice is gone
    staying = tuple(pod for pod in state.shown_pods if pod.name not in state.evicted)
    names = over(staying, state.shown_limits) if evictions else ()
    for write in evictions:
        quota = next(pod.quota for pod in state.shown_pods if pod.name == write.pod)
        since = dict(state.over_since).get(quota, 0.0)
        if quota not in names:
            return f"{write.pod} is to be evicted, and its quota does not use more than its runtime any more"
        if state.now_seconds - since <= DELAY:
            return (
                f"{write.pod} is to be evicted, and its quota is over its runtime for {state.now_seconds - since:g} s"
            )
    return ""


def _told(write: Write) -> str:
    return f"{'evicts' if write.evicts else 'lets go'} {write.pod}"


def _ordered(*pods: Pod) -> tuple[Pod, ...]:
    return tuple(sorted(pods))


# --- what must never be -----------------------------------------------------------------------------------------------
@lru_cache(maxsize=200_000)
def over(pods: tuple[Pod, ...], limits: Limits) -> tuple[str, ...]:
    """Quotas that use more than their runtime in truth."""
    queue_pods = tuple(replace(watched(pod, ORDER.index(pod.name)).pod, quota=pod.quota) for pod in pods)
    node = QueueNode("n1", {"cpu": 1000 * limits.cores, "pods": 100})
    admission = quota_admission(QueueView(0.0, quotas_of(limits), pods=queue_pods, nodes=(node,)), SETTINGS)
    return tuple(name for name, use in admission.uses.items() if _used(pods, name) * 1000 > use.limit["cpu"])


def _used(pods: tuple[Pod, ...], quota: str) -> int:
    return sum(pod.cores for pod in pods if pod.quota == quota and not pod.gated)


def _with_truth(state: World) -> World:
    """The state that knows since when each quota uses more than its runtime."""
    since = dict(state.over_since)
    names = over(state.pods, state.limits)
    return replace(state, over_since=tuple((name, since.get(name, state.now_seconds)) for name in sorted(names)))


def is_quiet(state: World) -> bool:
    """Whether the manager has seen everything and does nothing more by itself."""
    shown = state.shown_pods == state.pods and state.shown_limits == state.limits
    if not shown or state.round_ is not None or state.flying:
        return False
    observed = _seen(state)
    return not decided(observed) and remembered(observed, ()) == state.memory


def in_doubt(state: World) -> bool:
    """Whether the manager does not know yet what became of a write, or pauses before it tries an eviction again."""
    return bool(state.memory.released or state.memory.evicted or state.memory.refused)


def wrong(state: World) -> str:
    """What must never be, in words."""
    if state.bad:
        return state.bad
    for name, _, most in state.loosest.quotas:
        if (used := _used(state.pods, name)) > most:
            return f"quota {name} uses {used} cores, at most {most} were ever allowed"
    if state.steady and state.over_since:
        return f"quota {state.over_since[0][0]} uses more than its runtime, and nothing has changed since it was let go"
    for name, since in state.over_since if is_quiet(state) and not in_doubt(state) else ():
        if state.now_seconds - since > DELAY:
            return f"quota {name} uses more than its runtime for {state.now_seconds - since:g} s"
    return ""


def is_served(state: World) -> bool:
    """Whether no pod waits that would fit: the next round on the truth lets nobody go."""
    if state.coming:
        return False
    observed = Seen(state.pods, state.limits, state.now_seconds, Memory())
    return not any(not write.evicts for write in decided(observed))


# --- how it begins ----------------------------------------------------------------------------------------------------
LENDING = Limits((("a", 2, 4), ("b", 2, 4)), cores=4)
"""Each quota is guaranteed half of a node of four cores, and may borrow the other half."""
STRICT = Limits((("a", 2, 2), ("b", 2, 2)), cores=4)
"""Each quota has its half and no more."""


def beginning(*pods: Pod, limits: Limits = LENDING, **more: Any) -> World:
    """A manager that has just begun, with mirrors of everything."""
    steady = not more.keys() & {"coming", "lowered", "ends"}
    return World(_ordered(*pods), limits, limits, _ordered(*pods), limits, steady=steady, **more)
