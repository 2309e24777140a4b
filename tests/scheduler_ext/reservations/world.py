"""An abstract cluster with the real product functions in it, small enough to walk through every interleaving.

One node, an API server with the guard as a policy that lags, a controller whose mirrors lag one by one and whose writes
go out in any order, schedulers that decide on what they knew some time ago, and crashes of each. A `World` is one
state, `following` gives every state that may come next. What the controller does is `decide`, as the manager runs it;
what it writes is applied as the API server would. The scheduler is as hostile as it may be: it ignores nominations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import msgspec
from jsonpatch import JsonPatch

from cotenant.base.kubernetes.intent import Apply, Create, Delete, Intent, Patch
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE, RESERVATION_GATE
from cotenant.scheduler_ext.reservations.decide import decide
from cotenant.scheduler_ext.reservations.guard import Guard, ReservationSwap
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

Objects = tuple[tuple[str, bytes], ...]
Json = dict[str, Any]
NODE, CORES = "n1", 4
BEGIN = 1_000_000
TIMEOUT = 20
SETTINGS = ReservationSettings(served_seconds=600.0)
GUARD, RESERVED = "swapguards/swaps", "reservations/r"
MIRRORS = ("pending", "reserved", "guard", "reservations")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What it last saw of the pods, and the binding that it has decided and not sent yet."""

    name: str
    cache: Objects
    flying: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """One state. budget: crashes of the controller, of a scheduler, time-outs, deletions of the owner still to come.

    hasty: a planted fault, of a controller that takes every hand-over for known to the API server at once.
    """

    objects: Objects
    policy: bytes
    mirrors: tuple[Objects, ...]
    schedulers: tuple[Scheduler, ...]
    budget: tuple[int, int, int, int]
    now: int = BEGIN
    noticed: tuple[tuple[str, int], ...] = ()
    queue: tuple[bytes, ...] = ()
    dirty: bool = True
    created: int = 0
    together: bool = False
    """Whether the mirrors lag together, where single ones would make too many states."""
    hasty: bool = False


