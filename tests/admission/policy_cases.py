"""Colocation profiles and pods by lot, and a real API server where compiled profiles meet the webhook's rules."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cotenant.admission.pod_mutation import AdmissionCall, Mutation, compute_mutation
from cotenant.admission.policies.compiler import CompiledProfiles, compile_profiles
from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.admission.view import ClusterView
from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION, SKIP_RESOURCES_ANNOTATION
from cotenant.base.kubernetes.quantity import parse_bytes
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import APISERVER, ControlPlane, Options
from tests.cluster.waiting import wait_for

PLAIN = "kube-system"
"""A namespace that no policy of ours touches: what a pod is without them."""
PROFILES = Path(__file__).parents[2] / "deploy" / "profiles"
PODS = "/api/v1/namespaces/{}/pods"
CLASSES = {
    "koord-prod": PriorityClassEntry(9000),
    "koord-mid": PriorityClassEntry(7000),
    "koord-batch": PriorityClassEntry(5000),
    "koord-free": PriorityClassEntry(3000),
    "polite": PriorityClassEntry(100, "Never"),
}
KEYS = ("app", "tier", "example.com/role", "old", "new", "koordinator.sh/qosClass")
VALUES = ("a", "b", "web", "x" * 60)
BATCH = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
BATCH_CPU = {"kubernetes.io/batch-cpu": "1k"}
OF_CLASS: dict[str, tuple[dict[str, str], Json]] = {
    "production": ({}, {}),
    "prod": ({}, {"priorityClassName": "koord-prod"}),
    "batch": ({"koordinator.sh/qosClass": "BE"}, {"priorityClassName": "koord-batch"}),
}
"""Labels and spec of a pod that no profile makes."""


@dataclass(frozen=True)
class RangeCase:
    """A container in a namespace with LimitRanges of these defaults, and its resources in the end.

    of: whose pod, of OF_CLASS or "profiled" (a profile makes it batch); noted: the pod is a copy with this note.
    """

    of: str
    defaults: tuple[Json, ...]
    resources: Json
    expected: Json
    noted: str = ""

    @property
    def body(self) -> Json:
        """The pod."""
        labels, spec = OF_CLASS.get(self.of, ({}, {}))
        body = pod("p", labels, **spec)
        body["spec"]["containers"][0]["resources"] = self.resources
        if self.noted:
            body["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": f"LimitRanger plugin set: {self.noted}"}
        return body


def _alike(amounts: Json) -> Json:
    return {"requests": amounts, "limits": amounts}


_CPU, _MEMORY = {"cpu": "500m"}, {"memory": "512Mi"}
RANGE_CASES = {
    # batch or mid resources for every container are none of production's; its own defaults are
    "production, batch too": RangeCase("production", ({**_CPU, **BATCH},), {}, _alike(_CPU)),
    "production, batch alone": RangeCase("production", (BATCH,), {"requests": _CPU}, {"requests": _CPU}),
    "production, mid too": RangeCase("production", ({"kubernetes.io/mid-cpu": "1k", **_CPU},), {}, _alike(_CPU)),
    "production, two ranges": RangeCase("prod", (BATCH, _CPU), {}, _alike(_CPU)),
    "production, two ranges the other way": RangeCase("prod", (_CPU, BATCH), {}, _alike(_CPU)),
    # of a batch pod the default of its class holds; what the author named of a resource is more than either
    "batch, both by default": RangeCase("profiled", ({**_CPU, **BATCH_CPU},), {}, _alike(BATCH_CPU)),
    "batch, cpu of its own": RangeCase(
        "profiled", (BATCH_CPU,), {"requests": {"cpu": "200m"}},
        {"requests": {"kubernetes.io/batch-cpu": "200"}, "limits": BATCH_CPU},
    ),
    "batch without a profile, cpu of its own": RangeCase(
        "batch", (BATCH_CPU,), {"requests": _CPU}, {"requests": _CPU},
    ),
    "batch, two ranges": RangeCase("batch", (_CPU, _MEMORY), _alike(BATCH), _alike(BATCH)),
    "batch, a range for disks": RangeCase(
        "batch", ({"ephemeral-storage": "1Gi"}, _CPU), _alike(BATCH), _alike({**BATCH, "ephemeral-storage": "1Gi"})
    ),
    # a note that came with a copied pod names what is the author's own here: no default is 300m
    "a copied note": RangeCase(
        "batch", (_CPU,), _alike({**BATCH, "cpu": "300m"}), _alike({**BATCH, "cpu": "300m"}),
        "cpu request for container main; cpu limit for container main",
    ),
}  # fmt: skip
FIRST_RELEASE = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)


@contextmanager
def policy_server(folder: Path, release: str) -> Iterator[ControlPlane]:
    """An API server alone that offers MutatingAdmissionPolicy, with the priority classes of the cases."""
    gates = () if release else FIRST_RELEASE
    arguments = ("--disable-admission-plugins=ServiceAccount", *gates)
    with ControlPlane(folder, Options(components=frozenset(), extra={APISERVER: arguments}, release=release)) as plane:
        api = plane.api()
        wait_for("the namespace kube-system", lambda: api.exists(f"/api/v1/namespaces/{PLAIN}"))
        for name, entry in CLASSES.items():
            body = {"metadata": {"name": name}, "value": entry.value, "preemptionPolicy": entry.preemption_policy}
            api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for name in CLASSES:  # the API server hears of them a little later
            wait_for(
                f"the PriorityClass {name}", lambda name=name: admitted(api, PLAIN, pod("p", priorityClassName=name))
            )
        yield plane


def admitted(api: Api, namespace: str, body: Json, collection: str = "pods") -> bool:
    """Whether the server would take the object; it is not stored."""
    try:
        api.create(f"/api/v1/namespaces/{namespace}/{collection}", body, dryRun="All")
    except ApiError as refused:
        assert refused.status == 403, refused
        return False
    return True


def limit_containers(api: Api, namespace: str, *items: Json) -> None:
    """Give the namespace a LimitRange for containers for each item; all are in force when this returns.

    The API server hears of one a little later, and remembers for half a minute that a namespace had none, or had
    another. So the namespace must be new, and a bound of claims in the same object says when it counts.
    """
    for number, item in enumerate(items):
        most = 9 - number  # less than the bounds of those before
        claims = {"type": "PersistentVolumeClaim", "max": {"storage": f"{most}Gi"}}
        limits = [{"type": "Container", **item}, claims]
        body = {"metadata": {"name": f"range-{number}"}, "spec": {"limits": limits}}
        api.create(f"/api/v1/namespaces/{namespace}/limitranges", body)
        claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{most + 1}Gi"}}}
        claim = {"metadata": {"name": "claim"}, "spec": claim_spec}
        wait_for("the LimitRange", lambda claim=claim: not admitted(api, namespace, claim, "persistentvolumeclaims"))


@dataclass
class PolicyCluster:
    """Profiles on a server as policies, and the namespaces in which they are tried."""

    api: Api
    api_version: str
    profiles: list[Profile]
    namespaces: dict[str, dict[str, str]]
    compiled: CompiledProfiles = field(init=False)

    def __post_init__(self) -> None:
        space = f"probe-{len(self.profiles)}"
        probe = profile_of(f"zz-{space}", namespaceSelector={"matchLabels": {"world": space}}, labels={"probed": "yes"})
        self.profiles = [*self.profiles, probe]
        self.compiled = compile_profiles(self.profiles, self.api_version)
        for name, labels in {**self.namespaces, space: {"world": space}}.items():
            self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for body in self.compiled.objects:
            path = f"{path_of(body)}/{body['metadata']['name']}"
            self.api.patch(path, body, "apply", fieldManager="tests")
        # The objects of the probe were written last, so when it works, the server has read all the others.
        wait_for("the policies", lambda: "probed" in self.tried(pod("p"), space)["metadata"].get("labels", {}))

    def tried(self, body: Json, namespace: str) -> Json:
        """The pod as the server would store it; the stored kind of answer without what differs at each call."""
        return comparable(self.api.create(PODS.format(namespace), {**body, "metadata": own(body)}, dryRun="All"))

    def by_webhook(self, body: Json, namespace: str) -> tuple[Mutation, Json]:
        """What the webhook's own function makes of the pod, and how the server would store that."""
        stored = self.tried(body, PLAIN)
        view = ClusterView(
            tuple(sorted(self.profiles, key=lambda p: p.name)), {namespace: self.namespaces[namespace]}, CLASSES
        )
        mutation = compute_mutation(stored, view, AdmissionCall("CREATE", namespace, "uid", 1e9))
        result = copy.deepcopy(dict(mutation.pod))
        (result["metadata"].get("annotations") or {}).pop(RECORD_ANNOTATION, None)
        return mutation, self.tried(result, PLAIN)

    def claimed(self, mutation: Mutation) -> bool:
        """Whether the compiler says that it states everything that the profiles did to a pod."""
        return not {loss.profile for loss in self.compiled.losses} & set(mutation.applied)


