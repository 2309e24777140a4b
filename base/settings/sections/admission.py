"""Settings of the webhook server."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class AdmissionSettings(Section, frozen=True):
    """The address of the webhooks, what they accept, and the lifetime of their certificates."""

    host: Annotated[str, setting("Address that the webhook server listens on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, setting("Port of the webhook server; 0 picks a free one.", ge=0, le=65535)] = 9443
    max_body_bytes: Annotated[
        int, setting("A larger AdmissionReview is refused unread.", unit="bytes", ge=10_000, le=100_000_000)
    ] = 3_000_000
    read_seconds: Annotated[
        float, setting("A caller that takes longer to send its request is cut off.", unit="seconds", gt=0, le=60)
    ] = 5.0
    max_connections: Annotated[
        int, setting("Further connections are answered with 503 at once: late is worse than never.", ge=1, le=65_536)
    ] = 512
    translate_overhead: Annotated[
        bool,
        setting(
            "Also translate a pod's overhead to its class's resources. The API server's own RuntimeClass check refuses"
            " such a pod, so it only helps where that plugin is switched off."
        ),
    ] = False
    namespace: Annotated[
        str, setting("Namespace of the webhook's Service and of the Secret with its certificate.", min_length=1)
    ] = "cotenant"
    service: Annotated[str, setting("Name of the webhook's Service; its certificate is for it.", min_length=1)] = (
        "cotenant-webhook"
    )
    certificate_secret_name: Annotated[
        str, setting("Secret that holds the webhook's own certificate.", min_length=1)
    ] = "cotenant-webhook-certificate"  # noqa: S105 - its name
    configuration: Annotated[
        str, setting("Name of both webhook configurations that get our certificate authority.", min_length=1)
    ] = "cotenant-webhook"
    authority_days: Annotated[
        int, setting("How long our own certificate authority is valid.", unit="days", ge=1, le=3650)
    ] = 365
    certificate_days: Annotated[int, setting("How long a serving certificate is valid.", unit="days", ge=1, le=365)] = (
        90
    )
    overlap_seconds: Annotated[
        float,
        setting(
            "How long a new authority is trusted beside the old one before and after it signs.",
            unit="seconds",
            ge=0,
            le=86_400,
        ),
    ] = 600.0
    certificate_check_seconds: Annotated[
        float, setting("How often certificates and their files are looked at.", unit="seconds", gt=0, le=3600)
    ] = 30.0