def encode(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


@lru_cache(maxsize=100_000)
def decode(text: bytes) -> Json:
    document: Json = msgspec.json.decode(text)
    return document


@lru_cache(maxsize=100_000)
def pod_view(text: bytes) -> PodView:
    return PodView.parse(decode(text))


def pods(objects: Objects) -> list[PodView]:
    return [pod_view(text) for key, text in objects if key.startswith("pods/")]


def cores(pod: PodView) -> int:
    return pod.requests.get("cpu", 0) // 1000


def booked(objects: Objects) -> int:
    """Cores of the pods that are bound to the node."""
    return sum(cores(pod) for pod in pods(objects) if pod.node)


# --- the API server ---------------------------------------------------------------------------------------------------
def put(state: World, key: str, item: Json | None) -> World:
    """The state with an object changed, made or gone; a changed object has a new version."""
    others = tuple(pair for pair in state.objects if pair[0] != key)
    if item is None:
        return replace(state, objects=others)
    old = dict(state.objects).get(key)
    version = int(decode(old)["metadata"]["resourceVersion"]) if old else 0
    if old and encode({**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}) == old:
        return state
    version += 1
    item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
    return replace(state, objects=tuple(sorted((*others, (key, encode(item))))))


def written(state: World, intent: Intent) -> World:
    """The state after a write; the same when the server refuses it."""
    key = _key(intent)
    live = dict(state.objects).get(key)
    item = decode(live) if live else None
    if isinstance(intent, Create):
        if item is not None:
            return state
        body = msgspec.json.decode(encode(dict(intent.body)))
        body["metadata"] |= {"uid": f"uid-{state.created}", "creationTimestamp": _stamp(BEGIN)}
        body["spec"]["priority"] = 999_999_999
        return put(replace(state, created=state.created + 1), key, body)
    if isinstance(intent, Delete):
        if item is None or (intent.uid and item["metadata"]["uid"] != intent.uid):
            return state
        return put(state, key, None)
    if isinstance(intent, Patch):
        return state if item is None else _patched(state, key, item, intent)
    return _applied(state, key, item, intent)


def _patched(state: World, key: str, item: Json, intent: Patch) -> World:
    new = JsonPatch(list(intent.operations)).apply(item)
    same = all(new["metadata"][name] == item["metadata"][name] for name in ("resourceVersion", "uid"))
    if not same or (item["spec"].get("nodeName") and new["spec"] != item["spec"]):
        return state
    return put(state, key, new)


def _applied(state: World, key: str, item: Json | None, intent: Apply) -> World:
    body: Json = msgspec.json.decode(encode(dict(intent.body)))
    version = body["metadata"].pop("resourceVersion", None)
    if version is not None and item is not None and item["metadata"]["resourceVersion"] != version:
        return state
    if item is None:
        return put(state, key, body) if not intent.subresource else state
    return put(state, key, {**item, **{name: part for name, part in body.items() if name in ("spec", "status")}})


def _key(intent: Intent) -> str:
    a = intent.address
    return f"{a.resource}/{a.name}" if a.resource != "pods" else f"pods/{a.namespace}/{a.name}"


def _stamp(seconds: int) -> str:
    return msgspec.json.decode(msgspec.json.encode(f"1970-01-12T13:46:{seconds - BEGIN + 40:02d}Z"))


# --- the controller ---------------------------------------------------------------------------------------------------
def of_mirror(name: str, objects: Objects) -> Objects:
    """What a mirror would show of the objects."""
    if name == "guard":
        return tuple(pair for pair in objects if pair[0] == GUARD)
    if name == "reservations":
        return tuple(pair for pair in objects if pair[0] == RESERVED)
    pod_pairs = [(key, text) for key, text in objects if key.startswith("pods/")]
    if name == "pending":
        return tuple((key, text) for key, text in pod_pairs if not pod_view(text).node)
    return tuple(
        (k, t) for k, t in pod_pairs if "cotenant.dev/reservation" in (decode(t)["metadata"].get("labels") or {})
    )


@cache
def decided(
    mirrors: tuple[Objects, ...], now: int, noticed: tuple[tuple[str, int], ...], sure: tuple[frozenset[str], ...]
) -> tuple[Intent, ...]:
    pending, reserved, guard, reservations = mirrors
    view = ReservationView(
        reservations={key.removeprefix("reservations/"): Reservation.parse(decode(text)) for key, text in reservations},
        guard=Guard.parse(decode(guard[0][1])) if guard else Guard(),
        pending=tuple(pods(pending)),
        reserved=tuple(pods(reserved)),
        nodes=frozenset({NODE}),
        settled=sure[0],
        noticed=dict(noticed),
        lingered=sure[1],
        now_seconds=float(now),
    )
    return decide(view, SETTINGS).intents


_INTENTS: dict[bytes, Intent] = {}


def frozen(intent: Intent) -> bytes:
    """An intent as a value that states can hold."""
    key = msgspec.json.encode([type(intent).__name__, intent], enc_hook=str, order="deterministic")
    _INTENTS[key] = intent
    return key


def controlled(state: World) -> World:
    """The controller decides on its mirrors; its writes wait in its queue."""
    guard = Guard.parse(decode(state.mirrors[2][0][1])) if state.mirrors[2] else Guard()
    first_noticed = dict(state.noticed)
    noticed = tuple(sorted((swap.id, first_noticed.get(swap.id, state.now)) for swap in guard.swaps))
    in_force = {swap.id for swap in Guard.parse(decode(state.policy)).swaps} if state.policy else set()
    settled = frozenset(swap.id for swap in guard.swaps if state.hasty or swap.id in in_force)
    lingered = frozenset(swap.id for swap in guard.swaps if swap.owner and _everybody_knows(state, swap))
    intents = decided(state.mirrors, state.now, noticed, (settled, lingered))
    return replace(state, noticed=noticed, queue=tuple(map(frozen, intents)), dirty=False)


def _everybody_knows(state: World, swap: ReservationSwap) -> bool:
    """Whether each scheduler knows of what the controller saw bound, and has no older decision under way."""
    names = {swap.owner.name if swap.owner else "", swap.rest.name if swap.rest else ""}
    bound = {p.uid for p in pods(state.mirrors[1]) if p.node and p.identity.name in names}
    know = all(bound <= {p.uid for p in pods(s.cache) if p.node} for s in state.schedulers)
    return know and not any(s.flying for s in state.schedulers)


# --- what may happen --------------------------------------------------------------------------------------------------
def following(state: World) -> Iterator[tuple[str, World]]:
    """Every step that may come next, by name."""
    yield from _controller_steps(state)
    for number, scheduler in enumerate(state.schedulers):
        for name, new, after in _scheduler_steps(state, scheduler):
            both = (*state.schedulers[:number], new, *state.schedulers[number + 1 :])
            yield f"{scheduler.name} {name}", replace(after, schedulers=both)
    guard = dict(state.objects).get(GUARD, b"")
    if state.policy != guard:
        yield "the policy of the API server learns the hand-overs", replace(state, policy=guard)
    yield from _disasters(state)


def _controller_steps(state: World) -> Iterator[tuple[str, World]]:
    all_ = tuple(of_mirror(name, state.objects) for name in MIRRORS)
    if state.together and all_ != state.mirrors:
        yield "the mirrors catch up", replace(state, mirrors=all_, dirty=True)
    for number, (name, fresh) in enumerate(zip(MIRRORS, all_, strict=True)):
        if not state.together and fresh != state.mirrors[number]:
            mirrors = (*state.mirrors[:number], fresh, *state.mirrors[number + 1 :])
            yield f"the mirror of {name} catches up", replace(state, mirrors=mirrors, dirty=True)
    if state.queue:
        for number, item in enumerate(state.queue):
            remaining, intent = (*state.queue[:number], *state.queue[number + 1 :]), _INTENTS[item]
            what = f"the controller's {type(intent).__name__.lower()} of {_key(intent)} arrives"
            yield what, written(replace(state, queue=remaining), intent)
    elif state.dirty or _time_matters(state):
        after = controlled(state)
        if after != state:
            yield "the controller decides", after


def _time_matters(state: World) -> bool:
    """The controller is woken by time: the guard has settled, or everybody knows."""
    return bool(state.mirrors[2])


def _scheduler_steps(state: World, me: Scheduler) -> Iterator[tuple[str, Scheduler, World]]:
    fresh = tuple(pair for pair in state.objects if pair[0].startswith("pods/"))
    if fresh != me.cache:
        yield "learns what is bound", replace(me, cache=fresh), state
    if me.flying:
        after = _bound(state, me.flying)
        own = dict(me.cache) | ({me.flying: dict(after.objects)[me.flying]} if after is not state else {})
        yield f"binds {me.flying}", replace(me, flying="", cache=tuple(sorted(own.items()))), after
        return
    room = CORES - booked(me.cache)
    for key, text in me.cache:
        pod = pod_view(text)
        mine = decode(text)["spec"].get("schedulerName", "default-scheduler") == me.name
        if mine and not pod.node and not pod.gates and cores(pod) <= room:
            yield f"decides to bind {key}", replace(me, flying=key), state


def _bound(state: World, key: str) -> World:
    """A binding at the API server: refused by the guard, or for a pod that is bound or gone."""
    text = dict(state.objects).get(key)
    if text is None or pod_view(text).node:
        return state
    nodes = Guard.parse(decode(state.policy)).nodes if state.policy else {}
    if NODE in nodes and key.removeprefix("pods/") not in nodes[NODE]:
        return state
    item = decode(text)
    return put(state, key, {**item, "spec": {**item["spec"], "nodeName": NODE}})


def _disasters(state: World) -> Iterator[tuple[str, World]]:
    crashes, restarts, timeouts, deletions = state.budget
    if crashes:
        mirrors = tuple(of_mirror(name, state.objects) for name in MIRRORS)
        reborn = replace(state, mirrors=mirrors, noticed=(), queue=(), dirty=True)
        yield "the controller crashes", replace(reborn, budget=(crashes - 1, restarts, timeouts, deletions))
    if restarts:
        fresh = tuple(pair for pair in state.objects if pair[0].startswith("pods/"))
        others = tuple(replace(s, cache=fresh, flying="") for s in state.schedulers)
        yield (
            "the schedulers crash",
            replace(state, schedulers=others, budget=(crashes, restarts - 1, timeouts, deletions)),
        )
    if timeouts:
        late = replace(state, now=state.now + TIMEOUT, dirty=True)
        yield f"{TIMEOUT} seconds pass", replace(late, budget=(crashes, restarts, timeouts - 1, deletions))
    owner = "pods/shop/owner"
    text = dict(state.objects).get(owner)
    if deletions and text and not pod_view(text).node:
        yield (
            "the owner is deleted",
            put(replace(state, budget=(crashes, restarts, timeouts, deletions - 1)), owner, None),
        )


# --- how it begins ----------------------------------------------------------------------------------------------------
def pod(
    name: str, size: int, *, gated: bool = False, scheduler: str = "default-scheduler", unschedulable: bool = False
) -> Json:
    gates = {"schedulingGates": [{"name": RESERVATION_GATE}]} if gated else {}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}, "resourceVersion": "1"},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "x", "resources": {"requests": {"cpu": str(size)}}}],
            **gates,
        },
        "status": {"conditions": [refused] if unschedulable else []},
    }


