"""EDGE: a client of the embedded server within its process, as one account, for the simulated controllers.

Routing, rights, checks, admission and versions are the same as over HTTP; only TLS and JSON are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR, Account
from cotenant_lab.simulation.api_server.routes import Api, EmbeddedRequest
from cotenant_lab.simulation.api_server.verbs import JSON_PATCH
from cotenant_lab.simulation.population import KINDS

Json = dict[str, Any]
NOT_FOUND, CONFLICT = 404, 409


class LocalClient:
    """A client of the simulated API, for one thread at a time.

    A write to an object that is gone or has changed does nothing and returns False; the next read shows its new state.
    """

    def __init__(self, api: Api, name: str = "cotenant-demo-controllers") -> None:
        """Write as the user of this name."""
        self._api, self._account, self._name = api, Account(name, ADMINISTRATOR.rules), name

    def create(self, path: str, body: Json) -> bool:
        """Create an object; return whether it was created."""
        return self._sent("POST", path, body)

    def told(self, item: Json, status: Json) -> bool:
        """Write an object's status unless the object has changed; return whether it was written."""
        return self._sent("PUT", f"{path_of(item)}/status", {**item, "status": status})

    def patched(self, item: Json, steps: Sequence[Json]) -> bool:
        """Apply a JSON patch to an object; return whether it was applied."""
        return self._sent("PATCH", path_of(item), list(steps), JSON_PATCH)

    def bound(self, pod: Json, node: str) -> bool:
        """Bind a pod to a node; return whether it was bound."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return self._sent("POST", f"{path_of(pod)}/binding", body)

    def ended(self, item: Json) -> bool:
        """Delete exactly this object, by its uid; return whether it was deleted."""
        return self._sent("DELETE", path_of(item), {"preconditions": {"uid": item["metadata"]["uid"]}})

    def _sent(self, method: str, path: str, body: Any, kind: str = "application/json") -> bool:
        query = {"fieldManager": self._name}
        try:
            self._api.answer(EmbeddedRequest(method, path, self._account, query, kind, body, self._name))
        except Refusal as refusal:
            if refusal.code in (NOT_FOUND, CONFLICT):
                return False
            raise
        return True


def path_of(item: Json) -> str:
    """Return the API path of an object of the kinds that stand-ins write."""
    version, kind = item["apiVersion"], item["kind"]
    plural = KINDS[kind][1] if kind in KINDS else f"{kind.lower()}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = item["metadata"].get("namespace")
    inside = f"{root}/namespaces/{namespace}" if namespace else root
    return f"{inside}/{plural}/{item['metadata']['name']}"
