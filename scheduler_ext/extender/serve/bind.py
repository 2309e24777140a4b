"""EDGE: binds the pods that ask for it (they request cotenant.dev/bind), in this one place.

The scheduler sends a bind only for such pods; any other pod is refused. The call is idempotent, because its answer may
be lost: a pod that is on the requested node already counts as bound. The binding carries the pod's uid, so that a newer
pod of the same name is not bound in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cotenant.core.adapters.kube import KubeClient, Writer
from cotenant.core.model.errors import ClusterError, ClusterUnreachable
from cotenant.core.model.kubernetes.intent import Address, Create
from cotenant.core.settings.sections.extender import LoadAwareSettings
from scheduler_ext.extender.pod import PodFacts, PodWire, facts_of
from scheduler_ext.extender.serve.wire import BindArgs

FIELD_MANAGER: Final = "cotenant-extender"
_TIMED_OUT: Final = "binding {}: the API server gave no answer; the scheduler will ask again"


class Binder:
    """Binds one pod after another; `connect` gives a client for the calling thread."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        """Nothing is asked yet."""
        self._connect = connect

    def bind(self, args: BindArgs) -> str:
        """Bind the pod to `args.node`; returns "" when it is bound there, also by an earlier call, else why not.

        Errors of the API server become the returned text, because that is what kube-scheduler reads.
        """
        client = self._connect()
        try:
            return self._bind(client, args)
        except ClusterError as error:
            return error.message
        finally:
            client.close()

    def _bind(self, client: KubeClient, args: BindArgs) -> str:
        """As `bind`; after an error the pod is read again, because a binding whose answer was lost may be done."""
        address = Address("v1", "pods", args.name, args.namespace)
        pod = self._pod(client, address)
        if pod is None or (args.uid and pod.identity.uid != args.uid):
            return f"{address} is not there any more"
        if pod.node:
            return self._already(pod, args.node)
        if not pod.wants_bind:
            return f"{address} does not ask to be bound by cotenant; nothing was done"
        try:
            Writer(client, FIELD_MANAGER).send(binding(args))
        except ClusterUnreachable:
            current = self._pod(client, address)  # done or not: look
            return "" if current is not None and current.node == args.node else _TIMED_OUT.format(address)
        except ClusterError as error:
            current = self._pod(client, address)
            return "" if current is not None and current.node == args.node else error.message
        return ""

    def _already(self, pod: PodFacts, node: str) -> str:
        return "" if pod.node == node else f"pod {pod.key} is bound to {pod.node} already"

    def _pod(self, client: KubeClient, address: Address) -> PodFacts | None:
        wire = client.get(address.path, PodWire)
        return facts_of(wire, LoadAwareSettings()) if wire else None


def binding(args: BindArgs) -> Create:
    """The Binding to create; with the uid the API server refuses it for a newer pod of the same name. Pure."""
    target = {"apiVersion": "v1", "kind": "Node", "name": args.node}
    metadata = {"name": args.name, "namespace": args.namespace, **({"uid": args.uid} if args.uid else {})}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Create(Address("v1", "pods", args.name, args.namespace), body, "binding", "the scheduler chose this node")
