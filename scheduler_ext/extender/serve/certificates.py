"""EDGE: writes certificates for the extender's mutual TLS if nothing else issues them: its own, the scheduler's, a CA.

The CA's key is written beside the two folders that are deployed: no node needs it.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cotenant.base.errors import UsageError

AUTHORITY_DAYS: Final = 3650  # validity of the CA
DAYS: Final = 365  # validity of the two others
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "scheduler": ExtendedKeyUsageOID.CLIENT_AUTH}


def issue(folder: Path, url: str) -> list[Path]:
    """Write FOLDER/ca.key, and ca.crt, tls.crt, tls.key in FOLDER/server and FOLDER/scheduler; return their paths.

    The extender's certificate is for the host of `url`. Raise UsageError if `url` has no host, or if the folder has a
    CA already: a new one would make the issued certificates invalid.
    """
    host = urlsplit(url).hostname
    if not host:
        raise UsageError(f"--url {url!r} has no host", fix="Write https://HOST:PORT.")
    if (folder / "ca.key").exists():
        raise UsageError(f"{folder}/ca.key exists", fix="Name an empty folder: a new ca.key breaks old certificates.")
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign_certificate(_name("cotenant-extender-ca"), key, key, None, None)
    written = [_write(folder / "ca.key", _pem(key), 0o600)]
    for part, use in _USES.items():
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign_certificate(_name(f"cotenant-{part}"), own, key, use, host if part == "server" else None)
        written += [
            _write(folder / part / "ca.crt", authority.public_bytes(serialization.Encoding.PEM), 0o644),
            _write(folder / part / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644),
            _write(folder / part / "tls.key", _pem(own), 0o600),
        ]
    return written


def _sign_certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    use: x509.ObjectIdentifier | None,
    host: str | None,
) -> x509.Certificate:
    """Return a certificate; without `use` it is the CA's own."""
    now = datetime.datetime.now(datetime.UTC)
    days = DAYS if use else AUTHORITY_DAYS
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_name("cotenant-extender-ca"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=use is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if use is None:
        signs = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        built = built.add_extension(signs, critical=True)
    else:
        built = built.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if host is not None:
        name: x509.GeneralName
        try:
            name = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        built = built.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return built.sign(signer, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    return path
