"""What an installation leaves in a cluster: every object of every kind is searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.cluster.api import Api, ApiError

Json = dict[str, Any]
CLAIM = "persistentvolumeclaims/cotenant/cotenant-store"
KEPT = {
    "configmaps/koordinator-system/cotenant-ledger",
    "namespaces/koordinator-system",
    CLAIM,
    "namespaces/cotenant",
    "configmaps/cotenant/kube-root-ca.crt",
    "serviceaccounts/cotenant/default",
}
"""By design: the audit log's head, the volume with history and ledger, and the namespaces that hold them."""


def everything(api: Api) -> Iterator[tuple[str, Json]]:
    """Every object of every kind that the server lists, without the server's own notes of who wrote what."""
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in api.get("/apis")["groups"])]
    for version in versions:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for kind in api.get(root)["resources"]:
            if "list" not in kind["verbs"] or "/" in kind["name"] or kind["name"] == "events":
                continue
            try:
                items = api.items(f"{root}/{kind['name']}")
            except ApiError as error:  # a definition that is going away
                assert error.status == 404
                continue
            for item in items:
                meta = item["metadata"]
                meta.pop("managedFields", None)
                parts = (kind["name"], meta.get("namespace", ""), meta["name"])
                yield "/".join(part for part in parts if part), item


WORDS = ("cotenant", "kubernetes.io/batch-", "kubernetes.io/mid-", "koord-")


def ours(api: Api) -> set[str]:
    """Objects in which anything says that it is of cotenant, or that lend what only cotenant lends."""
    return {name for name, item in everything(api) if next(traces(item), None)}


def traces(item: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each key or text of an object that says so."""
    if isinstance(item, dict):
        for key, value in item.items():
            yield from (f"{path}.{key}",) if any(word in key for word in WORDS) else traces(value, f"{path}.{key}")
    elif isinstance(item, list):
        for number, value in enumerate(item):
            yield from traces(value, f"{path}[{number}]")
    elif isinstance(item, str) and any(word in item for word in WORDS):
        yield f"{path}={item}"
