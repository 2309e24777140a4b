"""EDGE: the ASGI middleware that authenticates and authorizes every request and adds security headers to its response.

It covers every page, callback and endpoint except probes and metrics. A context variable passes the person to callbacks
and endpoints, whichever thread they run in.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Response

from cotenant.base.errors import CotenantError
from cotenant.base.people import IdentitySource, NotAllowed, Person, Right
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.store.buckets import QUICK
from cotenant.base.store.files import Folder
from cotenant.changes.access import grants
from cotenant.changes.access.settings import AccessMode, AccessSettings
from cotenant.dashboard.access import answers, faults, forgery, front, headers
from cotenant.dashboard.access.answers import RefusedRequest
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.launch import BELOW, Launch, Proof, port_of, without_token
from cotenant.dashboard.access.oidc import ClaimedIdentity, LoginRefused, Provider, ProviderSilent
from cotenant.dashboard.access.sessions import SESSION, Seals, Session, Sessions, fresh_id
from cotenant.dashboard.access.shared_sessions import SessionKeys, SharedSessions

MOST_SESSIONS: Final = 2000
"""People logged in at once, which bounds the process's memory; one more ends the oldest session."""

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]

OPEN: Final = ("livez", "readyz", "metrics")
"""Endpoints for the kubelet and Prometheus, which cannot log in; they reveal nothing of the cluster's contents."""
EARLY_SECONDS: Final = 60.0
"""Time before the end of a token at which it is renewed."""
PATIENCE_SECONDS: Final = 30.0
"""Pause before a silent provider is asked again to renew a token."""
WAITING: Final = 8
"""Most threads that wait for the store of logins; as many may wait for renewals, and as many for bearer tokens."""
REQUEST_ID: Final = re.compile(r"[\w.:/=+-]{1,64}", re.ASCII)
LAUNCH_WORDS: Final = "This dashboard answers only the person who started it: the request lacks its launch token."
LAUNCH_FIX: Final = (
    "Open the address that was printed at its start; a script sends `Authorization: Bearer TOKEN` with the token of "
    "that address. A restart makes a new token (docs/access.md)."
)
VISIT: Final = "cotenant.visit"
"""Key of the scope under which endpoints find the `Visit`."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request as the gate sees it. `session` is the browser session's id; `fresh` means it was created just now."""

    front: Front
    headers: dict[str, str] = field(repr=False)
    session: str = field(repr=False)
    fresh: bool
    person: Person | None = None
    bearer: bool = False
    request: str = ""
    """Id of the request: the one that a trusted proxy sent, else a new one."""

    repeated: frozenset[str] = frozenset()
    """Names of the headers that the request has more than once."""

    launch: Proof = Proof.NOT_NEEDED
    """The proof, if nobody logs in, that the request comes from the person who started the dashboard."""

    @property
    def source(self) -> str:
        """The client's address and the request id, for the ledger."""
        return f"{self.front.peer} {self.request}".strip()

    @property
    def cookies(self) -> dict[str, str]:
        """The browser's cookies; of two with the same name the first, which belongs to the longer path."""
        return _cookies(self.headers)


