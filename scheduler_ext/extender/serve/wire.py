"""Requests and answers of the extender protocol, by kube-scheduler's `extender/v1` types. Pure.

Those types have no JSON tags, so the keys are Go's field names; Kubernetes objects inside are ordinary JSON. An
answer's form follows from how the scheduler reads it: no names (such as {}) means that no node passes, an unrequested
name is an error, a missing host in a prioritize answer gets no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.models.metadata import LabelledObject
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.scheduler_ext.arrays import Rows
from cotenant.scheduler_ext.extender.judgement import UNRESOLVABLE, NodeRefusals
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot

Pieces = npt.NDArray[np.object_]  # parts of an answer, bytes
_TAILS: Final = np.array([b"%d}," % score for score in range(11)], dtype=object)
"""The end of a node's entry in a prioritize answer, by its score, with a comma."""


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """Request of filter and prioritize; it has no node names if the scheduler sets nodeCacheCapable: false."""

    pod: PodWire
    node_names: list[str] | None = None


class MetaPod(msgspec.Struct, rename={"uid": "UID"}):
    """A preemption victim, identified by its uid."""

    uid: str = ""


class MetaVictims(msgspec.Struct, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    """The pods that would be preempted on a node."""

    pods: list[MetaPod] | None = None
    violations: int = 0


class _Victims(msgspec.Struct, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    pods: list[LabelledObject] | None = None
    violations: int = 0


class PreemptArgs(msgspec.Struct, rename="pascal"):
    """Request of preempt: victims by uid, or whole pods if the scheduler sets nodeCacheCapable: false."""

    pod: PodWire
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None
    node_name_to_victims: dict[str, _Victims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """Return the victims by node as uids, also if the scheduler sent whole pods."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        return {
            node: MetaVictims([MetaPod(pod.metadata.uid) for pod in node_victims.pods or ()], node_victims.violations)
            for node, node_victims in (self.node_name_to_victims or {}).items()
        }


class BindArgs(
    msgspec.Struct, rename={"name": "PodName", "namespace": "PodNamespace", "uid": "PodUID", "node": "Node"}
):
    """The scheduler's request to bind a pod to a node."""

    name: str
    namespace: str
    uid: str
    node: str


EXTENDER_ARGS: Final = msgspec.json.Decoder(ExtenderArgs)
PREEMPT_ARGS: Final = msgspec.json.Decoder(PreemptArgs)
BIND_ARGS: Final = msgspec.json.Decoder(BindArgs)


def filter_answer(passing: Pieces) -> bytes:
    """Return the answer of filter with the passing nodes, each name as JSON, in the requested order.

    Refused nodes are left out: the scheduler reads them only if no node passes.
    """
    names = b",".join(passing.tolist())
    return b'{"Nodes":null,"NodeNames":[%b],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}' % names


def refused_all(quoted: Pieces, refused: NodeRefusals) -> bytes:
    """Return the answer of filter if no node passes: the reason of each node.

    Nodes that preemption cannot help are listed separately. `quoted` has each name as JSON, (names,), so that answers
    with 5,000 names are joined from prepared texts.
    """
    hopeless = np.array([code in UNRESOLVABLE for code in refused.codes], dtype=np.bool_)
    permanent = hopeless[refused.which] if len(refused.which) else np.zeros(0, dtype=np.bool_)
    reasons = np.array([b":%b," % msgspec.json.encode(word) for word in refused.words], dtype=object)
    members = []  # of both objects of reasons: name and words by turns
    for part in (~permanent, permanent):
        pieces = np.empty(2 * int(part.sum()), dtype=object)
        pieces[0::2] = quoted[refused.at[part]]
        pieces[1::2] = reasons[refused.which[part]]
        members.append(b"".join(pieces.tolist())[:-1])
    failed, unresolvable = members
    head, between = b'{"Nodes":null,"NodeNames":[],"FailedNodes":{', b'},"FailedAndUnresolvableNodes":{'
    return head + failed + between + unresolvable + b'},"Error":""}'


def quoted_names(snapshot: NodeSnapshot, names: Sequence[str], rows: Rows, places: Rows | None = None) -> Pieces:
    """Return each name, or those at `places`, as JSON, (places,); only names of unknown nodes are encoded anew."""
    if places is None:
        places = np.arange(len(names))
    chosen = rows[places]
    quoted = snapshot.quoted[chosen] if len(snapshot.quoted) else np.empty(len(chosen), dtype=object)
    for number in np.flatnonzero(chosen < 0).tolist():
        quoted[number] = msgspec.json.encode(names[places[number]])
    return quoted


def failed_filter(why: str) -> bytes:
    """Return an answer of filter that means failure: the scheduler skips an ignorable extender, else tries again."""
    return msgspec.json.encode(
        {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": why}
    )


def prioritize_answer(snapshot: NodeSnapshot, rows: Rows, points: Rows) -> bytes:
    """Return the answer of prioritize, joined from prepared texts, with only the nodes that have a score."""
    some = np.flatnonzero(points)
    pieces = np.empty(2 * len(some), dtype=object)
    pieces[0::2] = snapshot.heads[rows[some]]
    pieces[1::2] = _TAILS[points[some]]
    return b"[" + b"".join(pieces.tolist())[:-1] + b"]"


def preempt_answer(victims: Mapping[str, MetaVictims], spared: Mapping[str, str]) -> bytes:
    """Return the answer of preempt: the victims by node, without `spared` nodes and nodes that have no victims."""
    remaining = {
        node: node_victims for node, node_victims in victims.items() if node not in spared and node_victims.pods
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": remaining})


def bound(error: str = "") -> bytes:
    """Return the answer to kube-scheduler's bind request; an empty `error` is success."""
    return msgspec.json.encode({"Error": error})
