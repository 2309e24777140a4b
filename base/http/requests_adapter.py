"""EDGE: connections of the library `requests` whose certificates are verified as by cotenant's other clients."""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from cotenant.base.http.tls import accept_older_authorities


class CertificateAdapter(HTTPAdapter):
    """An adapter of the library `requests` that verifies certificates by `tls.accept_older_authorities`.

    A certificate must carry `server_name`, or the host's name if that is "".
    """

    def __init__(self, server_name: str = "", **options: Any) -> None:
        self._context = accept_older_authorities(create_urllib3_context())
        self._name = {"server_hostname": server_name} if server_name else {}
        super().__init__(**options)

    def build_connection_pool_key_attributes(
        self, request: PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Return the host and TLS attributes of a request, with our own TLS context unless verification is off."""
        host, tls = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {**tls, **self._name, **({} if verify is False else {"ssl_context": self._context})}
