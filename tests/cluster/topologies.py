"""The kind NodeResourceTopology, whose definition is not ours, as tests install it."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Api, ApiError
from tests.cluster.waiting import wait_for

PATH = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: dict[str, Any] = {
    "metadata": {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "NodeResourceTopology",
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def install_topologies(api: Api) -> None:
    """Until it is served."""
    api.create(DEFINITIONS, CRD)
    wait_for("the kind", lambda: served(api))


def remove_topologies(api: Api) -> None:
    """With all objects, until it is gone."""
    api.delete(f"{DEFINITIONS}/{CRD['metadata']['name']}")
    wait_for("the kind is gone", lambda: not served(api))


def served(api: Api) -> bool:
    """Whether the kind is there and ready; a server that is about to serve it, or to stop, says 429."""
    try:
        return bool(api.exists(PATH))
    except ApiError as error:
        assert error.status == 429, error
        return False
