"""Our strategic merge gives what the API server's own gives: the same patches on the template of a PodTemplate."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.admission.strategic_merge import apply_strategic_patch
from tests.cluster.control_plane import ControlPlane

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"note": "x"}, "finalizers": ["example.com/x"]},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "m:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80}, {"containerPort": 81}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                "args": ["a", "b"],
            },
            {"name": "side", "image": "s:1"},
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "hostPath": {"path": "/d"}}],
        "tolerations": [{"key": "old", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd", "zone": "z1"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "imagePullSecrets": [{"name": "one"}],
        "terminationGracePeriodSeconds": 60,
    },
}
PATCHES: dict[str, dict[str, Any]] = {
    "a plain value": {"spec": {"terminationGracePeriodSeconds": 5}},
    "null": {"spec": {"nodeSelector": {"disk": None}, "terminationGracePeriodSeconds": None}},
    "labels": {"metadata": {"labels": {"a": None, "c": "3"}}},
    "finalizers": {"metadata": {"finalizers": ["example.com/y", "example.com/x"]}},
    "finalizers deleted": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/x"]}},
    "container by name": {"spec": {"containers": [{"name": "side", "image": "s:2"}]}},
    "a new container": {"spec": {"containers": [{"name": "new", "image": "n:1"}]}},
    "environment": {"spec": {"containers": [{"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "C"}]}]}},
    "environment deleted": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]}},
    "ports": {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 81, "name": "x"}]}]}},
    "arguments": {"spec": {"containers": [{"name": "main", "args": ["c"]}]}},
    "resources": {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": None, "memory": "1Gi"}}}]}},
    "container deleted": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}},
    "containers replaced": {"spec": {"containers": [{"$patch": "replace"}, {"name": "only", "image": "o"}]}},
    "selector replaced": {"spec": {"nodeSelector": {"$patch": "replace", "arch": "arm"}}},
    "tolerations": {"spec": {"tolerations": [{"key": "new", "operator": "Exists"}]}},
    "volume retained": {"spec": {"volumes": [{"name": "data", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}},
    "a new volume": {"spec": {"volumes": [{"name": "more", "configMap": {"name": "c"}}]}},
    "host aliases": {"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}, {"ip": "10.0.0.2"}]}},
    "pull secrets": {"spec": {"imagePullSecrets": [{"name": "two"}]}},
    "affinity from nothing": {
        "spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [], "x": None}}}
    },
    "order only": {"spec": {"$setElementOrder/containers": [{"name": "main"}, {"name": "side"}]}},
}
UNPATCHED_ORDER = frozenset(
    {"finalizers", "a new container", "a new volume", "environment", "host aliases", "pull secrets"}
)
"""New elements: the API server puts them before the old ones when a patch says nothing of order, we behind them."""


def sorted_lists(value: Any) -> Any:
    """Without the order of lists of objects."""
    if isinstance(value, dict):
        return {key: sorted_lists(inner) for key, inner in value.items()}
    return sorted((sorted_lists(v) for v in value), key=str) if isinstance(value, list) else value


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_does_what_the_api_servers_own_merge_does(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    api = control_plane.api()
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    stored = api.create(path, {"metadata": {"name": "theirs"}, "template": TEMPLATE})["template"]
    theirs = api.patch(f"{path}/theirs", {"template": PATCHES[name]}, "strategic")["template"]
    body = {"metadata": {"name": "ours"}, "template": apply_strategic_patch(stored, PATCHES[name])}
    ours = api.create(path, body)["template"]
    if name in UNPATCHED_ORDER:
        theirs, ours = sorted_lists(theirs), sorted_lists(ours)
    assert ours == theirs
