"""EDGE: a pod's service account, without the `kubernetes` package, which is too large for the node agent.

    files, env = AccountFiles(token_file, ca_file), os.environ
    client = KubeClient(service_account(files, env), settings.kube, reload=lambda: service_account(files, env))

The kubelet renews the token in its file long before it expires; the file is read once a minute and after a refusal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.base.errors import ClusterError
from cotenant.base.kube.auth import Access

REREAD_SECONDS: Final = 60.0
_FIX: Final = (
    "Run in a pod with a service account, or set enforcer.api_server, enforcer.token_file and enforcer.ca_file, or "
    "read the pods from a file (--pods, enforcer.pods_file)."
)


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """Paths of a service account's token and certificate authority; `server` replaces the environment's API server."""

    token: str
    ca: str
    server: str = ""


def service_account(files: AccountFiles, env: Mapping[str, str]) -> Access:
    """Return the service account's access; ClusterError if the address, the token or the authority is missing."""
    if not Path(files.ca).is_file():
        raise ClusterError(f"no access to a cluster: there is no file {files.ca}", fix=_FIX)
    token = _Token(Path(files.token), time.monotonic)
    token.header()
    return Access("in-cluster", files.server or server_of(env), token.header, ca_file=files.ca)


def server_of(env: Mapping[str, str]) -> str:
    """Return the API server's URL from the environment that the kubelet sets; raise ClusterError outside of a pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClusterError("no access to a cluster: KUBERNETES_SERVICE_HOST is not set", fix=_FIX)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class _Token:
    """The text of the token's file, cached for a minute; while the file is unreadable the last text is used."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path, self._monotonic = path, monotonic
        self._text, self._read_at = "", -float("inf")

    def header(self) -> str:
        """Return the value of the Authorization header."""
        now = self._monotonic()
        if now - self._read_at >= REREAD_SECONDS or not self._text:
            self._text, self._read_at = self._read(), now
        return f"Bearer {self._text}"

    def _read(self) -> str:
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._text:
                return self._text
            raise ClusterError(f"no access to a cluster: the token cannot be read: {error}", fix=_FIX) from error
        if not text or any(c.isspace() for c in text):
            raise ClusterError(f"no access to a cluster: {self._path} contains no token", fix=_FIX)
        return text
