"""EDGE: the serving certificate of the webhooks: stores, renews and reloads it, and injects its CA bundle.

A `CertificateController` checks every half minute what is stored (a Secret that all replicas share, or a folder), what
is due by `webhook_server.authority`, whether both webhook configurations have the bundle, and whether the server uses
the newest certificate. Replicas agree because a Secret is only replaced if it is still the version that was read. For
certificates from elsewhere (cert-manager's mounted files) a `CertificateFileReloader` only reloads them; the bundle is
then injected by the other program.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.authority import CertificatePolicy, Material, Pair, readable, renew_material
from cotenant.base.errors import ClusterConflict, ClusterError, CotenantError, StoreError, UsageError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.protocol import WEBHOOK
from cotenant.base.process.clock import Clock
from cotenant.base.process.files import FILE_MODE, replace_atomically

CERTIFICATE_SECRET_NAME: Final = "cotenant-webhook-certificate"  # noqa: S105 - a name
"""Secret that holds the webhook's own certificate. The name that `cotenant print-manifests` and the chart make and
grant rights for."""

FIELD_MANAGER: Final = WEBHOOK
TRIES: Final = 5
REGISTRATION: Final = "admissionregistration.k8s.io/v1"
CONFIGURATIONS: Final = {
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}
_FILES: Final = {
    "authority": ("ca.crt", "ca.key"),
    "serving": ("tls.crt", "tls.key"),
    "following": ("next-ca.crt", "next-ca.key"),
}
_FORMER: Final = "former-ca.crt"
_log = structlog.get_logger(__name__)

Show = Callable[[Pair], None]
"""Makes the server show a certificate from the next connection on."""


class SecretStore:
    """Stores certificates in the Secret in our own namespace."""

    def __init__(self, client: KubeClient, settings: AdmissionSettings) -> None:
        self._client = client
        self._writer = Writer(client, FIELD_MANAGER)
        self._address = Address("v1", "secrets", CERTIFICATE_SECRET_NAME, settings.namespace)

    def read(self) -> tuple[Material | None, str]:
        """Return the Secret's content and resourceVersion ("" if there is no Secret)."""
        secret = self._client.get(self._address.path)
        if secret is None:
            return None, ""
        version = str(secret["metadata"].get("resourceVersion", ""))
        try:
            data = {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}
        except ValueError:
            return None, version
        return _material(data), version

    def write(self, material: Material, version: str) -> None:
        """Write the Secret; raise ClusterConflict if its resourceVersion is no longer `version` ("": any will do)."""
        data = {key: base64.b64encode(value).decode() for key, value in _contents(material).items()}
        body = self._address.manifest("Secret", {"resourceVersion": version} if version else {}, data=data)
        self._writer.send(Apply(self._address, body, why="renew the webhook's certificate"))


