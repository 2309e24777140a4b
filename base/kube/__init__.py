"""EDGE: the client for the Kubernetes API: authentication, reads and writes.

Identity: `auth`. Requests: `connection`, `client`. Reading: `discovery`, `live`, and mirrors kept by `watch`. Writing:
`writes`, `events`, and `leader_election`, which decides which replica may write.

`connect(settings)` is the entry point. Only `auth` imports the `kubernetes` package, and only to connect: it reads
kubeconfigs, exec plugins and service accounts. Requests use http.client, which needs far less memory.
"""

from cotenant.base.kube.auth import Access, clock_of, clock_of_results, clock_to_read_by, connect
from cotenant.base.kube.client import KubeClient, access_review, review
from cotenant.base.kube.events import EventRecorder
from cotenant.base.kube.leader_election.lease import Lease, fresh_identity
from cotenant.base.kube.series import EventSubject, Regarding
from cotenant.base.kube.watch import Mirror
from cotenant.base.kube.writes import WriteConnections, Writer, send_all

__all__ = [
    "Access",
    "EventRecorder",
    "EventSubject",
    "KubeClient",
    "Lease",
    "Mirror",
    "Regarding",
    "WriteConnections",
    "Writer",
    "access_review",
    "clock_of",
    "clock_of_results",
    "clock_to_read_by",
    "connect",
    "fresh_identity",
    "review",
    "send_all",
]
