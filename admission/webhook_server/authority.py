"""Our own certificate authority and serving certificate: what is due, and the new ones. Pure except for key generation.

Replacing an authority takes three steps, `overlap_seconds` apart so that each can spread: the next authority is added
to the bundle; it signs a new serving certificate, and the old one stays in the bundle; the old one is removed. So at
any time the served certificate verifies with the present bundle and with the bundle of one step before.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED_SECONDS: Final = 3600
"""Certificates begin an hour ago, for callers whose clock is late."""
RENEWED_IN_LAST: Final = 1 / 3
"""Renewal begins in the last third of a certificate's life."""
DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Material:
    """All stored certificates: the present authority, its serving certificate, the next authority, and former ones."""

    authority: Pair
    serving: Pair
    following: Pair | None = None
    former: bytes = b""

    @property
    def bundle(self) -> bytes:
        """Certificates (PEM) that clients should trust, the present authority first."""
        return self.authority.certificate + (self.following.certificate if self.following else b"") + self.former


@dataclass(frozen=True, slots=True)
class CertificatePolicy:
    """The rules for new certificates: their DNS names and addresses, and the lifetimes of authority and certificate."""

    names: tuple[str, ...]
    authority_days: float = 365.0
    certificate_days: float = 90.0
    overlap_seconds: float = 600.0


def renew_material(
    stored: Material | None, policy: CertificatePolicy, now_seconds: float, trusted: bytes | None = None
) -> Material:
    """Return the certificates to store at this Unix time; `stored` itself if no renewal is due.

    `trusted` is the bundle that clients have now, None if unknown; the next authority signs nothing before it is in
    that bundle.
    """
    if stored is None or now_seconds >= _ends_at(stored.authority):
        authority = _authority(policy, now_seconds)
        return Material(authority, _issue_serving_certificate(authority, policy, now_seconds))
    following = stored.following
    if following is None and _due(stored.authority, now_seconds):
        return replace(stored, following=_authority(policy, now_seconds))
    # Callers had time to trust the next authority and, where that can be asked, do trust it
    if (
        following is not None
        and now_seconds >= _issued_at(following) + policy.overlap_seconds
        and (trusted is None or following.certificate.strip() in trusted)
    ):
        serving = _issue_serving_certificate(following, policy, now_seconds)
        return Material(following, serving, None, stored.authority.certificate)
    if stored.former and now_seconds >= _issued_at(stored.serving) + policy.overlap_seconds:
        stored = replace(stored, former=b"")
    if _due(stored.serving, now_seconds) or not _fits(stored, policy):
        stored = replace(stored, serving=_issue_serving_certificate(stored.authority, policy, now_seconds))
    return stored


def readable(material: Material) -> bool:
    """Return whether all certificates and keys can be parsed and every key belongs to its certificate."""
    pairs = [pair for pair in (material.authority, material.serving, material.following) if pair]
    try:
        for pair in pairs:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, None)
            if key.public_key() != certificate.public_key():
                return False
        if material.former:
            x509.load_pem_x509_certificate(material.former)
    except (ValueError, TypeError):
        return False
    return True


def _due(pair: Pair, now_seconds: float) -> bool:
    begins, ends = _issued_at(pair), _ends_at(pair)
    return now_seconds >= ends - (ends - begins) * RENEWED_IN_LAST


def _fits(stored: Material, policy: CertificatePolicy) -> bool:
    """Return whether the serving certificate is for these names and signed by the present authority."""
    certificate = x509.load_pem_x509_certificate(stored.serving.certificate)
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(stored.authority.certificate))
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return False
    return list(alternative_names) == _alternative_names(policy.names)


def _issued_at(pair: Pair) -> float:
    begins = x509.load_pem_x509_certificate(pair.certificate).not_valid_before_utc
    return begins.timestamp() + BACKDATED_SECONDS


def _ends_at(pair: Pair) -> float:
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc.timestamp()


def _authority(policy: CertificatePolicy, now_seconds: float) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own for each: verifiers look issuers up by name.
    name = _common_name(f"cotenant-webhook authority {int(now_seconds)} {x509.random_serial_number() % 10**6}")
    builder = (
        _builder(name, name, key.public_key(), now_seconds, policy.authority_days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _issue_serving_certificate(authority: Pair, policy: CertificatePolicy, now_seconds: float) -> Pair:
    """Issue a serving certificate for the policy's names that does not outlive its authority."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    days = min(policy.certificate_days, (_ends_at(authority) - now_seconds) / DAY)
    builder = (
        _builder(_common_name("cotenant-webhook"), issuer.subject, key.public_key(), now_seconds, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(policy.names)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_seconds: float, days: float
) -> x509.CertificateBuilder:
    """Return an unsigned certificate, valid for `days` from BACKDATED_SECONDS before now, as clocks differ."""
    begins = datetime.datetime.fromtimestamp(int(now_seconds) - BACKDATED_SECONDS, datetime.UTC)
    ends = datetime.datetime.fromtimestamp(int(now_seconds + days * DAY), datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    general_names: list[x509.GeneralName] = []
    for name in names:
        try:
            general_names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general_names.append(x509.DNSName(name))
    return general_names


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return Pair(certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
