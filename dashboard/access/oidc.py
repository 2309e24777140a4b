"""EDGE: the OpenID Connect provider: begin a login, exchange a code for tokens, renew tokens and verify them.

Authorization code with PKCE (RFC 7636), state and nonce (OpenID Connect Core 1.0, 3.1). The discovery document and the
keys are fetched on first use and cached, so that a dashboard starts while the provider is down.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from cotenant.base.errors import CotenantError, SettingsError
from cotenant.base.http.requests_adapter import CertificateAdapter
from cotenant.changes.access.settings import OidcSettings

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signatures, only those of a key pair: with a shared secret, or none, anybody could sign."""
TIMEOUT_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 30.0
"""Shortest time before keys are requested again, because a token names an unknown key or the provider failed."""
LEAST_AGAIN_SECONDS: Final = 0.1
"""Shortest time after a failure that came at once, as while the provider starts: people who log in must not wait long.
After a slow failure it is three times as long as that took, because each further attempt occupies a thread."""
LEEWAY_SECONDS: Final = 30


ValueT = TypeVar("ValueT")


class ProviderSilent(CotenantError):
    """The provider did not answer, or answered something invalid."""


class LoginRefused(CotenantError):
    """A token, or the provider's answer to a login, is not valid."""


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A login in progress: the provider's address to open, and the secrets that its answer is checked against."""

    url: str = field(repr=False)
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClaimedIdentity:
    """The identity in verified tokens, valid until `ends_seconds` (Unix time); Kubernetes may accept `id_token`."""

    name: str
    groups: tuple[str, ...]
    id_token: str = field(repr=False)
    ends_seconds: float
    refresh_token: str = field(default="", repr=False)


class _Cache(Generic[ValueT]):
    """A cached answer of the provider. Thread-safe; one thread at a time sends a request.

    The others continue with the last answer, so that a slow provider blocks nobody who does not need a new one, and
    strangers cannot cause more than one request per AGAIN_SECONDS.
    """

    def __init__(self, fetch: Callable[[], ValueT], now: Callable[[], float]) -> None:
        """Store how to fetch the answer, without fetching it yet; `now` returns monotonic seconds."""
        self._fetch, self._now = fetch, now
        self._state, self._asking = threading.Lock(), threading.Lock()
        self._value: ValueT | None = None
        self._fetched_at = self._silent_until = float("-inf")
        self._error: Exception | None = None

    def get(self, most_seconds: float = KEPT_SECONDS) -> ValueT:
        """Return the cached answer, fetched again if older than that; the old one if the provider does not answer.

        Raise the error of the last attempt if there has been no answer yet.
        """
        usable = self._usable_answer(most_seconds)
        if usable is not None:
            return usable
        has_answer = self._value is not None
        if not self._asking.acquire(blocking=not has_answer):
            return self._last_answer()
        try:
            usable = self._usable_answer(most_seconds)
            return self._ask() if usable is None else usable
        finally:
            self._asking.release()

    def _usable_answer(self, most_seconds: float) -> ValueT | None:
        """Return the answer to use without a request, None to send one; raise a recent error if there is no answer."""
        now = self._now()
        with self._state:
            if self._value is not None and now - self._fetched_at <= most_seconds:
                return self._value
            if now >= self._silent_until:
                return None
        return self._last_answer()

    def _ask(self) -> ValueT:
        begun_seconds = self._now()
        try:
            value = self._fetch()
        except Exception as error:  # noqa: BLE001 - raised below where no answer is kept
            now = self._now()
            silent = min(AGAIN_SECONDS, max(LEAST_AGAIN_SECONDS, 3 * (now - begun_seconds)))
            with self._state:
                self._silent_until, self._error = now + silent, error
            return self._last_answer()
        with self._state:
            self._value, self._fetched_at, self._silent_until = value, self._now(), float("-inf")
        return value

    def _last_answer(self) -> ValueT:
        with self._state:
            if self._value is None:
                assert self._error is not None
                raise self._error.with_traceback(None)
            return self._value