def path_of(body: Json) -> str:
    """Collection of a policy or binding."""
    plural = "mutatingadmissionpolic" + ("ies" if body["kind"].endswith("Policy") else "ybindings")
    return f"/apis/{body['apiVersion']}/{plural}"


def own(body: Json) -> Json:
    """The metadata that a pod's author writes."""
    return {key: value for key, value in body["metadata"].items() if key in ("name", "labels", "annotations")}


def comparable(body: Json) -> Json:
    """Labels, annotations and spec of a stored pod; amounts in annotations as numbers."""
    metadata = own(body)
    if EXTENDED_SPEC_ANNOTATION in metadata.get("annotations", {}):
        metadata["annotations"] = dict(metadata["annotations"])
        read = json.loads(metadata["annotations"][EXTENDED_SPEC_ANNOTATION])
        metadata["annotations"][EXTENDED_SPEC_ANNOTATION] = json.dumps(_numbers(read), sort_keys=True)
    return {"metadata": metadata, "spec": body["spec"]}


def _numbers(value: Any) -> Any:
    return {k: _numbers(v) for k, v in value.items()} if isinstance(value, dict) else str(parse_bytes(value))


def profile_of(name: str, skips_resources: bool = False, **spec: Any) -> Profile:
    annotations = {SKIP_RESOURCES_ANNOTATION: ""} if skips_resources else {}
    return Profile.parse({"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def pod(name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "x"}]
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {"containers": containers, **spec}}


def shipped_profiles() -> list[Profile]:
    """Those of deploy/profiles."""
    return [
        Profile.parse(body)
        for file in sorted(PROFILES.glob("*.yaml"))
        for body in yaml.safe_load_all(file.read_text())
        if body
    ]


# --- by lot -----------------------------------------------------------------------------------------------------------
def some(lot: random.Random, choices: Iterable[Any], chance: float = 0.4) -> list[Any]:
    return [choice for choice in choices if lot.random() < chance]


def texts(lot: random.Random, keys: Iterable[str], chance: float = 0.3) -> dict[str, str]:
    return {key: lot.choice(("BE", "LS") if "qos" in key else VALUES) for key in some(lot, keys, chance)}


def selector(lot: random.Random) -> Json:
    key = lot.choice(("app", "tier", "example.com/role"))
    return lot.choice(
        [
            {},
            {"matchLabels": {key: lot.choice(VALUES)}},
            {"matchExpressions": [{"key": key, "operator": lot.choice(["Exists", "DoesNotExist"])}]},
            {
                "matchExpressions": [
                    {"key": key, "operator": lot.choice(["In", "NotIn"]), "values": lot.sample(VALUES, 2)}
                ]
            },
        ]
    )


SPEC_PATCHES: tuple[Json, ...] = (
    {"terminationGracePeriodSeconds": 7},
    {"nodeSelector": {"disk": "ssd", "zone": None}},
    {"nodeSelector": None},
    {"tolerations": [{"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]},
    {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 3,
                        "preference": {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["1", "2"]}]},
                    }
                ]
            }
        }
    },
    {"affinity": {"nodeAffinity": None}},
    {"schedulerName": "other", "enableServiceLinks": False, "activeDeadlineSeconds": 3600},
    {"priorityClassName": "koord-free"},
)