class Gate:
    """The access control of one application: it lets a request pass only if the person is known and has a role."""

    def __init__(self, settings: AccessSettings, base: str, clock: Clock | None = None, launch: str = "") -> None:
        """Take the signing keys from `access.session_key_file`, or generate keys for this process only.

        `launch` is the launch token of access mode none; "" requires no token.
        """
        self.settings = settings
        self.base = base
        self.provider = Provider(settings.oidc) if settings.mode is AccessMode.OIDC else None
        self.now_seconds = (clock or SystemClock()).now_seconds
        keys = SessionKeys(settings.session_key_file) if settings.session_key_file else None
        # The session store: this process's own, or the shared one of all replicas if configured.
        if keys is None or not settings.sessions:
            self.sessions = Sessions(MOST_SESSIONS, self.now_seconds)
        else:
            self.sessions = SharedSessions(Folder(settings.sessions, QUICK), keys, MOST_SESSIONS, self.now_seconds)
        self.seals = Seals(keys.of("cookies") if keys else secrets.token_bytes(32))
        # Its cookie ends with its token, which is new at every start: never with a key that outlives the process.
        self.launch = Launch(launch if settings.mode is AccessMode.NONE else "", Seals(secrets.token_bytes(32)))
        self._store_threads, self._provider_threads = CapacityLimiter(WAITING), CapacityLimiter(WAITING)
        self._bearer_threads = CapacityLimiter(WAITING)  # anybody can send a token: they hold up none but each other
        self._policies: dict[str, str] = {}
        self._key = keys.of("forgery") if keys else secrets.token_bytes(32)
        self._trusted = front.networks(settings.proxy.trusted)
        self._open = {f"{prefix}{name}" for prefix in {"/", base} for name in OPEN}
        self._still: tuple[str, ...] = ()
        self._who: ContextVar[Person | None] = ContextVar("cotenant_who", default=None)

    def serve(self, base: str, hashes: Sequence[str]) -> None:
        """Allow the inline scripts of an application at `base` by their `hashes`, and its probes without a login."""
        self._open |= {f"{base}{name}" for name in OPEN}
        self._policies[base] = headers.policy(hashes)
        self._still = (*self._still, f"{base}assets/", f"{base}_dash-component-suites/")

    def current_user(self) -> Person:
        """Return the person of the present request; outside of a request, a person without any right."""
        return self._who.get() or Person("", (), IdentitySource.PROXY, ())

    def located(self, current_user: Callable[[], Person]) -> Callable[[], Person]:
        """Return a function that adds the source of the present request to the person that `current_user` returns."""

        def person_asking() -> Person:
            here = self._who.get()
            return replace(current_user(), source=here.source) if here else current_user()

        return person_asking

    def token(self, visit: Visit) -> str:
        """Return the session's CSRF token."""
        return forgery.token_of(self._key, visit.session, visit.person.name if visit.person else "")

    def middleware(self, app: Any) -> Any:
        """Return the application behind this access control, which closes websockets."""

        async def gate_request(scope: Scope, receive: Any, send: Send) -> None:
            if scope["type"] == "websocket":
                # No page uses one, and whoever came by one would have passed none of what follows.
                await send({"type": "websocket.close", "code": 1008})
            elif scope["type"] == "http":
                await self._http(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return gate_request

    async def _http(self, app: Any, scope: Scope, receive: Any, send: Send) -> None:
        request_headers = front.headers_of(scope)
        request_front = front.front_of(scope, request_headers, self._trusted, self.base)
        scope["scheme"], scope["path"] = request_front.scheme, request_front.path
        visit = replace(self._first_visit(request_front, request_headers), repeated=front.repeated_header_names(scope))
        if request_front.path in self._open:
            await app(scope, receive, self._with_headers(send, visit, keep=False))
            return
        try:
            # The visit with its person; Refused in words.
            try:
                person = await self._person(visit)
                visit = replace(visit, person=person and replace(person, source=visit.source))
            except NotAllowed as error:
                raise RefusedRequest(403, error.message, error.fix) from error
            except LoginRefused as error:
                raise RefusedRequest(401, error.message, error.fix) from error
            except CotenantError as error:
                raise RefusedRequest(503, error.message, error.fix) from error
            self._check(scope["method"], visit)
        except RefusedRequest as refused:
            answer = self._answer(refused, scope["method"], visit)
            await answer(scope, receive, self._with_headers(send, visit, keep=not visit.bearer))
            return
        if visit.launch is Proof.QUERY:
            own = "" if self.settings.public_url else self.launch.own_address(request_front, request_headers)
            visit = replace(visit, front=replace(request_front, query=without_token(request_front.query)))
            scope["query_string"] = visit.front.query.encode("latin-1")
            if scope["method"] == "GET" and answers.wants_page(request_headers):
                # The cookie is set at our own name alone, which the browser is told once it has shown the token.
                location = f"{own}{_request_address(request_front)}" if own else _request_address(visit.front)
                moved = Response(status_code=303, headers={"Location": location, "Cache-Control": "no-store"})
                await moved(scope, receive, self._with_headers(send, visit, keep=not own))
                return
        scope[VISIT] = visit
        structlog.contextvars.bind_contextvars(**{faults.REQUEST_ID: visit.request})
        token = self._who.set(visit.person)
        try:
            keep = not visit.bearer and not request_front.path.startswith(self._still)
            await app(scope, receive, self._with_headers(send, visit, keep=keep))
        finally:
            self._who.reset(token)
            structlog.contextvars.unbind_contextvars(faults.REQUEST_ID)

    def _first_visit(self, request_front: Front, request_headers: dict[str, str]) -> Visit:
        """Return the visit before its person is known."""
        sealed = _cookies(request_headers).get(SESSION, "")
        id_ = self.seals.open(SESSION, sealed) if sealed else None
        proof = self.launch.proof(request_front, request_headers, _cookies(request_headers))
        bearer = self.provider is not None and request_headers.get("authorization", "").lower().startswith("bearer ")
        bearer = bearer or proof is Proof.BEARER
        request_id = request_headers.get("x-request-id", "") if request_front.by_proxy else ""
        request = request_id if REQUEST_ID.fullmatch(request_id) else secrets.token_hex(6)
        fresh = not isinstance(id_, str)
        session = fresh_id() if fresh else str(id_)
        return Visit(request_front, request_headers, session, fresh, bearer=bearer, request=request, launch=proof)

    def _check(self, method: str, visit: Visit) -> None:
        settings, request_front = self.settings, visit.front
        own = self.launch.name
        if settings.mode is AccessMode.NONE and not front.expected_host(request_front, settings.public_url, own):
            message = f"This dashboard is not served under the name {request_front.host}."
            raise RefusedRequest(421, message, "Use localhost, or set access.public_url (docs/access.md).")
        if not visit.front.path.startswith(f"{self.base}auth/"):
            person = visit.person
            if person is None and self.settings.mode is AccessMode.NONE:
                raise RefusedRequest(401, LAUNCH_WORDS, LAUNCH_FIX)
            if person is None:
                fix = "Log in." if self.provider else "Open the dashboard through the proxy that identifies you."
                raise RefusedRequest(401, "You are not logged in.", fix)
            if not person.may(Right.READ):
                fix = "An administrator grants roles in access.roles (docs/access.md)."
                raise RefusedRequest(403, f"{person.name} has no role in this dashboard.", fix)
        if not visit.bearer:
            expected = "" if visit.fresh else self.token(visit)
            public = self.settings.public_url
            if why := forgery.refusal(method, visit.headers, visit.front, expected, public):
                fix = (
                    "Load the page again; a script takes the CSRF token from GET api/v1/me; "
                    "behind a proxy set access.public_url or access.proxy.trusted (docs/access.md)."
                )
                raise RefusedRequest(403, f"Not done: {why}.", fix, again=True)

    async def _person(self, visit: Visit) -> Person | None:
        """Return the person of a visit by the access mode; None if they must authenticate first."""
        settings = self.settings
        if settings.mode is AccessMode.NONE:
            return None if visit.launch is Proof.NONE else Person("")
        if settings.mode is AccessMode.PROXY:
            return self._by_header(visit) or grants.anonymous_person(settings)
        if visit.bearer:
            token = visit.headers["authorization"][7:].strip()
            return await run_sync(self._by_bearer, token, limiter=self._bearer_threads)
        of, id_ = self.sessions.of, visit.session
        session = await run_sync(of, id_, limiter=self._store_threads) if self.sessions.blocking else of(id_)
        if session is not None and self._due(session):
            session = await run_sync(self._renew_session, id_, session, limiter=self._provider_threads)
        if session is None:
            return grants.anonymous_person(settings)
        token = session.id_token if self.now_seconds() < session.token_ends_seconds else ""
        return grants.person_with_grants(session.name, session.groups, IdentitySource.OIDC, self.settings, token)

    def _by_header(self, visit: Visit) -> Person | None:
        proxy = self.settings.proxy
        name = visit.headers.get(proxy.user_header.lower(), "").strip()
        if not visit.front.by_proxy or not name:
            return None
        for header in filter(None, (proxy.user_header, proxy.groups_header)):
            if header.lower() in visit.repeated:
                raise NotAllowed(f"{header} was sent twice", fix="The proxy must replace headers that browsers send.")
        groups = visit.headers.get(proxy.groups_header.lower(), "") if proxy.groups_header else ""
        listed = [group.strip() for group in groups.split(",")]
        return grants.person_with_grants(name, listed, IdentitySource.PROXY, self.settings)

    def _by_bearer(self, token: str) -> Person:
        assert self.provider is not None
        claimed = self.provider.bearer(token)
        return grants.person_with_grants(claimed.name, claimed.groups, IdentitySource.OIDC, self.settings, token)

    def _due(self, session: Session) -> bool:
        due = session.renew_seconds
        return bool(session.refresh_token) and due is not None and self.now_seconds() >= due

    def _renew_session(self, id_: str, session: Session) -> Session | None:
        """Return the session with valid tokens; None if the provider ended it or names another person."""
        assert self.provider is not None
        with session.lock:
            if not self._due(session) or not self.sessions.claim(id_, session):
                return session
            try:
                claimed = self.provider.renew(session.refresh_token)
            except ProviderSilent:
                session.renew_seconds = self.now_seconds() + PATIENCE_SECONDS
                return session
            except LoginRefused:
                stored = self.sessions.reread(id_)
                if stored is not None and stored.refresh_token != session.refresh_token:
                    return stored  # another replica has renewed it
                self.sessions.end(id_)
                return None
            if claimed is None:  # renewed, but without an id token: they read on, and log in anew before they act
                session.renew_seconds = None
                self.sessions.keep(id_, session)
            elif claimed.name != session.name:
                self.sessions.end(id_)
                return None
            else:
                store_tokens(session, claimed)
                self.sessions.keep(id_, session)
            return session

    def _answer(self, refused: RefusedRequest, method: str, visit: Visit) -> Response:
        """Redirect an unknown person's browser to the login; return an error to everybody else."""
        login = f"{self.base}auth/login?next={quote(visit.front.address, safe='/')}" if self.provider else ""
        unknown = refused.status == 401 and login and answers.wants_page(visit.headers)
        if unknown and method == "GET" and not visit.bearer:
            return Response(status_code=302, headers={"Location": login})
        asks = refused.status == 401 and self.settings.mode is AccessMode.NONE
        link = ("Log in", login) if login else None
        if refused.status == 421 and self.launch.name and visit.front.hostname.endswith(BELOW):
            # Most likely the name of a process before this one, in a page that is open or a bookmark.
            address = f"http://localhost:{port_of(visit.front) or 80}{_request_address(visit.front)}"
            link = ("Open this dashboard", address)
            refused = RefusedRequest(421, f"{refused.words} Each start prints a new address.", refused.fix)
            return answers.refusal_response(refused, visit.headers, link, former_name=True)
        return answers.refusal_response(refused, visit.headers, link, token_form=asks)

    def _with_headers(self, send: Send, visit: Visit, *, keep: bool) -> Send:
        """Return a `send` that adds security headers and, with `keep`, the session cookies that the browser lacks."""
        secure = visit.front.secure
        more = [*headers.always(secure=secure), ("X-Request-Id", visit.request)]
        private = self.settings.mode is not AccessMode.NONE and keep
        policies = (policy for base, policy in self._policies.items() if visit.front.path.startswith(base))
        policy = next(policies, None) or headers.policy()

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                header_names = {name.lower() for name, _ in message["headers"]}
                added = [
                    *more,
                    *((("Cache-Control", "no-store"),) if private else ()),
                    ("Content-Security-Policy", policy),
                ]
                encoded = [(name.lower().encode(), value.encode()) for name, value in added]
                added_headers = [(name, value) for name, value in encoded if name not in header_names]
                cookies = self._cookies(visit, header_names) if keep else []
                message = {**message, "headers": [*message["headers"], *added_headers, *cookies]}
            await send(message)

        return sent

    def _cookies(self, visit: Visit, header_names: set[bytes]) -> Sequence[tuple[bytes, bytes]]:
        """Return the session cookies that the browser lacks; none if a login response sets its own."""
        if b"set-cookie" in header_names:
            return []
        cookies, token = [], self.token(visit)
        if visit.launch is Proof.QUERY:
            cookies.append(self.cookie(self.launch.cookie_name(visit.front), self.launch.cookie(), visit))
        if visit.fresh:
            cookies.append(self.cookie(SESSION, self.seals.close(SESSION, visit.session), visit))
        if visit.fresh or visit.cookies.get(forgery.COOKIE) != token:
            cookies.append(self.cookie(forgery.COOKIE, token, visit, script=True))
        return [(b"set-cookie", text.encode()) for text in cookies]

    def cookie(self, name: str, value: str, visit: Visit, *, script: bool = False, seconds: int | None = None) -> str:
        """Return a Set-Cookie header: SameSite=Lax and HttpOnly or, if `script`, Strict and readable by scripts."""
        parts = [f"{name}={value}", f"Path={self.base}", f"SameSite={'Strict' if script else 'Lax'}"]
        parts += [] if script else ["HttpOnly"]
        parts += ["Secure"] if visit.front.secure else []
        parts += [] if seconds is None else [f"Max-Age={seconds}"]
        return "; ".join(parts)


def store_tokens(session: Session, claimed: ClaimedIdentity) -> None:
    """Store the provider's tokens, their expiry and the person's groups in the session."""
    session.groups, session.id_token, session.refresh_token = claimed.groups, claimed.id_token, claimed.refresh_token
    session.token_ends_seconds, session.renew_seconds = claimed.ends_seconds, claimed.ends_seconds - EARLY_SECONDS


def _request_address(request_front: Front) -> str:
    """Return a request's address for a redirect, never one on another host."""
    path = "/" + quote(request_front.path.lstrip("/"))
    return f"{path}?{request_front.query}" if request_front.query else path


def _cookies(request_headers: dict[str, str]) -> dict[str, str]:
    cookies: dict[str, str] = {}
    for part in request_headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        cookies.setdefault(name, value)
    return cookies