def beginning(
    *,
    owner: Json,
    strangers: tuple[Json, ...],
    budget: tuple[int, int, int, int],
    allocate_once: bool = True,
    policy: str = "Aligned",
    schedulers: tuple[str, ...] = ("default-scheduler",),
    together: bool = False,
    hasty: bool = False,
) -> World:
    """A Reservation of three cores that is Available on the node of four, its owner and strangers waiting."""
    template = {"spec": {"containers": [{"name": "x", "resources": {"requests": {"cpu": "3"}}}]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    reservation = {
        "metadata": {"name": "r", "uid": "r-uid", "resourceVersion": "1", "creationTimestamp": _stamp(BEGIN)},
        "spec": {
            "template": template,
            "owners": owners,
            "allocateOnce": allocate_once,
            "ttl": "0",
            "allocatePolicy": policy,
        },
    }
    everything = {RESERVED: reservation, "pods/shop/owner": owner}
    everything |= {f"pods/shop/{stranger['metadata']['name']}": stranger for stranger in strangers}
    state = World((), b"", ((), (), (), ()), (), budget, together=together, hasty=hasty)
    state = _until_available(put(state, RESERVED, reservation))
    for key, item in everything.items():
        if key != RESERVED:
            state = put(state, key, item)
    fresh = tuple(pair for pair in state.objects if pair[0].startswith("pods/"))
    mirrors = tuple(of_mirror(name, state.objects) for name in MIRRORS)
    guard_bytes = dict(state.objects).get(GUARD, b"")
    ready = replace(state, mirrors=mirrors, schedulers=tuple(Scheduler(name, fresh) for name in schedulers))
    return replace(ready, policy=guard_bytes, dirty=True, noticed=(), queue=())


def _until_available(state: World) -> World:
    """Alone on the node, the controller and a scheduler make the Reservation Available."""
    for _ in range(12):
        mirrors = tuple(of_mirror(name, state.objects) for name in MIRRORS)
        state = controlled(replace(state, mirrors=mirrors))
        for item in state.queue:
            state = written(state, _INTENTS[item])
        for key, text in state.objects:
            if key.startswith(f"pods/{PLACEHOLDER_NAMESPACE}/") and not pod_view(text).node:
                state = _bound(state, key)
    return replace(state, queue=())
