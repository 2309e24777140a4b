"""Resizing running pods in place: which pods, whether it is possible, the exact writes, the node's answer. Pure.

A resize goes through `pods/resize` and tests the pod's uid, the container's name and the resources that were read. The
API server only stores the request. The node reports by pod conditions that it cannot do it now or ever
(PodResizePending with Deferred or Infeasible) or is doing it (PodResizeInProgress); when it is done, the container's
status has the new amounts.

Source: Kubernetes documentation, "Resize CPU and Memory Resources assigned to Containers", 1.33 to 1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.owners import cron_job_of
from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.base.kubernetes.pod_wire import RESIZE_IN_PROGRESS, RESIZE_PENDING, container_statuses
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.base.resource import Resource
from cotenant.base.text import agree, counted
from cotenant.changes.decide.field_changes import moved
from cotenant.changes.decide.patches import FIELDS, LISTS, resources
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION, ResourceSwap, same, swapped_amounts
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import Method
from cotenant.recommender.model.recommendation import Action, Recommendation

Json = Mapping[str, Any]

RESIZE: Final = "resize"
RESIZABLE: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController")
NEW_PODS: Final = f"the method {Method.TEMPLATE.full_name}"
ELSEWHERE: Final = f"or choose {NEW_PODS}: the scheduler then finds a place for new pods"


class ResizeOutcome(StrEnum):
    """The outcome of a resize, as the node reports it."""

    DONE = "done"
    GOING = "going on"
    DEFERRED = "deferred"
    INFEASIBLE = "infeasible"
    SILENT = "no answer yet"


@dataclass(frozen=True, slots=True)
class Resized:
    """A pod, the outcome of its in-place resize, and the node's message about it."""

    pod: str
    answer: ResizeOutcome
    words: str = ""

    @property
    def sentence(self) -> str:
        """The outcome as a sentence for people, with the next step."""
        detail = f": {self.words}" if self.words else ""
        if self.answer is ResizeOutcome.INFEASIBLE:
            return f"{self.pod}: its node can never provide the new amounts{detail}; request less, {ELSEWHERE}"
        if self.answer is ResizeOutcome.DEFERRED:
            return f"{self.pod}: its node is too full for the resize now{detail}; try again later, {ELSEWHERE}"
        return f"{self.pod}: {self.answer}{detail}"


def live_workload_pods(pods: Iterable[Json], workload: WorkloadRef, uid: str) -> list[Json]:
    """Return the workload's pods on nodes, sorted by name, without pods that are ending or not scheduled yet."""
    live_pods = [pod for pod in workload_pods(pods, workload, uid) if _lives(pod)]
    return sorted(live_pods, key=lambda pod: str(pod["metadata"]["name"]))


def workload_pods(pods: Iterable[Json], workload: WorkloadRef, uid: str) -> list[Json]:
    """Return the pods that the workload's controller created, of any template, including those that have ended."""
    return [pod for pod in pods if _is_owned(pod, workload, uid)]


def refusal(workload: WorkloadRef, pods: Sequence[Json], recommendations: Sequence[Recommendation]) -> str:
    """Return why these running pods cannot be resized; "" if they can."""
    if workload.kind not in RESIZABLE:
        return f"pods of a {workload.kind} end on their own; the next pods get the new values"
    for recommendation in recommendations:
        name = recommendation.container.container
        for value in recommendation.values:
            if value.changes_template and (value.action is Action.UNSET or value.now is None):
                return f"{name}'s {value.resource} {value.field} would be added or removed"
        if recommendation.role is ContainerRole.INIT and any(v.changes_template for v in recommendation.values):
            return f"{name} is an init container, which has ended"
    if not pods:
        return "no pod of the workload runs on a node"
    return next((why for pod in pods if (why := _against(pod, recommendations))), "")


