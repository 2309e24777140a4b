"""An OpenID Connect provider over real HTTP(S): authorization code with PKCE, refresh tokens, RS256 tokens and keys.

Its page asks only for a name: whoever is in `people` gets in. A test can make it lie: `claims` is applied to what a
token says, `signer` makes its signature, `silent` refuses to answer.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "cotenant"
Claims = dict[str, Any]


def fresh_key() -> RSAKey:
    """A key pair with a name of its own."""
    return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})


@dataclass
class Provider:
    """What it knows and how it behaves."""

    people: dict[str, Claims] = field(default_factory=dict)
    secret: str = "shh"
    """The client's; empty: a public client."""
    proof: bool = True
    """Whether it insists on PKCE, which not every client speaks."""
    lifetime_seconds: int = 300
    claims: Callable[[Claims], Claims] = dict
    key: RSAKey = field(default_factory=fresh_key)
    signer: Callable[[Claims], str] | None = None
    silent: bool = False
    stalled: threading.Event | None = None
    """Until it is set no request is answered."""
    refresh: bool = True
    revoked: bool = False
    issuer: str = ""
    paths: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshes: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, **more: Any) -> str:
        """A signed token of that person."""
        now = int(time.time())
        standard_claims = {
            "iss": self.issuer,
            "sub": f"id-of-{name}",
            "aud": CLIENT,
            "iat": now,
            "exp": now + self.lifetime_seconds,
        }
        payload = self.claims(
            {**standard_claims, "email": name, "email_verified": True, **self.people.get(name, {}), **more}
        )
        return self.signer(payload) if self.signer else self.signed(payload)

    def signed(self, claims: Claims, key: RSAKey | None = None) -> str:
        """By its own key, or another under the same name."""
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, key or self.key)

    def tokens(self, name: str, nonce: str) -> dict[str, Any]:
        token_response: dict[str, Any] = {
            "access_token": secrets.token_urlsafe(8),
            "token_type": "Bearer",
            "expires_in": 300,
        }
        token_response["id_token"] = self.token(name, **({"nonce": nonce} if nonce else {}))
        if self.refresh:
            token_response["refresh_token"] = secrets.token_urlsafe(16)
            self.refreshes[token_response["refresh_token"]] = name
        return token_response


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        self._answer(dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self._answer(dict(parse_qsl(body)))

    def _answer(self, fields: dict[str, str]) -> None:
        provider, path = self.provider, urlsplit(self.path).path
        provider.paths.append(path)
        if provider.stalled is not None:
            provider.stalled.wait(60)
        if provider.silent:
            self._send(503, b"{}")
            return
        routes = {
            "/.well-known/openid-configuration": self._about,
            "/jwks": lambda _given: self._json({"keys": [provider.key.as_dict(private=False)]}),
            "/authorize": self._authorize,
            "/token": self._token,
            "/favicon.ico": lambda _given: self._send(200, b"", "image/x-icon"),
            "/end": lambda _given: self._send(200, b"<h1>Bye</h1>", "text/html"),
        }
        routes.get(path, lambda _given: self._send(404, b"{}"))(fields)

    def _about(self, _given: Mapping[str, str]) -> None:
        issuer = self.provider.issuer
        self._json(
            {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "jwks_uri": f"{issuer}/jwks",
                "end_session_endpoint": f"{issuer}/end",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    def _authorize(self, fields: dict[str, str]) -> None:
        """A form that asks for a name; with one, back to the application."""
        name = fields.pop("person", "")
        if not name:
            hidden = "".join(
                f'<input type="hidden" name="{html.escape(k)}" value="{html.escape(v)}">' for k, v in fields.items()
            )
            form = (
                f'<form method="post"><label>Name <input name="person"></label>{hidden}<button>Log in</button></form>'
            )
            page = f'<!DOCTYPE html><html lang="en"><title>Provider</title><h1>Who are you?</h1>{form}</html>'
            self._send(200, page.encode(), "text/html")
            return
        back = {"state": fields["state"]}
        if name in self.provider.people:
            back["code"] = secrets.token_urlsafe(16)
            self.provider.codes[back["code"]] = {**fields, "person": name}
        else:
            back |= {"error": "access_denied", "error_description": f"{name} is unknown"}
        self.send_response(303)
        self.send_header("Location", f"{fields['redirect_uri']}?{urlencode(back)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _token(self, fields: dict[str, str]) -> None:
        provider = self.provider
        if not self._authenticated(fields):
            self._json({"error": "invalid_client"}, 401)
        elif fields.get("grant_type") == "refresh_token":
            name = provider.refreshes.pop(fields.get("refresh_token", ""), "")
            if not name or provider.revoked:
                self._json({"error": "invalid_grant", "error_description": "the session is over"}, 400)
            else:
                self._json(provider.tokens(name, ""))
        else:
            code_request = provider.codes.pop(fields.get("code", ""), {})
            digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            right = code_request.get("code_challenge") == proof and code_request.get("code_challenge_method") == "S256"
            right = right or not (provider.proof or "code_challenge" in code_request)
            if not right or code_request.get("redirect_uri") != fields.get("redirect_uri"):
                self._json({"error": "invalid_grant"}, 400)
            else:
                self._json(provider.tokens(code_request["person"], code_request.get("nonce", "")))

    def _authenticated(self, fields: Mapping[str, str]) -> bool:
        if not self.provider.secret:
            return fields.get("client_id") == CLIENT
        proof = base64.b64encode(f"{CLIENT}:{self.provider.secret}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {proof}"

    def _json(self, document: Any, status: int = 200) -> None:
        self._send(status, json.dumps(document).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
        """Nothing is printed."""


@contextmanager
def running(provider: Provider, context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    """The provider on a free port of the loopback, with TLS where a context is given."""
    handler = type("Bound", (_Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    provider.issuer = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
