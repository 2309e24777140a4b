"""Binders of both replicas, the scheduler that asks them again, and an API server, for every order of their requests.

What a binder does is the real `Binder`, one request a step. A binder may be killed before any request, an answer may be
lost after the server has acted, pods are deleted, and a scheduler whose patience has ended asks again while the first
binder still goes on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import yaml

from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from cotenant.base.allocation.topology_document import NodeCpus, annotations_of, topology_address
from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import (
    CpuAllocationSettings,
    DeviceAllocationSettings,
    ExtenderSettings,
)
from tests.cluster.crds import FOLDER
from tests.cluster.topologies import CRD
from tests.support.pure_api import Objects, PureApi, decoded, key_of, request_text
from tests.support.replayed import AskingClient, Conversation, Ended, Lost, Run

ON = ExtenderSettings(cpus=CpuAllocationSettings(on=True), devices=DeviceAllocationSettings(on=True))
KINDS = {
    "CPUs": {"cpu": "2", "cotenant.dev/bind": "1"},
    "a GPU": {"koordinator.sh/gpu": "60", "cotenant.dev/bind": "1"},
}
"""Of either a node has enough for one pod: a core of two threads, and 100 percent of one GPU."""
LEDGERS = "nodeallocations"


@cache
def server() -> PureApi:
    """Two nodes with what they have; ledgers and pods come with the state."""
    names = ("nodeallocations.cotenant.dev", "devices.scheduling.koordinator.sh")
    definitions = [*(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in names), CRD]
    capacity = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    gpu = {"type": "gpu", "minor": 0, "id": "GPU-0", "health": True, "resources": capacity}
    fixed = []
    for node in ("n0", "n1"):
        topology = {"name": node, "annotations": annotations_of(NodeCpus(regular_topology(1, 1, 2)))}
        fixed += [
            Create(Address("v1", "nodes", node), {"kind": "Node", "metadata": {"name": node}}),
            Create(topology_address(node), {"kind": "NodeResourceTopology", "metadata": topology}),
            Create(
                Address(SCHEDULING_GROUP, DEVICES.rpartition("/")[2], node),
                {"kind": "Device", "metadata": {"name": node}, "spec": {"devices": [gpu]}},
            ),
        ]
    return PureApi(definitions, fixed)


@dataclass(frozen=True, slots=True)
class Bind:
    """One bind verb, as the scheduler sends it to a replica."""

    pod: str
    node: str

    def __call__(self, conversation: Conversation) -> str:
        allocation = HardwareAllocation(allocators(ON))
        binder = Binder(lambda: AskingClient.of(conversation), allocation)
        return binder.bind(BindArgs(self.pod, "default", f"uid-{self.pod}", self.node))

    def __str__(self) -> str:
        return f"{self.pod} to {self.node}"


@dataclass(frozen=True, slots=True)
class World:
    """One state. runs: bind verbs that were sent; kills, losses (of answers), deletions (of pods) still to come.

    deleted_ledgers: ledgers that somebody deletes, of whose pods none is being bound in that moment.
    Planted faults: ignores_versions: the server takes a ledger whatever version its writer has read; at_any_moment: a
    ledger is deleted also while a pod of it is being bound, against decision 21.
    """

    objects: Objects
    runs: tuple[Run, ...] = ()
    kills: int = 0
    losses: int = 0
    deletions: int = 0
    deleted_ledgers: int = 0
    ignores_versions: bool = False
    at_any_moment: bool = False


def beginning(kind: str, binds: tuple[Bind, ...], **more: Any) -> World:
    """Pods of a kind of hardware that nobody has bound, both ledgers empty."""
    objects: Objects = ()
    for name in sorted({bind.pod for bind in binds}):
        container = {"name": "m", "image": "x", "resources": {"requests": KINDS[kind], "limits": KINDS[kind]}}
        labels = {"koordinator.sh/qosClass": "LSR" if kind == "CPUs" else "LS"}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        objects = server().after(objects, Create(Address("v1", "pods", name, "default"), body))
    return World(objects, _ordered(tuple(Run(f"the binder of {bind}", bind) for bind in binds)), **more)


def following(state: World) -> Iterator[tuple[str, World]]:
    """Every step that may come next."""
    for number, run in enumerate(state.runs):
        others = (*state.runs[:number], *state.runs[number + 1 :])
        yield from _run_steps(state, run, others)
    for key, item in decoded(state.objects).items():
        rest = tuple(pair for pair in state.objects if pair[0] != key)
        if key.plural == "pods" and state.deletions:
            yield f"{key} is deleted", replace(state, objects=rest, deletions=state.deletions - 1)
        if key.plural == LEDGERS and state.deleted_ledgers and (state.at_any_moment or _all_bound(state, item)):
            yield f"{key} is deleted", replace(state, objects=rest, deleted_ledgers=state.deleted_ledgers - 1)


def _all_bound(state: World, ledger: dict[str, Any]) -> bool:
    pods = {key.name: item for key, item in decoded(state.objects).items() if key.plural == "pods"}
    names = [entry["name"] for entry in ledger["spec"].get("pods") or ()]
    return all(pods[name]["spec"].get("nodeName") for name in names if name in pods)


def _run_steps(state: World, run: Run, others: tuple[Run, ...]) -> Iterator[tuple[str, World]]:
    question = run.question
    assert isinstance(question, ApiRequest)
    objects, response = server().answer(state.objects, _careless(question) if state.ignores_versions else question)
    step_text, answered = f"{run.name} {request_text(question)}: {response[0]}", run.answered(response)
    yield step_text + answered.ending, replace(state, objects=objects, runs=_with(others, answered))
    if state.kills:
        yield f"{run.name} is killed", replace(state, runs=others, kills=state.kills - 1)
    if state.losses and question.method != "GET":
        lost = run.answered(Lost())
        after = replace(state, objects=objects, runs=_with(others, lost), losses=state.losses - 1)
        yield f"{step_text}, but the answer is lost{lost.ending}", after


def _with(others: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    return others if isinstance(run.question, Ended) else _ordered((*others, run))


def _ordered(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """In one order: which of them began first is no part of the state."""
    return tuple(sorted(runs, key=lambda run: (run.name, len(run.answers))))


def _careless(request: ApiRequest) -> ApiRequest:
    """The planted fault: the write of a ledger without the version that was read."""
    if key_of(request.path).plural != LEDGERS or request.method != "PATCH":
        return request
    body = msgspec.json.decode(request.body)
    body["metadata"].pop("resourceVersion", None)
    return replace(request, body=msgspec.json.encode(body))


def doubled(state: World) -> str:
    """What has two owners, of hardware that bound pods have or ledgers give out; "" where nothing has."""
    pods = {key.name: item for key, item in decoded(state.objects).items() if key.plural == "pods"}
    bound: Counter[str] = Counter()
    for name, pod in pods.items():
        if node := pod["spec"].get("nodeName"):
            devices = hardware(name, pod["metadata"].get("annotations") or {})
            if not devices:
                return f"{name} is bound to {node} and has no hardware"
            bound.update({f"{what} of {node}": share for what, share in devices.items()})
    over = [what for what, share in bound.items() if share > 100]
    return f"{over[0]} is given twice, to pods that are bound" if over else _doubled_entries(state)


def _doubled_entries(state: World) -> str:
    for key, item in decoded(state.objects).items():
        if key.plural == LEDGERS:
            sums: Counter[str] = Counter()
            for entry in item["spec"].get("pods") or ():
                sums.update(hardware(entry["name"], entry.get("annotations") or {}))
            if over := [what for what, share in sums.items() if share > 100]:
                return f"{key} gives {over[0]} twice"
    return ""


def hardware(pod: str, annotations: dict[str, str]) -> dict[str, int]:
    """Percent of each thing that these annotations give."""
    cpus = {f"CPU {cpu}": 100 for cpu in assignment_of(annotations, pod).cpus}
    document = json.loads(annotations.get(DEVICE_ALLOCATED_ANNOTATION) or "{}")
    return cpus | {f"GPU {d['minor']}": int(d["resources"][GPU_CORE]) for d in document.get("gpu", ())}


def end(state: World) -> bool:
    """Whether every binder has ended, and each pod that is left is bound when the scheduler asks for it again."""
    if state.runs:
        return False
    objects = state.objects
    waiting = [
        k.name for k, item in decoded(objects).items() if k.plural == "pods" and not item["spec"].get("nodeName")
    ]
    for pod in waiting * 2:  # one whose dead binder left an entry on a full node gives it back by being bound elsewhere
        for node in ("n0", "n1"):
            objects = _at_once(objects, Run("", Bind(pod, node)))
    return all(item["spec"].get("nodeName") for key, item in decoded(objects).items() if key.plural == "pods")


def _at_once(objects: Objects, run: Run) -> Objects:
    while not isinstance(question := run.question, Ended):
        assert isinstance(question, ApiRequest)
        objects, response = server().answer(objects, question)
        run = run.answered(response)
    return objects
