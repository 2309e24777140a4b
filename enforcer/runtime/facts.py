"""A pod in a runtime's message, converted to the node agent's vocabulary. Pure.

A runtime sees labels, annotations and the cgroup's parent, never the pod's resources: batch amounts and the names of
the pod's containers are known only from the annotation `extended-resource-spec`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION
from cotenant.base.kubernetes.qos import priority_of, qos_of
from cotenant.enforcer.contract import ContainerSpec, KubeQos, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings

Decide = Callable[[PodSpec, ContainerSpec, str], ContainerSettings]
"""Returns the settings for a pod's container below a cgroup parent ("" = not known); its creation waits for them.

A ContainerSpec with an id stands for a container that exists already, and that may use memory.
"""

_TIERS: Final = (("besteffort", KubeQos.BEST_EFFORT), ("burstable", KubeQos.BURSTABLE))


class _Names(msgspec.Struct, frozen=True):
    containers: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True, slots=True)
class RuntimePod:
    """A pod as a runtime describes it: `id` is its sandbox's id, and `cgroup_parent` is "" if not known."""

    id: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""
    attempt: int = 0
    runtime_handler: str = ""


def pod_spec(facts: RuntimePod) -> PodSpec:
    """Return the pod with the containers that its annotation names; without containers if it is unreadable."""
    labels, annotations = dict(facts.labels), dict(facts.annotations)
    names: Iterable[str] = ()
    with contextlib.suppress(*UNDECODABLE):  # the decision reads the annotation itself, and says what is wrong with it
        names = msgspec.json.decode(annotations.get(EXTENDED_SPEC_ANNOTATION, "{}"), type=_Names).containers
    return PodSpec(
        namespace=facts.namespace,
        name=facts.name,
        uid=facts.uid,
        # From where the kubelet puts the pod; Guaranteed ones lie directly below kubepods.
        kube_qos=next((tier for word, tier in _TIERS if word in facts.cgroup_parent), KubeQos.GUARANTEED),
        qos_class=qos_of(labels),
        priority_class=priority_of(labels, None),
        labels=labels,
        annotations=annotations,
        containers=tuple(ContainerSpec(name) for name in names),
        resources_known=False,
    )
