"""The shipped registration of the webhooks, for the command of a room below."""

from __future__ import annotations

from cotenant.admission.webhook_server.registration import ShippedRegistration
from cotenant.cli.cluster.installation.manifests import address_of, manifests


def shipped_registration() -> ShippedRegistration:
    """Return the component `registration` of an installation, for `cotenant serve webhook --install`."""
    return ShippedRegistration(lambda: [dict(manifest.body) for manifest in manifests(("registration",))], address_of)
