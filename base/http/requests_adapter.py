"""EDGE: how a session of requests opens its connections: certificates are verified as everywhere else."""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from cotenant.base.http.tls import accept_older_authorities


class CertificateAdapter(HTTPAdapter):
    """An adapter that verifies by `tls.accept_older_authorities`; for one authority, which the session names."""

    def __init__(self, **options: Any) -> None:
        """Create an adapter; options as of its base."""
        self._context = accept_older_authorities(create_urllib3_context())
        super().__init__(**options)

    def build_connection_pool_key_attributes(
        self, request: PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Return host and TLS of a request, with our context unless nothing is to be verified."""
        host, tls = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, tls if verify is False else {**tls, "ssl_context": self._context}
