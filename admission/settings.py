"""Settings of the webhook server."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class AdmissionSettings(Section, frozen=True):
    """The address of the webhooks, their limits, and the lifetime of their certificates."""

    host: Annotated[
        str, setting("Address that the webhook server listens on.", when="the API server must reach it", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[
        int, setting("Port of the webhook server; 0 picks a free one.", when="the port is taken", ge=0, le=65535)
    ] = 9443
    max_body_bytes: int = 3_000_000
    """A larger AdmissionReview is refused unread. An API server sends no larger object (etcd's 1.5 MiB, old and new).
    """
    read_seconds: float = 5.0
    """A caller that takes longer to send its request is cut off. Below the webhook's own timeout: a slower caller got
    no answer anyway.
    """
    max_connections: int = 512
    """Further connections are answered with 503 at once: late is worse than never. Bounds the process's memory; API
    servers keep a few connections each.
    """
    translate_overhead: Annotated[
        bool,
        setting(
            "Also translate a pod's overhead to batch or mid resources. The API server's admission plugin RuntimeClass "
            "refuses such a pod, so this setting helps only where that plugin is disabled.",
            when="your RuntimeClasses have an overhead and their check is disabled",
        ),
    ] = False
    namespace: Annotated[
        str,
        setting(
            "Namespace of the webhook's Service and of the Secret with its certificate.",
            when="the webhook is installed in another namespace",
            min_length=1,
        ),
    ] = "cotenant"
    service: str = "cotenant-webhook"
    """Name of the webhook's Service; its certificate is for it. The name in the webhook configurations that `cotenant
    print-manifests` and the chart make.
    """
    configuration: str = "cotenant-webhook"
    """Name of both webhook configurations that get our certificate authority. The name that `cotenant print-manifests`
    and the chart make and grant rights for.
    """
    authority_days: int = 365
    """How long our own certificate authority is valid. Renewed automatically."""
    certificate_days: int = 90
    """How long a serving certificate is valid. Renewed automatically."""
    overlap_seconds: float = 600.0
    """How long a new authority is trusted beside the old one before and after it signs. Longer than the API server
    takes to see a changed webhook configuration.
    """
    certificate_check_seconds: Annotated[
        float,
        setting(
            "How often certificates and their files are checked.",
            when="your issuer renews certificates within minutes",
            unit="seconds",
            gt=0,
            le=3600,
        ),
    ] = 30.0
