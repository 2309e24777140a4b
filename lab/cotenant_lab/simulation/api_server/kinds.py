"""The kinds that are served: the built-in ones, and one for every version of an applied CRD."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_lab.simulation.api_server.builtin import BuiltIn
from cotenant_lab.simulation.api_server.schema import FieldSchema, Json, from_openapi
from cotenant_lab.simulation.api_server.state import Collection
from cotenant_lab.simulation.api_server.tables import BUILT_IN


@dataclass(frozen=True, slots=True)
class ApiKind:
    """One served kind in one version."""

    group: str
    version: str
    plural: str
    name: str
    schema: FieldSchema = field(compare=False)
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    generations: bool = False
    """Whether a change of the spec counts up metadata.generation."""
    short_names: tuple[str, ...] = ()
    custom: bool = False
    columns: tuple[Json, ...] = field(default=(), compare=False)
    """What a Table shows of it: additionalPrinterColumns of its definition, or `tables.BUILT_IN`."""

    @property
    def api_version(self) -> str:
        """The apiVersion of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> Collection:
        """The collection that stores the objects; all versions share it."""
        return self.group, self.plural

    @property
    def resource(self) -> str:
        """The name of the kind in messages, such as deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


# group/version: plural=Kind, then * cluster-scoped, + generations, / subresources, , short names
_SERVED: Final = """
v1 nodes=Node* status ,no
v1 namespaces=Namespace* status ,ns
v1 pods=Pod+ status resize binding eviction ,po
v1 configmaps=ConfigMap ,cm
v1 secrets=Secret
v1 serviceaccounts=ServiceAccount ,sa
v1 events=Event@CoreEvent ,ev
v1 resourcequotas=ResourceQuota status ,quota
v1 limitranges=LimitRange ,limits
v1 persistentvolumes=PersistentVolume* status ,pv
v1 persistentvolumeclaims=PersistentVolumeClaim status ,pvc
apps/v1 deployments=Deployment+ status ,deploy
apps/v1 statefulsets=StatefulSet+ status ,sts
apps/v1 daemonsets=DaemonSet+ status ,ds
apps/v1 replicasets=ReplicaSet+ status ,rs
batch/v1 jobs=Job+ status
batch/v1 cronjobs=CronJob+ status ,cj
autoscaling/v2 horizontalpodautoscalers=HorizontalPodAutoscaler status ,hpa
policy/v1 poddisruptionbudgets=PodDisruptionBudget+ status ,pdb
storage.k8s.io/v1 csinodes=CSINode*
coordination.k8s.io/v1 leases=Lease
scheduling.k8s.io/v1 priorityclasses=PriorityClass* ,pc
events.k8s.io/v1 events=Event ,ev
apiextensions.k8s.io/v1 customresourcedefinitions=CustomResourceDefinition*+ status ,crd ,crds
"""


def built_in() -> Iterator[ApiKind]:
    """Yield the kinds that are served from the start."""
    types = BuiltIn()
    for line in _SERVED.strip().splitlines():
        api_version, resource, *rest = line.split()
        group, _, version = api_version.rpartition("/")
        plural, _, marked = resource.partition("=")
        name, _, source = marked.rstrip("*+").partition("@")
        yield ApiKind(
            *(group, version, plural, name, types.kind(source or name)),
            namespaced="*" not in marked,
            subresources=tuple(word for word in rest if not word.startswith(",")),
            generations="+" in marked,
            short_names=tuple(word[1:] for word in rest if word.startswith(",")),
            columns=BUILT_IN.get(plural, ()),
        )


def of_definition(definition: Json) -> Iterator[ApiKind]:
    """Yield the kinds of a CustomResourceDefinition's served versions."""
    spec, metadata = definition["spec"], BuiltIn().type("ObjectMeta")
    names = spec["names"]
    for version in spec["versions"]:
        if version.get("served"):
            yield ApiKind(
                *(spec["group"], version["name"], names["plural"], names["kind"]),
                from_openapi((version.get("schema") or {}).get("openAPIV3Schema") or {}, metadata),
                namespaced=spec["scope"] == "Namespaced",
                subresources=tuple(name for name in version.get("subresources") or {} if name == "status"),
                generations=True,
                short_names=tuple(names.get("shortNames") or ()),
                custom=True,
                columns=tuple(version.get("additionalPrinterColumns") or ()),
            )


def established_status(definition: Json, now: str) -> dict[str, Any]:
    """Return the status of a CustomResourceDefinition that is served."""
    spec = definition["spec"]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