def pod_writes(pods: Sequence[Json], recommendations: Sequence[Recommendation]) -> list[Write]:
    """Return one write to the subresource `resize` for each pod that does not have the amounts yet.

    The API server refuses a write if the pod changed since it was read: uid, container names and old values are tested.
    """
    writes = []
    for pod in pods:
        meta = pod["metadata"]
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        operations: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": meta["uid"]}]
        for list_name, place, new in _moves(pod, recommendations):
            container, base = pod["spec"][list_name][place], f"/spec/{list_name}/{place}"
            old = container.get("resources") or {}
            if same(old, new):
                continue
            before[f"{base}/resources"], after[f"{base}/resources"] = old, new
            operations += [
                {"op": "test", "path": f"{base}/name", "value": container["name"]},
                {"op": "test", "path": f"{base}/resources", "value": old},
                {"op": "replace", "path": f"{base}/resources", "value": new},
            ]
        if before:
            address = Address("v1", "pods", meta["name"], meta["namespace"])
            writes.append(Write(address, meta["uid"], tuple(operations), before, after, RESIZE))
    return writes


def new_pod_writes(pods: Iterable[Json], change: str, swaps: Mapping[str, ResourceSwap]) -> list[Write]:
    """Return the amounts that the webhook set on pods created under a change, in the form of one write for each pod."""
    writes = []
    for pod in pods:
        meta = pod["metadata"]
        if (meta.get("annotations") or {}).get(CHANGE_ANNOTATION) != change or not _lives(pod):
            continue
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for list_name in ("containers", "initContainers"):
            for index, container in enumerate(pod["spec"].get(list_name) or ()):
                swap, now = swaps.get(container["name"]), container.get("resources")
                back = None if swap is None else swapped_amounts(now, ResourceSwap(swap.after, swap.before))
                if back is not None:
                    pointer = f"/spec/{list_name}/{index}/resources"
                    before[pointer], after[pointer] = back, now
        if before:
            address = Address("v1", "pods", meta["name"], meta["namespace"])
            writes.append(Write(address, meta["uid"], (), before, after, RESIZE))
    return writes


def answer(pod: Json, write: Write) -> Resized:
    """Return the outcome of a pod's resize so far, by the pod's present status."""
    name = write.address.name
    generation = int(pod["metadata"].get("generation") or 0)
    conditions = {}  # about the pod's current generation, as all are that an older server reports without one
    for condition in (pod.get("status") or {}).get("conditions") or ():
        observed = condition.get("observedGeneration")
        if observed is None or int(observed) >= generation:
            conditions[condition.get("type")] = condition
    pending, going = conditions.get(RESIZE_PENDING), conditions.get(RESIZE_IN_PROGRESS)
    if pending and pending.get("status") == "True":
        never = pending.get("reason") == "Infeasible"
        outcome = ResizeOutcome.INFEASIBLE if never else ResizeOutcome.DEFERRED
        return Resized(name, outcome, str(pending.get("message") or ""))
    if going and going.get("status") == "True":
        return Resized(name, ResizeOutcome.GOING, str(going.get("message") or ""))
    return Resized(name, ResizeOutcome.DONE if _has(pod, write) else ResizeOutcome.SILENT)


def summarize_resize_answers(answers: Sequence[Resized], final: bool = False) -> tuple[str, str]:
    """Return two texts: the reason to roll the resize back ("" if there is none), and further notes.

    A node carries out a deferred resize when capacity becomes available, such as capacity reserved for this pod. If
    `final`, nobody will check again, and a deferred resize counts as refused.
    """
    refusals = {ResizeOutcome.INFEASIBLE, *([ResizeOutcome.DEFERRED] if final else ())}
    bad = [answer for answer in answers if answer.answer in refusals]
    if bad:
        more = f"; the same for {counted(len(bad) - 1, 'more pod')}" if len(bad) > 1 else ""
        return f"resize {bad[0].answer}: {bad[0].sentence}{more}", ""
    late = [answer for answer in answers if answer.answer is not ResizeOutcome.DONE]
    if not late:
        return "", f"{counted(len(answers), 'pod')} resized in place"
    of = f"of {counted(len(answers), 'pod')}"
    silent = agree(len(late), f"{of} is not resized yet", f"{of} are not resized yet")
    put_off = next((a.words for a in late if a.answer is ResizeOutcome.DEFERRED), None)
    why = "" if put_off is None else f" ({ResizeOutcome.DEFERRED}{f': {put_off}' if put_off else ''})"
    return "", f"{silent}{why}: `cotenant recs verify` checks again"


