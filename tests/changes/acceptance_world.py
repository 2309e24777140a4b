"""People, a watcher, a ledger and an API server, for every order of their steps: what accepting must never get wrong.

Each act is the real service or watcher, one question at a time: to the API server, to the ledger, and for the ledger's
turn. Between any two questions its process may be killed, with a write that still arrives later or never; an answer may
be lost; somebody else may write the workload; and with a ledger in a bucket the turn of a process that has paused is
taken over, and it goes on all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.difference import value_at_pointer
from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kubernetes.intent import Address, Create, Patch
from cotenant.base.ledger.chain import LedgerRow, verify_chain
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, IdentitySource, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.changes.accept import Actions
from cotenant.changes.audited_acts import AuditedActs, ClusterAccess
from cotenant.changes.decide.field_changes import fitted_to, same_at
from cotenant.changes.ledger_cache import LedgerCache
from cotenant.changes.model.change import ChangeState, ChangeStatus, Write
from cotenant.changes.model.service import ChangeRequest, Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
from cotenant.changes.soak.reconcile import QUIET_SECONDS
from cotenant.changes.soak.watcher import Watcher
from tests.changes.asked_ledger import (
    KEY,
    Append,
    AskedBucketLedger,
    AskedLedger,
    GiveTurn,
    IsCurrent,
    Pause,
    ReadLedger,
    TakeTurn,
)
from tests.changes.world import recommended
from tests.support.pure_api import NOON, Json, Objects, PureApi, decoded, key_of, request_text
from tests.support.replayed import AskingClient, Conversation, Ended, Lost, Run, patched_here

WEB = WorkloadRef("shop", "Deployment", "web")
CHANGING = ("deployments", "pods")
"""What is there; of all else the cluster has nothing."""
ADDRESS = Address("apps/v1", "deployments", "web", "shop")
SETTINGS = ActionSettings(soak_minutes=10.0, auto_rollback=True, resize_seconds=0.0)
LATER = NOON.seconds + 3600
"""After the soak time."""


class AskedActs(AuditedActs):
    """Acts whose ledger is asked in a conversation."""

    def __init__(self, access: ClusterAccess, open_ledger: Callable[[], Ledger]) -> None:
        super().__init__(access, Path("ledger"))
        self._asked = open_ledger

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        yield self._asked()


class AskedService(ClusterChangeService):
    """The real service, whose ledger and cluster are asked in a conversation."""

    def __init__(self, conversation: Conversation, act: Act) -> None:
        @contextmanager
        def door(_: Person) -> Iterator[AskingClient]:
            yield AskingClient.of(conversation)

        config = ChangeServiceConfig(
            access=door,
            ledger=Path("ledger"),
            settings=SETTINGS,
            clock=FixedClock(act.now_seconds),
            recommended=lambda workloads: [recommended(workload, act.millicores) for workload in workloads],
            requested_millicores=lambda: 0,
        )
        super().__init__(config)
        self._conversation = conversation
        self._ledger = AskedBucketLedger if act.in_bucket else AskedLedger
        self._acts = AskedActs(door, lambda: self._ledger(conversation))

    @contextmanager
    def _writable_actions(self, who: Person, what: str) -> Iterator[Actions]:  # noqa: ARG002 - as the service has it
        with self._client(who) as client:
            self._conversation.ask(TakeTurn())
            try:
                yield self._actions(client, self._ledger(self._conversation), who)
            finally:
                self._conversation.ask(GiveTurn())

    def watch(self) -> list[ChangeStatus]:
        """One look of the watcher."""
        return Watcher(lambda: self._writable_actions(Person("watcher"), ""), lambda _news: None).step()


def person(name: str) -> Person:
    return Person(name, way=IdentitySource.OIDC, grants=(Grant(Role.ADMIN),))


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody does once. verb: accept, confirm, decline, roll back, watch; key: of the accepted request."""

    who: str
    verb: str
    key: str = ""
    millicores: int = 0
    now_seconds: float = NOON.seconds
    number: int = 0
    """Of an act that is done twice."""
    method: Method = Method.TEMPLATE
    in_bucket: bool = False
    """Whether the ledger is there, where a turn ends when its process pauses."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.who, self.verb, self.key, "again" if self.number else "")))

    def __call__(self, conversation: Conversation) -> str:
        numbers = count()
        pause = patched_here("time.sleep", lambda seconds: conversation.ask(Pause(seconds)))
        random = patched_here("secrets.token_hex", lambda _=0: f"{self.who}-{self.key}{self.number}-{next(numbers)}")
        with pause, random:
            service = AskedService(conversation, self)
            done = self._do(service, person(self.who))
            return ", ".join(f"{status.change.id} is {status.state}" for status in done)

    def _do(self, service: AskedService, who: Person) -> Sequence[ChangeStatus]:
        if self.verb == "watches":
            return service.watch()
        if self.verb == "accepts":
            return service.accept(who, _request(self))
        ids = [status.change.id for status in service.changes(who) if status.change.batch == self.key]
        if self.verb == "rolls back":
            return service.roll_back(who, ids)
        return [done for id_ in ids[:1] for done in getattr(service, self.verb.removesuffix("s"))(who, id_)]


def _request(act: Act) -> ChangeRequest:
    overridden = ("cool-down", "webhook", "dead-band")
    return ChangeRequest((WEB,), act.method, overridden=overridden, because="asked", key=act.key)


@dataclass(frozen=True, slots=True)
class World:
    """One state. holder: who has the ledger's turn; flying: writes of killed processes that may still arrive.

    writers: the change ("ID", "ID-undone") or person that wrote each object last; bad: what a write should not have
    done; kills, losses, others (writes of somebody else), takeovers still to come. Planted faults: unwritten: rows of
    acceptance are dropped; blind: writes arrive without their tests of what stood there before; unchecked: who has
    lost its turn is told that it has it.
    """

    objects: Objects
    rows: tuple[LedgerRow, ...] = ()
    runs: tuple[Run, ...] = ()
    holder: str = ""
    flying: tuple[ApiRequest, ...] = ()
    writers: tuple[tuple[str, str], ...] = ()
    bad: str = ""
    kills: int = 0
    losses: int = 0
    others: int = 0
    takeovers: int = 0
    blind: bool = False
    unwritten: bool = False
    unchecked: bool = False


@cache
def server() -> PureApi:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    return PureApi((), [Create(Address("v1", "namespaces", "shop"), namespace)])


_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
_POD = {
    "name": "web-1-x",
    "namespace": "shop",
    "labels": {"app": "web", "pod-template-hash": "1"},
    "ownerReferences": [_OWNER],
}


def beginning(*acts: Act, qos: str = "", **more: Any) -> World:
    """A Deployment of one core, one pod of it, and acts that begin some time."""
    labels = {"app": "web", **({"koordinator.sh/qosClass": qos} if qos else {})}
    container = {"name": "app", "image": "a", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    objects = server().after((), Create(ADDRESS, body))
    # Its controller is always up to date: that a roll-out goes on stops a change, which is not what is looked at here.
    status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 99}
    objects = server().after(objects, Patch(ADDRESS, ({"op": "add", "path": "/status", "value": status},), "status"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": _POD, "spec": {"nodeName": "n1", "containers": [container]}}
    objects = server().after(objects, Create(Address("v1", "pods", "web-1-x", "shop"), pod))
    objects = server().after(
        objects,
        Patch(
            Address("v1", "pods", "web-1-x", "shop"),
            ({"op": "add", "path": "/status", "value": {"phase": "Running"}},),
            "status",
        ),
    )
    placed = (replace(act, in_bucket=bool(more.get("takeovers"))) for act in acts)
    return World(objects, runs=tuple(Run(str(act), act) for act in placed), **more)


# --- what may happen --------------------------------------------------------------------------------------------------
def following(state: World) -> Iterator[tuple[str, World]]:
    """Every step that may come next."""
    for number, run in enumerate(state.runs):
        others = (*state.runs[:number], *state.runs[number + 1 :])
        yield from _run_steps(state, run, others)
    for number, request in enumerate(state.flying):
        still_flying = (*state.flying[:number], *state.flying[number + 1 :])
        yield (
            f"{request_text(request)} of the dead: it arrives",
            _served(replace(state, flying=still_flying), request)[0],
        )
        yield f"{request_text(request)} of the dead: it is lost", replace(state, flying=still_flying)
    if state.others:
        path = "/spec/template/spec/containers/0/resources/requests/cpu"
        objects = server().after(state.objects, Patch(ADDRESS, ({"op": "add", "path": path, "value": "3"},)))
        writers = _with_writer(state, ADDRESS.path, "kubectl")
        yield "kubectl sets 3 cores", replace(state, objects=objects, writers=writers, others=state.others - 1)


def _run_steps(state: World, run: Run, others: tuple[Run, ...]) -> Iterator[tuple[str, World]]:
    question = run.question
    if state.kills and run.answers:
        dead = replace(state, runs=others, kills=state.kills - 1, holder="" if _has_turn(state, run) else state.holder)
        yield f"the process of {run.name} is killed", dead
        if _is_write(question):
            label = f"the process of {run.name} is killed as it {request_text(question)}"
            yield label, replace(dead, flying=(*state.flying, question))
    if isinstance(question, ApiRequest):
        yield from _request_steps(state, run, others, question)
    elif isinstance(question, TakeTurn | GiveTurn):
        yield from _turn_steps(state, run, others, question)
    elif isinstance(question, Pause):
        sending = state.flying or any(_is_write(other.question) for other in others)
        if question.seconds < QUIET_SECONDS or not sending:
            yield f"{run.name}: waits for {question.seconds:g} s", _went(state, run, others, "waited")
    else:
        yield from _ledger_steps(state, run, others, question)


def _turn_steps(
    state: World, run: Run, others: tuple[Run, ...], question: TakeTurn | GiveTurn
) -> Iterator[tuple[str, World]]:
    if isinstance(question, GiveTurn):
        holder = "" if _has_turn(state, run) else state.holder
        label = f"{run.name}: has ended its turn{run.answered('given').ending}"
        yield label, _went(state, run, others, "given", holder=holder)
    elif not state.holder:
        yield f"{run.name}: has the ledger's turn", _went(state, run, others, "taken", holder=run.name)
    elif state.takeovers:
        label = f"{run.name}: takes the turn of {state.holder}, which has paused for too long"
        yield label, _went(state, run, others, "taken", holder=run.name, takeovers=state.takeovers - 1)


def _request_steps(state: World, run: Run, others: tuple[Run, ...], request: ApiRequest) -> Iterator[tuple[str, World]]:
    if state.flying and _act(run).now_seconds > NOON.seconds and not _act(run).in_bucket:
        return  # what flies has arrived long ago
    after, response = _served(state, request)
    label = f"{run.name}: {request_text(request)}: {response[0]}"
    yield label, _went(after, run, others, response)
    if state.losses and _is_write(request):
        yield f"{label}, but the answer is lost", _went(after, run, others, Lost(), losses=state.losses - 1)


def _ledger_steps(state: World, run: Run, others: tuple[Run, ...], question: object) -> Iterator[tuple[str, World]]:
    if isinstance(question, ReadLedger):
        yield f"{run.name}: reads the ledger", _went(state, run, others, state.rows)
    elif isinstance(question, IsCurrent):
        current = state.unchecked or question.rows_seen == len(state.rows)
        label = f"{run.name}: asks the ledger whether it may still write: {'yes' if current else 'no'}"
        yield label, _went(state, run, others, current)
    elif isinstance(question, Append):
        yield from _append_steps(state, run, others, question)


def _append_steps(state: World, run: Run, others: tuple[Run, ...], append: Append) -> Iterator[tuple[str, World]]:
    what = f"{run.name}: writes {', '.join(row.event for row in append.rows)} to the ledger"
    if append.rows_seen != len(state.rows):
        yield f"{what}: refused, somebody else has written", _went(state, run, others, "refused")
        return
    stored_rows = () if state.unwritten and append.rows[0].event == "accepted" else append.rows
    rows = (*state.rows, *stored_rows)
    yield what, _went(state, run, others, "stored", rows=rows)
    if state.losses and state.takeovers:  # of a bucket; a file answers
        yield f"{what}, but the answer is lost", _went(state, run, others, Lost(), rows=rows, losses=state.losses - 1)


def _is_write(question: object) -> TypeGuard[ApiRequest]:
    """Whether it is sent at this moment: it arrives before anybody has waited for it."""
    return isinstance(question, ApiRequest) and question.method != "GET"


def _act(run: Run) -> Act:
    assert isinstance(run.work, Act)
    return run.work


def _has_turn(state: World, run: Run) -> bool:
    return state.holder == run.name


def _went(state: World, run: Run, others: tuple[Run, ...], reply: Any, **more: Any) -> World:
    """The state after an answer, and after all that the run asks then which nothing in this world changes."""
    run = run.answered(reply)
    while isinstance(question := run.question, ApiRequest) and key_of(question.path).plural not in CHANGING:
        run = run.answered(_constant(question))
    runs = others if isinstance(question, Ended) else tuple(sorted((*others, run), key=lambda r: r.name))
    return replace(state, runs=runs, **more)


@lru_cache(maxsize=100_000)
def _constant(request: ApiRequest) -> tuple[int, bytes]:
    """The answer about what is not there, and to Events, which nobody here may write."""
    if "events.k8s.io" in request.path:
        return 403, msgspec.json.encode({"message": "nobody writes Events here"})
    if "selfsubjectaccessreviews" in request.path:
        return 201, msgspec.json.encode({"status": {"allowed": True}})
    return server().answer((), request)[1]


def _served(state: World, request: ApiRequest) -> tuple[World, tuple[int, bytes]]:
    sent = request
    if state.blind and request.method == "PATCH":
        operations = [operation for operation in msgspec.json.decode(request.body) if operation["op"] != "test"]
        sent = replace(request, body=msgspec.json.encode(operations))
    objects, response = server().answer(state.objects, sent)
    if objects == state.objects:
        return state, response
    before, after = (decoded(of)[key_of(request.path)] for of in (state.objects, objects))
    by, bad = _judged(statuses(state.rows)[0], request, before, after)
    path = request.path.partition("?")[0].removesuffix("/resize")
    return replace(state, objects=objects, writers=_with_writer(state, path, by), bad=state.bad or bad), response


def _with_writer(state: World, path: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**dict(state.writers), path: by}.items()))


def _judged(
    change_statuses: Mapping[str, ChangeStatus], request: ApiRequest, before: Json, after: Json
) -> tuple[str, str]:
    """Which change a write belongs to by the ledger, and what it should not have done."""
    operations = msgspec.json.decode(request.body)
    for status in change_statuses.values():
        change = status.change
        for write in change.writes:
            if not request.path.startswith(write.address.path):
                continue
            forward = operations == list(fitted_to(write.operations, lambda: before))
            by = change.id if forward else change.rollback_note
            if not forward and not _undoes(write, operations, by):
                continue
            was, becomes = (write.before, write.after) if forward else (write.after, write.before)
            if not _has(before, was):
                return by, f"{by} was written over what somebody else has set since"
            if not _has(after, becomes):
                return by, f"{by} has not written what the ledger says"
            if status.state is ChangeState.AWAITING:
                return by, f"{by} was written, and waits for a second person"
            return by, ""
    return "nobody", f"{request.path} was written, and the ledger does not know of it"


def _undoes(write: Write, operations: list[Json], note: str) -> bool:
    """Whether these operations write what was there before; those of an object with annotations say so."""
    values = [operation.get("value") for operation in operations if operation["op"] != "test"]
    return note in str(values) if not write.subresource else any(v in values for v in write.before.values())


def _has(item: Json, values: Mapping[str, Any]) -> bool:
    return all(same_at(pointer, value_at_pointer(item, pointer), value) for pointer, value in values.items())


# --- what must never be -----------------------------------------------------------------------------------------------
class _Rows(Ledger):
    """A ledger of rows that are there."""

    def __init__(self, rows: tuple[LedgerRow, ...]) -> None:
        self._rows = rows

    def entries(self, subject: str | None = None, after: int = 0) -> Iterator[LedgerRow]:
        return (row for row in self._rows if row.seq > after and (subject is None or row.subject == subject))


@lru_cache(maxsize=100_000)
def statuses(rows: tuple[LedgerRow, ...]) -> tuple[Mapping[str, ChangeStatus], str]:
    """Each change by the ledger, and what is wrong with its rows."""
    cache_ = LedgerCache()
    change_statuses = cache_.upto(_Rows(rows))
    wrong = verify_chain(rows, KEY, None, "ledger").why
    return change_statuses, wrong or next((passed.why for passed in cache_.passed), "")


def wrong(state: World) -> str:
    """What must never be, in words."""
    change_statuses, broken = statuses(state.rows)
    if broken:
        return f"the ledger is broken: {broken}"
    keys = [status.change.batch for status in change_statuses.values()]
    if len(keys) != len(set(keys)):
        return "one request was accepted twice"
    confirmed = [row for row in state.rows if row.event == "confirmed"]
    own = [row.subject for row in confirmed if row.actor == change_statuses[row.subject].change.actor]
    return f"{own[0]} is confirmed by who has accepted it" if own else state.bad


_NOT_THERE = (ChangeState.FAILED, ChangeState.CANCELLED, ChangeState.ROLLED_BACK, ChangeState.AWAITING)


def at_rest(state: World) -> bool:
    """Whether everybody has ended and everything has arrived."""
    return not state.runs and not state.flying


def mistold(state: World) -> str:
    """A change of which the ledger says something else than the cluster has, once the watcher has looked; "" for none.

    It looks after the soak time, at the second age of a day, and twice more when it compares changes again.
    """
    for hours in (1, 25, 50, 75):
        state = at_once(state, Act("watcher", "watches", now_seconds=NOON.seconds + 3600 * hours))
    writers = dict(state.writers)
    for status in statuses(state.rows)[0].values():
        change = status.change
        last = [writers.get(write.address.path, "nobody") for write in change.writes]
        lasting = [by for write, by in zip(change.writes, last, strict=True) if not write.subresource]
        if not status.state.settled:
            return f"{change.id} is {status.state}, and nobody finds out"
        if status.state in _NOT_THERE and change.id in last:
            return f"{change.id} is {status.state} by the ledger, and the cluster has it"
        if status.state.in_force and {"nobody", "kubectl", change.rollback_note}.intersection(lasting):
            return f"{change.id} is {status.state} by the ledger, and the cluster does not have it"
    return ""


def at_once(state: World, act: Act) -> World:
    """The state after an act that nothing interrupts."""
    state = replace(state, runs=(Run(str(act), act),), kills=0, losses=0, others=0, takeovers=0)
    while state.runs:
        steps = list(following(state))
        assert len(steps) == 1, [label for label, _ in steps]
        state = steps[0][1]
    return state
