"""Random clusters, pods and AdmissionReviews from a seed, nearly right or garbage: food for the webhooks."""

from __future__ import annotations

import json
import random
from typing import Any

from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.admission.view import ClusterView
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import PRIORITY_VALUES
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree

QUANTITIES = ["1", "250m", "0.5", "2Gi", "64Mi", "1e3", "1k", "0", "3", "1e30", "16Ei", "100u"]
ODD_QUANTITIES = [
    "1e999999",
    "-1",
    "NaN",
    "1.5Zi",
    "0x10",
    "",
    "Ki",
    "١",
    "1_000",
    "9" * 400,
    "1Ki ",
    5,
    0.5,
    None,
    True,
    {},
]
RESOURCES = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "koordinator.sh/batch-cpu",
    "koordinator.sh/bach-cpu",
    "koordinator.sh/mid-memory",
]
LABELS = {
    "koordinator.sh/qosClass": ["LSE", "LSR", "LS", "BE", "SYSTEM", "what"],
    "koordinator.sh/priority-class": ["koord-prod", "koord-batch", "koord-mid", "none"],
    "koordinator.sh/priority": ["1", "-7", "x"],
    "pod.koordinator.sh/mutating-update": ["true", "false"],
    "quota.scheduling.koordinator.sh/name": ["top", "leaf", "gone"],
    "app": ["web", "spark", "x" * 63],
    "team": ["a", "b"],
}
ANNOTATIONS = {
    "node.koordinator.sh/extended-resource-spec": [
        "{",
        "{}",
        '{"containers": {"c0": {"limits": {"x": "1"}}}}',
        "[[",
        "3",
    ],
    "koordinator.sh/resource-limit": ['{"cpu": "5k"}', "{", '{"cpu": []}', "null"],
    "cotenant.dev/profiles": [
        '{"at": 1000000000, "applied": ["p0"], "signature": "00"}',
        '{"at": "x"}',
        "{}",
        '{"applied": 3}',
    ],
    "config.koordinator.sh/skip-update-resources": ["true"],
    "note": ["", "é\u202e<script>", "~/1"],
}
PATCHES: list[Any] = [
    {"spec": {"terminationGracePeriodSeconds": 30}},
    {"spec": {"tolerations": [{"key": "batch", "operator": "Exists"}]}},
    {"spec": {"containers": [{"name": "c0", "env": [{"name": "A", "value": "1"}]}]}},
    {"spec": {"nodeSelector": {"disk": "ssd", "zone": None}}},
    {"metadata": {"labels": {"team": None, "patched": "yes"}}},
    {"spec": {"priorityClassName": "koord-batch"}},
    {"metadata": {"annotations": {"a/b": "~1"}}},
]


def profile_spec(draw: random.Random) -> dict[str, Any]:
    """Spec of a ClusterColocationProfile that the API server stores."""
    choices: dict[str, Any] = {
        "selector": {"matchLabels": {"app": draw.choice(["web", "spark"])}},
        "labels": {draw.choice(["team", "tier", "app"]): draw.choice(["a", "b", ""])},
        "annotations": {"from/profile": "x"},
        "labelKeysMapping": {draw.choice(["team", "app"]): draw.choice(["copy", "team"])},
        "annotationKeysMapping": {"note": "note-copy"},
        "labelSuffixes": {draw.choice(["team", "app"]): "-z"},
        "qosClass": draw.choice(["BE", "LS", "LSR"]),
        "priorityClassName": draw.choice([*(c.value for c in PRIORITY_VALUES), "missing"]),
        "koordinatorPriority": draw.randrange(-100, 9999),
        "schedulerName": "koord-scheduler",
        "probability": draw.choice(["0%", "50%", "100%", 30]),
        "patch": draw.choice(PATCHES),
    }
    return {key: value for key, value in choices.items() if draw.random() < 0.4}


def view(draw: random.Random) -> ClusterView:
    """A cluster with up to five profiles and a small quota tree."""
    profiles = []
    for number in range(draw.randrange(6)):
        try:
            profiles.append(Profile.parse({"metadata": {"name": f"p{number}"}, "spec": profile_spec(draw)}))
        except UsageError:
            continue
    classes = {c.value: PriorityClassEntry(v) for c, v in PRIORITY_VALUES.items()}
    tree = QuotaTree({"top": QuotaNode("top", is_parent=True), "leaf": QuotaNode("leaf", parent="top")})
    return ClusterView(tuple(profiles), {"shop": {"team": "a"}}, classes, tree)


