"""EDGE: the login endpoints: begin, callback, logout; and the identity of the caller, for scripts.

A login begins with secrets in a signed cookie of the browser (state, nonce, PKCE verifier) and ends with a session of
this process under a new id, which prevents session fixation.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from cotenant.base.errors import CotenantError
from cotenant.base.people import RIGHTS, Person
from cotenant.dashboard.access import answers
from cotenant.dashboard.access.gate import VISIT, Gate, Visit, store_tokens
from cotenant.dashboard.access.launch import Proof
from cotenant.dashboard.access.oidc import LoginAttempt, LoginRefused, Provider, ProviderSilent
from cotenant.dashboard.access.sessions import LOGIN, LOGIN_SECONDS, SESSION, Session


def router(gate: Gate, current_user: Callable[[], Person], base: str) -> APIRouter:
    """Return the router of auth/login, auth/callback, auth/logout and api/v1/me below the application's base path."""
    routes = APIRouter(prefix=base.rstrip("/"))

    @routes.get("/api/v1/me", summary="Who you are here, your roles, and the token that a write needs", tags=["access"])
    def me(request: Request) -> Mapping[str, Any]:
        visit = visit_of(request)
        return person_document(current_user()) | {"csrf": "" if visit.bearer else gate.token(visit)}

    @routes.post("/auth/logout", summary="End this login", tags=["access"])
    def logout(request: Request, response: Response) -> Mapping[str, str]:
        visit = visit_of(request)
        if visit.launch in (Proof.COOKIE, Proof.QUERY, Proof.BEARER):  # a stranger would end it for whoever is in
            gate.launch.end()
            name = gate.launch.cookie_name(visit.front)
            response.headers.append("Set-Cookie", gate.cookie(name, "", visit, seconds=0))
        ended, home = gate.sessions.end(visit.session), gate.base
        if gate.provider is None:
            return {"to": gate.settings.proxy.logout_url or home}
        try:
            where = gate.provider.end_url()
        except ProviderSilent:
            return {"to": home}
        if not where or ended is None:
            return {"to": home}
        back = {"client_id": gate.settings.oidc.client_id, "post_logout_redirect_uri": _origin(gate, visit) + home}
        return {"to": f"{where}{'&' if '?' in where else '?'}{urlencode(back)}"}

    if gate.provider is not None:
        provider = gate.provider

        @routes.get("/auth/login", include_in_schema=False)
        def login(request: Request, next: str = "") -> Response:  # noqa: A002 - the address says so
            login_visit = visit_of(request)
            try:
                attempt = provider.begin(_redirect_uri(gate, login_visit))
            except CotenantError as error:
                return _trouble(gate, login_visit, error)
            fields = [attempt.state, attempt.nonce, attempt.verifier, safe_next(next, gate.base)]
            sealed = gate.seals.close(LOGIN, fields)
            cookie = gate.cookie(LOGIN, sealed, login_visit, seconds=LOGIN_SECONDS)
            return Response(status_code=302, headers={"Location": attempt.url, "Set-Cookie": cookie})

        @routes.get("/auth/callback", include_in_schema=False)
        def callback(request: Request) -> Response:
            return _callback(gate, provider, visit_of(request), dict(request.query_params))

    return routes


def visit_of(request: Request) -> Visit:
    """Return the visit that the gate stored in the request."""
    visit: Visit = request.scope[VISIT]
    return visit


def person_document(person: Person) -> dict[str, Any]:
    """Describe a person for scripts: the rights held in at least one namespace, and each role with its namespaces."""
    rights = sorted({right.value for grant in person.grants for right in RIGHTS[grant.role]})
    roles = [{"role": grant.role.value, "namespaces": list(grant.namespaces)} for grant in person.grants]
    return {"name": person.name, "groups": list(person.groups), "way": person.way.value, "roles": roles,
            "rights": rights}  # fmt: skip


def _callback(gate: Gate, provider: Provider, visit: Visit, params: Mapping[str, str]) -> Response:
    try:
        # The login that this browser began, and where it goes afterwards.
        fields = gate.seals.open(LOGIN, visit.cookies.get(LOGIN, ""), LOGIN_SECONDS)
        if not isinstance(fields, list) or len(fields) != 4:
            raise LoginRefused("no login is in progress in this browser, or it took too long", fix="Log in again.")
        state, nonce, verifier, login_after = (str(part) for part in fields)
        attempt, after = LoginAttempt("", state, nonce, verifier), login_after
        if not secrets.compare_digest(params.get("state", "").encode(), attempt.state.encode()):
            raise LoginRefused("the provider's answer belongs to another login", fix="Log in again, in one window.")
        if params.get("iss", gate.settings.oidc.issuer) != gate.settings.oidc.issuer:
            raise LoginRefused(f"the login's answer comes from another provider: {params['iss']}")
        if "code" not in params:
            reason = params.get("error_description") or params.get("error") or "the provider sent no authorization code"
            raise LoginRefused(f"the provider refused the login: {reason[:300]}", fix="Log in again.")
        claimed = provider.finish(params["code"], attempt.verifier, attempt.nonce, _redirect_uri(gate, visit))
    except CotenantError as error:
        return _trouble(gate, visit, error)
    session = Session(claimed.name, claimed.groups, gate.now_seconds() + 3600 * gate.settings.session_hours)
    store_tokens(session, claimed)
    try:
        gate.sessions.end(visit.session)
        id_ = gate.sessions.begin(session)
    except CotenantError as error:
        return _trouble(gate, visit, error)
    cookie = gate.cookie(SESSION, gate.seals.close(SESSION, id_), visit)
    answer = Response(status_code=303, headers={"Location": after, "Set-Cookie": cookie})
    answer.headers.append("Set-Cookie", gate.cookie(LOGIN, "", visit, seconds=0))
    return answer


def safe_next(after: str, base: str) -> str:
    """Return `after` as the address to go to after a login if it is one of ours, else the base path."""
    plain = after.isprintable() and "\\" not in after and not after.startswith("//")
    return after if plain and after.startswith(base) and not after.startswith(f"{base}auth/") else base


def _origin(gate: Gate, visit: Visit) -> str:
    return gate.settings.public_url.rstrip("/") or visit.front.origin


def _redirect_uri(gate: Gate, visit: Visit) -> str:
    return f"{_origin(gate, visit)}{gate.base}auth/callback"


def _trouble(gate: Gate, visit: Visit, error: CotenantError) -> Response:
    status = 401 if isinstance(error, LoginRefused) else 503
    refused = answers.RefusedRequest(status, f"{error.message}.", error.fix)
    return answers.refusal_response(refused, visit.headers, ("Log in again", f"{gate.base}auth/login"))
