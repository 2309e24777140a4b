"""Settings of the Kubernetes API's client."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class KubeSettings(Section, frozen=True):
    """The cluster to connect to, the identity to use, and the timeouts and retries."""

    kubeconfig: Annotated[
        str, setting("Path of a kubeconfig; empty means $KUBECONFIG, then ~/.kube/config, or the pod's own account.")
    ] = ""
    context: Annotated[str, setting("Context of the kubeconfig; empty means its current one.")] = ""
    timeout_seconds: Annotated[
        float, setting("Longest silence of the API server before a request is given up.", unit="seconds", gt=0, le=300)
    ] = 10.0
    deadline_seconds: Annotated[
        float, setting("Longest a whole answer may take, however it trickles in.", unit="seconds", gt=0, le=3600)
    ] = 60.0
    page_size: Annotated[int, setting("Objects per page of a list.", unit="objects", ge=1, le=10_000)] = 500
    retries: Annotated[
        int, setting("Further tries after a busy server (429, 503) or a broken connection.", ge=0, le=20)
    ] = 4
    write_connections: Annotated[
        int, setting("Connections over which many objects are written at the same time.", ge=1, le=64)
    ] = 8
    body_cap_bytes: Annotated[
        int, setting("Larger objects are not written; etcd itself refuses 1.5 MiB.", unit="bytes", ge=1024, le=1 << 20)
    ] = 65_536
    watch_idle_seconds: Annotated[
        float,
        setting(
            "A watch without an event or bookmark for so long is taken up anew: it may be dead. Most servers send a "
            "bookmark each minute.",
            unit="seconds",
            gt=0,
            le=3600,
        ),
    ] = 90.0
    watch_backoff_seconds: Annotated[
        float, setting("Longest pause between two tries to list or watch.", unit="seconds", gt=0, le=300)
    ] = 30.0
    relist_seconds: Annotated[
        float,
        setting(
            "A mirror is compared with a fresh list so often, in case a watch lied.", unit="seconds", ge=1, le=86_400
        ),
    ] = 3600.0
