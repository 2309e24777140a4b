"""EDGE: prepares the embedded server as an installation does: CRDs, priority classes, service accounts."""

from __future__ import annotations

from typing import Final

import yaml

from cotenant.base.process.shipped_manifests import deploy
from cotenant_lab.simulation.local_client import LocalClient

FILES: Final = ("priorityclasses.yaml", "reservations.yaml")
_PATHS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
}


def define(hand: LocalClient) -> int:
    """Create the shipped CRDs, priority classes and service accounts that are missing; return how many were created."""
    created, root = 0, deploy()
    crds = sorted((file for file in (root / "crds").iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in (*crds, *(root / name for name in FILES)):
        for body in yaml.load_all(file.read_text(), Loader=loader):
            if body and (path := _PATHS.get(body["kind"])):
                created += hand.create(path.format(**body["metadata"]), body)
    return created
