"""The webhook configurations of one installation: the shipped template with its names and address. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cotenant.admission.settings import AdmissionSettings
from cotenant.base.errors import UsageError

if TYPE_CHECKING:
    from cotenant.base.kubernetes.intent import Address

DEFAULTS: Final = AdmissionSettings()
SYSTEM_NAMESPACE: Final = "koordinator-system"

Json = dict[str, Any]


def registration_objects(
    template: Iterable[Mapping[str, Any]], settings: AdmissionSettings, config_namespace: str, url: str = ""
) -> list[Json]:
    """Return the webhook configurations, and their Service unless they name a `url` outside the cluster instead."""
    parts = urlsplit(url)
    if url and (parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username):
        raise UsageError(f"--url {url!r} is not https://HOST[:PORT][/PATH]", fix="The API server calls only https.")
    renamed = {DEFAULTS.namespace: settings.namespace, SYSTEM_NAMESPACE: config_namespace}
    place = {"name": settings.service, "namespace": settings.namespace}
    objects = [copy.deepcopy(dict(body)) for body in template if not url or body["kind"] != "Service"]
    for body in objects:
        body["metadata"] |= place if body["kind"] == "Service" else {"name": settings.configuration}
        for hook in body["webhooks"] if body["kind"] != "Service" else ():
            service = hook["clientConfig"]["service"]
            if url:
                hook["clientConfig"] = {"url": url.rstrip("/") + service["path"]}
            else:
                service |= place
            for expression in hook["namespaceSelector"]["matchExpressions"]:
                expression["values"] = [renamed.get(value, value) for value in expression["values"]]
    return objects


@dataclass(frozen=True, slots=True)
class ShippedRegistration:
    """Reads the shipped Service and webhook configurations; `cotenant.cli.registry.PROVIDERS` makes one."""

    read: Callable[[], list[dict[str, Any]]]
    """Returns the objects as they are shipped, in the order of installation."""
    address_of: Callable[[dict[str, Any]], Address]
    """Returns the address of one of them."""
