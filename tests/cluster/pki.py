"""Certificates of a test cluster: one authority, the API server's certificate, any user with any groups."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
SERVICE_ADDRESS = "10.99.0.1"
"""First address of the cluster's service network, the `kubernetes` Service's."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs what the cluster's members prove themselves with; everything lies in `folder`."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """The authority's own certificate (PEM)."""
        return self.folder / "ca.crt"

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """A new authority, and the key pair that signs service account tokens (`sa.key`, `sa.pub`)."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("test-ca", ())
        built = _builder(name, name, key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
        uses = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        _write(folder / "ca", key, built.add_extension(uses, critical=True).sign(key, hashes.SHA256()))
        account = rsa.generate_private_key(65537, 2048)
        (folder / "sa.key").write_bytes(_pem(account))
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)
        return cls(folder)

    def issue(self, file: str, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """(certificate, key) in FILE.crt and FILE.key; `hosts`: the addresses and names it serves, for a server."""
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        issuer = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        built = _builder(_name(user, groups), issuer.subject, key.public_key()).add_extension(uses, critical=False)
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        _write(self.folder / file, key, built.sign(signer, hashes.SHA256()))
        return self.folder / f"{file}.crt", self.folder / f"{file}.key"


def write_kubeconfig(path: Path, server: str, authority: Path, certificate: Path, key: Path) -> Path:
    """A kubeconfig of one context that names files, so that nothing secret is written twice."""
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    """Kubernetes reads the user from the common name and groups from organisations."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, public, x509.random_serial_number(), now - datetime.timedelta(hours=1), now + LIFETIME
    )


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    kind = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _write(stem: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    stem.with_suffix(".key").write_bytes(_pem(key))
    stem.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
