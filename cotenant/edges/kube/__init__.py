"""EDGE: the Kubernetes API: who we are (auth), get and list (connection, client), what we read (discovery, live).

`connect(settings)` is the door. The `kubernetes` package is imported by `auth` alone and only when somebody connects:
it knows kubeconfigs, exec plugins and service accounts. Requests go through http.client, which costs far less memory.
"""

from cotenant.edges.kube.auth import Access, connect
from cotenant.edges.kube.client import KubeClient

__all__ = ["Access", "KubeClient", "connect"]
