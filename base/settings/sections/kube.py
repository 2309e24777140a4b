"""Settings of the Kubernetes API's client."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class KubeSettings(Section, frozen=True):
    """The cluster to connect to, the identity to use, and the timeouts and retries."""

    kubeconfig: Annotated[
        str,
        setting(
            "Path of a kubeconfig; empty means $KUBECONFIG, then ~/.kube/config, or the pod's own account.",
            when="the file is not at its usual place",
        ),
    ] = ""
    context: Annotated[
        str,
        setting(
            "Context of the kubeconfig; empty means its current one.",
            when="another cluster than the current one is meant",
        ),
    ] = ""
    timeout_seconds: Annotated[
        float,
        setting(
            "Longest silence of the API server before a request is given up.",
            when="the API server is far away or slow",
            unit="seconds",
            gt=0,
            le=300,
        ),
    ] = 10.0
    deadline_seconds: float = 60.0
    """Longest a whole answer may take, however it trickles in. The API server's own limit of a request is 60 seconds
    (--request-timeout).
    """
    retries: int = 4
    """Further tries after a busy server (429, 503) or a broken connection. Pacing of further tries, with the server's
    own Retry-After before it.
    """
    body_cap_bytes: int = 65_536
    """Larger objects are not written; etcd itself refuses 1.5 MiB. Our objects have kilobytes; etcd refuses 1.5 MiB,
    and a large one slows every watcher.
    """
    watch_idle_seconds: float = 90.0
    """A watch without an event or bookmark for so long is taken up anew: it may be dead. Most servers send a bookmark
    each minute. API servers send a bookmark about once a minute: after one and a half the connection is dead.
    """
    watch_backoff_seconds: float = 30.0
    """Longest pause between two tries to list or watch. client-go's reflector waits up to 30 seconds, too."""