def _is_owned(pod: Json, workload: WorkloadRef, uid: str) -> bool:
    meta = pod.get("metadata") or {}
    owners = [o for o in meta.get("ownerReferences") or () if o.get("controller")]
    owner: Json = owners[0] if owners else {}
    if workload.kind == "CronJob":
        job = WorkloadRef(workload.namespace, str(owner.get("kind", "")), str(owner.get("name", "")))
        return cron_job_of(job) == workload
    if workload.kind != "Deployment":
        return owner.get("kind") == workload.kind and owner.get("uid") == uid
    template = (meta.get("labels") or {}).get("pod-template-hash", "")
    return owner.get("kind") == "ReplicaSet" and owner.get("name") == f"{workload.name}-{template}"


def _lives(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase", "")
    on_node = bool((pod.get("spec") or {}).get("nodeName"))
    return on_node and not pod["metadata"].get("deletionTimestamp") and phase not in ENDED_PHASES


def _against(pod: Json, recommendations: Sequence[Recommendation]) -> str:
    """Return why a running pod cannot be resized, or "": exclusive CPUs, a restart policy, or another QoS class.

    The API server refuses a resize that changes the QoS class.
    """
    name, annotations = pod["metadata"]["name"], pod["metadata"].get("annotations") or {}
    cpus = any(v.resource is Resource.CPU and v.changes_template for r in recommendations for v in r.values)
    with suppress(CotenantError):
        if cpus and assignment_of(annotations, name).cpus:
            return f"{name} has exclusive CPUs and keeps these CPUs until the pod ends"
    lists = {key: list(pod["spec"].get(key) or ()) for key in ("containers", "initContainers")}
    after = {key: list(containers) for key, containers in lists.items()}
    for list_name, place, new in _moves(pod, recommendations):
        old = lists[list_name][place]
        after[list_name][place] = {**old, "resources": new}
        for policy in old.get("resizePolicy") or ():
            key = policy.get("resourceName", "")
            amounts = (
                {side: {key: (of_container.get(side) or {}).get(key)} for side in FIELDS.values()}
                for of_container in (old.get("resources") or {}, new)
            )
            if policy.get("restartPolicy") == "RestartContainer" and not same(*amounts):
                return f"{name}: container {old['name']} asks to be restarted when its {key} is resized"
    before, then = (pod_qos({**pod["spec"], **containers}) for containers in (lists, after))
    return "" if before == then else f"{name}: its QoS class would change from {before} to {then}"


def _moves(pod: Json, recommendations: Sequence[Recommendation]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (list name, index, new resources) of each container that changes."""
    for recommendation in recommendations:
        list_name = LISTS.get(recommendation.role, "containers")
        for index, container in enumerate(pod["spec"].get(list_name) or ()):
            if container.get("name") == recommendation.container.container and resources(recommendation):
                yield list_name, index, moved(container.get("resources"), resources(recommendation))


def _has(pod: Json, write: Write) -> bool:
    """Return whether the running containers have the written amounts, by the pod's status."""
    actual = {container.get("name"): container.get("resources") for container in container_statuses([pod])}
    for pointer, expected in write.after.items():
        _, list_name, place, _ = pointer.removeprefix("/").split("/")
        name = pod["spec"][list_name][int(place)]["name"]
        if actual.get(name) is None or not same(actual[name], expected):
            return False
    return True