def random_profile(lot: random.Random, name: str, label: str) -> Profile:
    """A profile for one world's namespaces, most of its fields by lot."""
    spec: Json = {"namespaceSelector": {"matchLabels": {"world": label}}, "selector": selector(lot)}
    written = ("label", "other", "new", *some(lot, ["app"], 0.1))
    maybe: Json = {
        "labels": texts(lot, written),
        "annotations": {"example.com/note": 'a "quoted" \\ text, zwölf, \U0001f600'},
        "labelKeysMapping": {"old": "copied"} if lot.random() < 0.6 else {"label": "copied", "tier": "new"},
        "annotationKeysMapping": {"note": "example.com/copied"},
        "labelSuffixes": {lot.choice(["tier", "new"]): lot.choice(["-z", ".", "-" + "y" * 20])},
        "schedulerName": "koord-scheduler",
        "qosClass": lot.choice(["BE", "LS", "LSR"]),
        "priorityClassName": lot.choice(list(CLASSES)),
        "koordinatorPriority": lot.randrange(-5, 2000),
        "patch": {"spec": lot.choice(SPEC_PATCHES)} if lot.random() < 0.7 else {"metadata": {"labels": {"old": None}}},
    }
    chances = {"labelSuffixes": 0.3, "qosClass": 0.6, "priorityClassName": 0.6, "labelKeysMapping": 0.2}
    spec |= {key: value for key, value in maybe.items() if lot.random() < chances.get(key, 0.35)}
    if lot.random() < 0.08:
        spec["probability"] = lot.choice([0, "30%"])
    return profile_of(name, lot.random() < 0.1, **spec)


