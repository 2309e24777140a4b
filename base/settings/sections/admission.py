"""Settings of the webhook server."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, constant, setting


class AdmissionSettings(Section, frozen=True):
    """The address of the webhooks, what they accept, and the lifetime of their certificates."""

    host: Annotated[
        str, setting("Address that the webhook server listens on.", when="the API server must reach it", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[
        int, setting("Port of the webhook server; 0 picks a free one.", when="the port is taken", ge=0, le=65535)
    ] = 9443
    max_body_bytes: Annotated[int, constant("A larger AdmissionReview is refused unread.", unit="bytes")] = 3_000_000
    read_seconds: Annotated[
        float, constant("A caller that takes longer to send its request is cut off.", unit="seconds")
    ] = 5.0
    max_connections: Annotated[
        int, constant("Further connections are answered with 503 at once: late is worse than never.")
    ] = 512
    translate_overhead: Annotated[
        bool,
        setting(
            "Also translate a pod's overhead to its class's resources. The API server's own RuntimeClass check refuses"
            " such a pod, so it only helps where that plugin is switched off.",
            when="your RuntimeClasses have an overhead and the check is off",
        ),
    ] = False
    namespace: Annotated[
        str,
        setting(
            "Namespace of the webhook's Service and of the Secret with its certificate.",
            when="it is installed elsewhere",
            min_length=1,
        ),
    ] = "cotenant"
    service: Annotated[str, constant("Name of the webhook's Service; its certificate is for it.")] = "cotenant-webhook"
    configuration: Annotated[
        str, constant("Name of both webhook configurations that get our certificate authority.")
    ] = "cotenant-webhook"
    authority_days: Annotated[int, constant("How long our own certificate authority is valid.", unit="days")] = 365
    certificate_days: Annotated[int, constant("How long a serving certificate is valid.", unit="days")] = 90
    overlap_seconds: Annotated[
        float,
        constant("How long a new authority is trusted beside the old one before and after it signs.", unit="seconds"),
    ] = 600.0
    certificate_check_seconds: Annotated[
        float,
        setting(
            "How often certificates and their files are looked at.",
            when="an issuer of yours renews certificates within minutes",
            unit="seconds",
            gt=0,
            le=3600,
        ),
    ] = 30.0