def pod(draw: random.Random, odd: float = 0.0) -> dict[str, Any]:
    """A pod; `odd` is the share of quantities that the API server may refuse."""
    containers = [container(draw, f"c{number}", odd) for number in range(draw.choice([1, 1, 1, 2, 3]))]
    spec: dict[str, Any] = {"containers": containers}
    if draw.random() < 0.2:
        spec["initContainers"] = [container(draw, "init", odd)]
    if draw.random() < 0.3:
        spec["nodeSelector"] = {"zone": "z1"}
    if draw.random() < 0.3:
        spec["priorityClassName"] = draw.choice([c.value for c in PRIORITY_VALUES])
        spec["priority"] = PRIORITY_VALUES[next(c for c in PRIORITY_VALUES if c.value == spec["priorityClassName"])]
    metadata: dict[str, Any] = {"name": f"p-{draw.getrandbits(48):x}", "namespace": "shop"}
    for key, pool in (("labels", LABELS), ("annotations", ANNOTATIONS)):
        if draw.random() < 0.7:
            metadata[key] = {name: draw.choice(values) for name, values in pool.items() if draw.random() < 0.3}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(draw: random.Random, name: str, odd: float) -> dict[str, Any]:
    """A container with some requests and limits, limits not below requests as the API server wants it."""
    resources: dict[str, Any] = {}
    names = [n for n in RESOURCES if draw.random() < 0.25]
    amounts = {n: draw.choice(ODD_QUANTITIES if draw.random() < odd else QUANTITIES) for n in names}
    for side in ("requests", "limits"):
        if draw.random() < 0.6:
            resources[side] = dict(amounts)
    container_body: dict[str, Any] = {"name": name, "image": "x"}
    if resources or draw.random() < 0.5:
        container_body["resources"] = resources
    return container_body


def quota(draw: random.Random) -> dict[str, Any]:
    """An ElasticQuota with every kind of amount and parent."""
    prefix = "quota.scheduling.koordinator.sh/"
    low, high = (
        {n: draw.choice(QUANTITIES + ODD_QUANTITIES) for n in RESOURCES[:3] if draw.random() < 0.6} for _ in range(2)
    )
    labels = {prefix + "parent": draw.choice(["top", "leaf", "gone", "q", "koordinator-root-quota"])}
    labels |= {prefix + "is-parent": "true"} if draw.random() < 0.3 else {}
    notes = {prefix + "shared-weight": draw.choice(["{", '{"cpu": "1"}', "", "[]"])} if draw.random() < 0.3 else {}
    metadata = {"name": draw.choice(["q", "top", "koordinator-root-quota"]), "labels": labels, "annotations": notes}
    return {"metadata": metadata, "spec": {"min": low, "max": high}}


def garbage(draw: random.Random, value: Any) -> Any:
    """The value with one place replaced by something of another kind."""
    odd: Any = draw.choice([None, True, -1, 1e308, 2**70, "", "\ud7ff", [], {}, [[]], {"": {}}, {"a": [None]}])
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        return {**value, key: garbage(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.85:
        place = draw.randrange(len(value))
        return [*value[:place], garbage(draw, value[place]), *value[place + 1 :]]
    return odd


def review(draw: random.Random) -> tuple[str, bytes]:
    """(path, body) of one call."""
    path = draw.choice(
        ["/mutate-pod"] * 5 + ["/validate-pod"] * 3 + ["/mutate-quota", "/validate-quota", "/validate-config"]
    )
    kind = "elasticquotas" if "quota" in path else "configmaps" if "config" in path else "pods"
    config = {
        "metadata": {"name": "slo-controller-config"},
        "data": {"cpu-burst-config": draw.choice(["{", "{}", "[]"])},
    }
    body = quota(draw) if kind == "elasticquotas" else config if kind == "configmaps" else pod(draw, odd=0.2)
    request: dict[str, Any] = {
        "uid": f"{draw.getrandbits(64):x}",
        "resource": {
            "group": "scheduling.sigs.k8s.io" if kind == "elasticquotas" else "",
            "version": "v1",
            "resource": kind,
        },
        "operation": draw.choice(["CREATE", "CREATE", "CREATE", "UPDATE", "DELETE"]),
        "namespace": "koordinator-system" if kind == "configmaps" else draw.choice(["shop", "nowhere"]),
        "name": body["metadata"]["name"],
        "object": body,
        "oldObject": body if draw.random() < 0.3 else None,
    }
    if draw.random() < 0.05:
        request["subResource"] = "status"
    document: Any = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    for _ in range(draw.choice([0, 0, 0, 1, 2, 5])):
        request["object"] = garbage(draw, request["object"])
    if draw.random() < 0.1:
        document = garbage(draw, document)
    text = json.dumps(document).encode()
    if draw.random() < 0.03:
        cut = draw.randrange(len(text) + 1)
        text = text[:cut] + bytes(draw.randrange(256) for _ in range(draw.randrange(4)))
    return path, text
