"""EDGE: binds the pods that request it (cotenant.dev/bind).

The scheduler calls bind only for such pods; any other pod is refused. The call is idempotent, because its answer may be
lost: a pod that is on the requested node already counts as bound. The Binding has the pod's uid, so that a newer pod of
the same name is not bound instead, and the allocators' annotations: the API server writes them to the pod together with
the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cotenant.base.errors import ClusterError, ClusterUnreachable, UsageError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.scheduler_ext.extender.pod import NewPod, facts_of
from cotenant.scheduler_ext.extender.serve.allocation import FIELD_MANAGER, HardwareAllocation
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings

_TIMED_OUT: Final = "binding {}: the API server did not answer; the scheduler will retry"


class Binder:
    """Binds one pod at a time; `connect` returns a client for the calling thread."""

    def __init__(self, connect: Callable[[], KubeClient], allocation: HardwareAllocation | None = None) -> None:
        """Store the parts; nothing is sent yet. `allocation` assigns hardware to pods, None assigns none."""
        self._connect, self._allocation = connect, allocation or HardwareAllocation(())

    def bind(self, args: BindArgs) -> str:
        """Bind the pod to `args.node`; return "" if it is bound there, also by an earlier call, else why not.

        Errors of the API server become the returned text, because kube-scheduler reads that.
        """
        client = self._connect()
        try:
            return self._bind(client, args)
        except (ClusterError, UsageError) as error:
            return error.message
        finally:
            client.close()

    def _bind(self, client: KubeClient, args: BindArgs) -> str:
        """Bind the pod with an open client; return "" if it is bound there, else the reason.

        After an error the pod is read again, because the binding may have been made although its answer was lost.
        """
        address = Address("v1", "pods", args.name, args.namespace)
        pod = self._pod(client, address)
        if pod is None or (args.uid and pod.identity.uid != args.uid):
            return f"{address} does not exist any more"
        if pod.node:
            return "" if pod.node == args.node else f"pod {pod.key} is bound to {pod.node} already"
        if not pod.wants_bind:
            return f"{address} does not request a binding by cotenant; nothing was done"
        allotment = self._allocation.allocate(client, pod, args.node)
        if allotment.refusal:
            return f"{args.node}: {allotment.refusal}"
        intent = binding_creation(args, allotment.annotations)
        try:
            Writer(client, FIELD_MANAGER).send(intent)
        except ClusterError as error:
            current = self._pod(client, intent.address)  # done or not: look
            if current is None or current.node != args.node:
                lost = isinstance(error, ClusterUnreachable)
                return _TIMED_OUT.format(intent.address) if lost else error.message
        return ""

    def _pod(self, client: KubeClient, address: Address) -> NewPod | None:
        wire = client.get(address.path, PodWire)
        return facts_of(wire, LoadAwareSettings()) if wire else None


def binding_creation(args: BindArgs, annotations: Mapping[str, str] | None = None) -> Create:
    """Return the Binding, with annotations for the pod; its uid makes it fail for a newer pod of that name. Pure."""
    target = {"apiVersion": "v1", "kind": "Node", "name": args.node}
    metadata: dict[str, Any] = {
        "name": args.name,
        "namespace": args.namespace,
        **({"uid": args.uid} if args.uid else {}),
    }
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Create(Address("v1", "pods", args.name, args.namespace), body, "binding", "the scheduler chose this node")