def random_pod(lot: random.Random, name: str) -> Json:
    """A pod with labels, amounts and scheduling fields by lot."""
    body = pod(name, texts(lot, KEYS, 0.45))
    if lot.random() < 0.4:
        body["metadata"]["annotations"] = {"note": "from \n the pod"}
    spec = body["spec"]
    spec["containers"] = [_container(lot, f"c-{i}") for i in range(lot.randrange(1, 4))]
    if lot.random() < 0.4:
        spec["initContainers"] = [_container(lot, f"init-{i}") for i in range(lot.randrange(1, 3))]
    if lot.random() < 0.3:
        spec["priorityClassName"] = lot.choice(list(CLASSES))
    if lot.random() < 0.3:
        spec["nodeSelector"] = {"zone": "z1"}
    if lot.random() < 0.3:
        spec["tolerations"] = [{"key": "old", "operator": "Exists"}]
    if lot.random() < 0.2:
        terms = [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return body


def _container(lot: random.Random, name: str) -> Json:
    requests: Json = {}
    for resource, amounts in (
        ("cpu", ("70m", "1", "1500m", "100u", "0", "2.5", "1k", "0.0015", "29m", "4096")),
        ("memory", ("64Mi", "1G", "1.5Gi", "100", "12345678901")),
        ("kubernetes.io/batch-cpu", ("1k", "500")),
        ("kubernetes.io/batch-memory", ("1Gi",)),
        ("kubernetes.io/mid-cpu", ("700",)),
        ("ephemeral-storage", ("1Gi",)),
    ):
        if lot.random() < (0.7 if "/" not in resource and "-" not in resource else 0.12):
            requests[resource] = lot.choice(amounts)
    resources = lot.choice(
        [{"requests": requests}, {"requests": requests, "limits": requests}, {"limits": requests}, {}]
    )
    return {"name": name, "image": "x", "resources": copy.deepcopy(resources)}
