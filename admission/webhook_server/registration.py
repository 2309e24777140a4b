"""The webhook configurations for one place: the shipped template with this installation's names and address. Pure."""

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
    """Objects to apply: Service and configurations; with a url (https, outside the cluster) the latter alone."""
    base = _validate_url(url)
    objects = [copy.deepcopy(dict(body)) for body in template]
    return [
        _configure_object(body, settings, config_namespace, base)
        for body in objects
        if not base or body["kind"] != "Service"
    ]


def _validate_url(url: str) -> str:
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError(f"--url {url!r} is not https://HOST[:PORT][/PATH]", fix="The API server calls only https.")
    return url.rstrip("/")


def _configure_object(body: Json, settings: AdmissionSettings, config_namespace: str, base: str) -> Json:
    """One object under this installation's names."""
    metadata = body["metadata"]
    if body["kind"] == "Service":
        metadata |= {"name": settings.service, "namespace": settings.namespace}
        return body
    metadata["name"] = settings.configuration
    for hook in body["webhooks"]:
        service = hook["clientConfig"]["service"]
        if base:
            hook["clientConfig"] = {"url": base + service["path"]}
        else:
            service |= {"name": settings.service, "namespace": settings.namespace}
        for expression in hook["namespaceSelector"]["matchExpressions"]:
            renamed = {DEFAULTS.namespace: settings.namespace, SYSTEM_NAMESPACE: config_namespace}
            expression["values"] = [renamed.get(value, value) for value in expression["values"]]
    return body


@dataclass(frozen=True, slots=True)
class ShippedRegistration:
    """The Service and webhook configurations that the package ships; `cotenant.cli.registry.PROVIDERS` makes one."""

    read: Callable[[], list[dict[str, Any]]]
    """Returns the objects as they are shipped, in the order of installation."""
    address_of: Callable[[dict[str, Any]], Address]
    """Returns the address of one of them."""