class Provider:
    """An OpenID Connect provider, identified by its issuer. Thread-safe."""

    def __init__(self, settings: OidcSettings, now: Callable[[], float] = time.monotonic) -> None:
        """Store the settings without contacting the provider yet; `now` returns monotonic seconds."""
        self._settings = settings
        self._about: _Cache[Mapping[str, Any]] = _Cache(self._fetch_document, now)
        self._keys: _Cache[KeySet] = _Cache(self._fetch_keys, now)

    def begin(self, redirect_uri: str) -> LoginAttempt:
        """Return a new login attempt: fresh secrets, and the address of the provider to open."""
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        with self._session(redirect_uri) as session:
            where = self._endpoint("authorization_endpoint")
            url, _ = session.create_authorization_url(where, state=state, nonce=nonce, code_verifier=verifier)
        return LoginAttempt(url, state, nonce, verifier)

    def finish(self, code: str, verifier: str, nonce: str, redirect_uri: str) -> ClaimedIdentity:
        """Exchange a code for tokens and return their identity; raise LoginRefused if they belong to another login."""
        with self._session(redirect_uri) as session:
            grant = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
            tokens = self._token_exchange(session.fetch_token, self._endpoint("token_endpoint"), **grant)
        return self._claimed_identity(tokens, nonce)

    def renew(self, refresh_token: str) -> ClaimedIdentity | None:
        """Renew the tokens; None if the answer has no id token. Raise LoginRefused if the provider ended the login."""
        with self._session("") as session:
            where = self._endpoint("token_endpoint")
            tokens = self._token_exchange(session.refresh_token, where, refresh_token=refresh_token)
        if not tokens.get("id_token"):
            return None
        claimed = self._claimed_identity(tokens, None)
        return claimed if claimed.refresh_token else _with_refresh(claimed, refresh_token)

    def bearer(self, token: str) -> ClaimedIdentity:
        """Return the identity in a script's bearer token; raise LoginRefused for an invalid token."""
        claims = self._verify_token(token, [self._settings.client_id, *self._settings.audiences])
        return self._identity_of_claims(claims, token)

    def end_url(self) -> str:
        """Return the address that ends the provider's own session; "" if the provider names none."""
        return str(self._about.get().get("end_session_endpoint", ""))

    def _claimed_identity(self, tokens: Mapping[str, Any], nonce: str | None) -> ClaimedIdentity:
        token = str(tokens.get("id_token") or "")
        if not token:
            raise LoginRefused("the provider gave no id token", fix="Add the scope openid to access.oidc.scopes.")
        claims = self._verify_token(token, [self._settings.client_id])
        if nonce is not None and not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise LoginRefused("the id token belongs to another login (nonce)", fix="Log in again.")
        claimed = self._identity_of_claims(claims, token)
        return _with_refresh(claimed, str(tokens.get("refresh_token") or ""))

    def _verify_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        """Return a token's claims after checking signature, issuer, audience, authorized party and times."""
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "values": list(audiences)},
            exp={"essential": True},
        )
        try:
            keys = self._keys.get()
            try:
                claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            except (JoseError, ValueError):
                # The provider may have changed its keys since; anybody can send a token, so not at every one.
                newer = self._keys.get(AGAIN_SECONDS)
                if newer is keys:
                    raise
                claims = jwt.decode(token, newer, algorithms=ALGORITHMS).claims
            registry.validate(dict(claims))
        except (JoseError, ValueError) as error:
            raise LoginRefused(f"the id token is not valid: {error}", fix="Log in again.") from error
        if why := self._not_for_us(claims, audiences):
            fix = "Log in again; an administrator lists trusted audiences in access.oidc.audiences."
            raise LoginRefused(why, fix=fix)
        return claims

    def _not_for_us(self, claims: Mapping[str, Any], audiences: Sequence[str]) -> str:
        """Return why a token is meant for others too (OpenID Connect Core 1.0, 3.1.3.7, 3 to 5); "" if only for us."""
        audience_claims = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        trusted = (self._settings.client_id, *self._settings.audiences)
        if foreign := [str(name) for name in audience_claims if name not in trusted]:
            return f"the id token is also for {', '.join(foreign)}"
        if "azp" not in claims:
            return "the id token has several audiences and no authorized party (azp)" if audience_claims[1:] else ""
        return "" if claims["azp"] in audiences else f"the id token was made for the client {claims['azp']}"

    def _identity_of_claims(self, claims: Mapping[str, Any], token: str) -> ClaimedIdentity:
        settings = self._settings
        name = claim(claims, settings.user_claim)
        if not isinstance(name, str) or not name:
            fix = "Set another claim in access.oidc.user_claim, or add the claim's scope to access.oidc.scopes."
            raise LoginRefused(f"the id token has no claim {settings.user_claim!r} with a name", fix=fix)
        if settings.user_claim == "email" and claims.get("email_verified") is False:
            raise LoginRefused(f"the provider has not verified address {name}", fix="Verify it at the login provider.")
        groups = claim(claims, settings.groups_claim)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return ClaimedIdentity(name, tuple(g for g in listed if isinstance(g, str)), token, float(claims["exp"]))

    def _session(self, redirect_uri: str) -> OAuth2Session:
        settings = self._settings
        # The client's secret, read each time, as it is rotated.
        file, secret = settings.client_secret_file, ""
        if file:
            try:
                secret = Path(file).read_text().strip()
            except (OSError, ValueError) as error:
                raise SettingsError(f"access.oidc.client_secret_file {file} cannot be read: {error}") from error
        session = OAuth2Session(
            settings.client_id,
            secret or None,
            scope=" ".join(settings.scopes),
            redirect_uri=redirect_uri or None,
            code_challenge_method="S256",
            default_timeout=TIMEOUT_SECONDS,
        )
        session.mount("https://", CertificateAdapter())
        return session

    def _token_exchange(self, function: Any, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        try:
            # Said at each call: what a session holds gives way to REQUESTS_CA_BUNDLE.
            tokens: Mapping[str, Any] = function(*args, verify=self._settings.ca_file or True, **kwargs)
        except AuthlibBaseError as error:
            raise LoginRefused(f"the login provider refused the request: {error}", fix="Log in again.") from error
        except (requests.RequestException, OSError, ValueError) as error:
            raise _silent(self._settings.issuer, error) from error
        return tokens

    def _endpoint(self, name: str) -> str:
        url = self._about.get().get(name)
        if not isinstance(url, str):
            raise ProviderSilent(f"{self._settings.issuer} has no {name}", fix="Check access.oidc.issuer.")
        return url

    def _fetch_keys(self) -> KeySet:
        return KeySet.import_key_set(self._fetch_json(self._endpoint("jwks_uri")))

    def _fetch_document(self) -> Mapping[str, Any]:
        """Return the provider's metadata (OpenID Connect Discovery 1.0); raise ProviderSilent for another issuer's."""
        issuer = self._settings.issuer
        document: Mapping[str, Any] = self._fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            fix = "Set access.oidc.issuer to exactly the issuer that the provider names."
            raise ProviderSilent(f"{issuer} says it is the issuer {document.get('issuer')!r}", fix=fix)
        return document

    def _fetch_json(self, url: str) -> Any:
        try:
            with requests.Session() as session:
                session.mount("https://", CertificateAdapter())
                answer = session.get(url, timeout=TIMEOUT_SECONDS, verify=self._settings.ca_file or True)
            answer.raise_for_status()
            document = answer.json()
        except (requests.RequestException, OSError, ValueError) as error:
            raise _silent(self._settings.issuer, error) from error
        if not isinstance(document, dict):
            raise ProviderSilent(f"{url} returned no JSON object", fix="Check access.oidc.issuer.")
        return document


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, else by a dotted path of names; None if there is none."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _with_refresh(claimed: ClaimedIdentity, refresh_token: str) -> ClaimedIdentity:
    return ClaimedIdentity(claimed.name, claimed.groups, claimed.id_token, claimed.ends_seconds, refresh_token)


def _silent(issuer: str, error: Exception) -> ProviderSilent:
    fix = "Try again; an administrator checks access.oidc.issuer, access.oidc.ca_file and the network."
    return ProviderSilent(f"the login provider {issuer} did not answer: {type(error).__name__}: {error}", fix=fix)
