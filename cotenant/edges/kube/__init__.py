"""EDGE: the Kubernetes API: authentication, reads and writes.

Identity: `auth`, `access`. Asking: `connection`, `client`. Reading: `discovery`, `live`, and mirrors kept by `watch`.
Writing: `writes`, `events`, and `lease`, which says who may.

`connect(settings)` is the entry point. Only `auth` imports the `kubernetes` package, and only to connect: it reads
kubeconfigs, exec plugins and service accounts. Requests go through http.client, which costs far less memory.
"""

from cotenant.edges.kube.access import access_review, review
from cotenant.edges.kube.auth import Access, connect
from cotenant.edges.kube.client import KubeClient
from cotenant.edges.kube.events import EventRecorder
from cotenant.edges.kube.lease import Lease, fresh_identity
from cotenant.edges.kube.series import EventSubject, Regarding
from cotenant.edges.kube.watch import Mirror
from cotenant.edges.kube.writes import Writer, send_all

__all__ = [
    "Access",
    "EventRecorder",
    "EventSubject",
    "KubeClient",
    "Lease",
    "Mirror",
    "Regarding",
    "Writer",
    "access_review",
    "connect",
    "fresh_identity",
    "review",
    "send_all",
]
