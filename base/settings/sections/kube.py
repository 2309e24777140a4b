"""Settings of the Kubernetes API's client."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, constant, setting


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
    deadline_seconds: Annotated[
        float, constant("Longest a whole answer may take, however it trickles in.", unit="seconds")
    ] = 60.0
    retries: Annotated[int, constant("Further tries after a busy server (429, 503) or a broken connection.")] = 4
    body_cap_bytes: Annotated[
        int, constant("Larger objects are not written; etcd itself refuses 1.5 MiB.", unit="bytes")
    ] = 65_536
    watch_idle_seconds: Annotated[
        float,
        constant(
            "A watch without an event or bookmark for so long is taken up anew: it may be dead. Most servers send a "
            "bookmark each minute.",
            unit="seconds",
        ),
    ] = 90.0
    watch_backoff_seconds: Annotated[
        float, constant("Longest pause between two tries to list or watch.", unit="seconds")
    ] = 30.0