class FolderStore:
    """Stores certificates in a folder of one replica: outside a cluster, or if no Secret may be written."""

    def __init__(self, folder: Path) -> None:
        """Store the path; the folder is created at the first write."""
        self._folder = folder

    def read(self) -> tuple[Material | None, str]:
        """Return the files' content; the version is always ""."""
        names = [*(name for pair in _FILES.values() for name in pair), _FORMER]
        try:
            contents = {n: (self._folder / n).read_bytes() for n in names if (self._folder / n).is_file()}
        except OSError as error:
            raise self._store_error("read", error) from error
        return _material(contents), ""

    def write(self, material: Material, version: str) -> None:  # noqa: ARG002 - one writer only
        """Replace each file of the folder atomically, readable only by our user."""
        contents = _contents(material)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in [*(name for pair in _FILES.values() for name in pair), _FORMER]:
                if name in contents:
                    replace_atomically(self._folder / name, contents[name], FILE_MODE)
                else:
                    (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._store_error("written", error) from error

    def _store_error(self, verb: str, error: OSError) -> StoreError:
        message = f"certificates in {self._folder} cannot be {verb}: {error.strerror or error}"
        return StoreError(
            message, fix="Make that folder writable and free some space in it, or choose another --cert-dir."
        )


class Injector:
    """Writes the CA bundle to our webhooks in each webhook configuration that lacks it; it changes no other field."""

    def __init__(self, client: KubeClient, settings: AdmissionSettings) -> None:
        self._client = client
        self._writer = Writer(client, FIELD_MANAGER)
        self._addresses = [Address(REGISTRATION, plural, settings.configuration) for plural in CONFIGURATIONS]

    def trusted(self) -> bytes | None:
        """Return the bundle of all webhooks; None if no configuration is installed, empty if they differ."""
        bundles = {bundle for address in self._addresses for bundle in self._bundles(address).values()}
        return (bundles.pop() if len(bundles) == 1 else b"") if bundles else None

    def inject(self, bundle: bytes) -> int:
        """Write the bundle where it differs, and return the number of configurations written."""
        written = 0
        text = base64.b64encode(bundle).decode()
        for address in self._addresses:
            bundles = self._bundles(address)
            if bundles and set(bundles.values()) != {bundle}:
                hooks = [{"name": name, "clientConfig": {"caBundle": text}} for name in bundles]
                body = address.manifest(CONFIGURATIONS[address.resource], webhooks=hooks)
                self._writer.send(Apply(address, body, why="let the API server trust the webhook's certificate"))
                written += 1
        return written

    def _bundles(self, address: Address) -> dict[str, bytes]:
        """Return each webhook's present bundle: {webhook name: bundle}."""
        configuration: Any = self._client.get(address.path)
        hooks = (configuration or {}).get("webhooks") or []
        return {h["name"]: base64.b64decode((h.get("clientConfig") or {}).get("caBundle") or "") for h in hooks}


class CertificateController:
    """Maintains our own certificate: each call of `step` does everything that is due."""

    def __init__(
        self,
        store: SecretStore | FolderStore,
        policy: CertificatePolicy,
        clock: Clock,
        show: Show,
        injector: Injector | None,
    ) -> None:
        """Store the arguments; without an `injector` the webhook configurations' `caBundle` is not written."""
        self._store, self._policy, self._clock, self._show, self._injector = store, policy, clock, show, injector
        self._shown: Pair | None = None
        self.error: CotenantError | None = None
        """Why the last step did not end well, or None."""

    def step(self) -> Material:
        """Renew what is due, inject the bundle, then serve the certificate; raise CotenantError if storing failed."""
        try:
            material = self._renew_stored_material()
        except CotenantError as error:
            self.error = error
            raise
        trouble: CotenantError | None = None
        if self._injector is not None:
            try:
                self._injector.inject(material.bundle)
            except ClusterError as error:
                _log.warning("bundle not injected", error=error.message, fix=error.fix)
                trouble = error
        self.error = trouble
        if material.serving != self._shown:
            self._show(material.serving)
            self._shown = material.serving
        return material

    def _renew_stored_material(self) -> Material:
        """Return the stored material once nothing is due; raise ClusterError after TRIES conflicts in a row."""
        for _ in range(TRIES):
            stored, version = self._store.read()
            now, trusted = self._clock.now_seconds(), None
            if self._injector is not None and stored is not None and stored.following is not None:
                # The next authority waits for its place in the bundle that callers hold. While that cannot be asked
                # for it goes on waiting, and the certificate is renewed by the present one.
                try:
                    trusted = self._injector.trusted()
                except ClusterError as error:
                    _log.warning("the API server's trusted CAs cannot be read", error=error.message, fix=error.fix)
                    trusted = b""
            due = renew_material(stored, self._policy, now, trusted)
            if due is stored:
                return stored
            try:
                self._store.write(due, version)
                return due
            except ClusterConflict:
                continue  # another replica was faster: take what it stored
        raise ClusterError(
            f"the webhook's certificate was changed by other writers {TRIES} times in a row",
            fix="Check which other program writes the certificate.",
        )


class CertificateFileReloader:
    """Serves tls.crt and tls.key of a folder that another program renews (cert-manager)."""

    def __init__(self, folder: Path, show: Show) -> None:
        self._folder, self._show = folder, show
        self._shown: Pair | None = None
        self.error: CotenantError | None = None

    def step(self) -> None:
        """Serve the files' certificate if it has changed; raise UsageError if there has never been a usable one."""
        try:
            pair = Pair((self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes())
            if pair != self._shown:
                self._show(pair)
                self._shown = pair
            self.error = None
        except (OSError, ValueError) as error:
            self.error = UsageError(
                f"the certificate in {self._folder} cannot be used: {error}", fix="Write tls.crt and tls.key as PEM."
            )
            if self._shown is None:
                raise self.error from error


def policy_of(settings: AdmissionSettings, also: tuple[str, ...] = ()) -> CertificatePolicy:
    """Return the certificate policy: the Service's names and `also`, with lifetimes from the settings."""
    service = f"{settings.service}.{settings.namespace}.svc"
    names = tuple(dict.fromkeys((service, f"{service}.cluster.local", *also)))
    return CertificatePolicy(names, settings.authority_days, settings.certificate_days, settings.overlap_seconds)


def _material(data: dict[str, bytes]) -> Material | None:
    """Return the material from file contents; None if a necessary part is missing or unreadable."""
    pairs = {part: Pair(data[c], data[k]) for part, (c, k) in _FILES.items() if data.get(c) and data.get(k)}
    if "authority" not in pairs or "serving" not in pairs:
        return None
    material = Material(pairs["authority"], pairs["serving"], pairs.get("following"), data.get(_FORMER, b""))
    return material if readable(material) else None


def _contents(material: Material) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for part, (certificate, key) in _FILES.items():
        pair: Pair | None = getattr(material, part)
        if pair is not None:
            files |= {certificate: pair.certificate, key: pair.key}
    return {**files, **({_FORMER: material.former} if material.former else {})}
