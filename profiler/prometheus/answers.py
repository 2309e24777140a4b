"""Interprets an answer of a Prometheus-compatible server: complete, partial, or which error.

Pure, except for the clock with which a Retry-After date is compared.
"""

from __future__ import annotations

import re
import time
from typing import Final
from urllib.parse import urlsplit

import msgspec
import requests

from cotenant.base.errors import (
    SourceError,
    SourceForbidden,
    SourceLimit,
    SourceProtocol,
    SourceTooLong,
    SourceUnreachable,
)
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.profiler.prometheus import retry

_TOO_LARGE: Final = re.compile(
    r"too many|too large|exceed|limit|maximum|timed? ?out|(larger|longer|greater|less) than|must be within",
    re.IGNORECASE,
)
_LONG_TEXT: Final = re.compile(
    r"(query|expression)( string)?( is)? too long|too long (query|expression)|maxQueryLen|raw query size"
    r"|query length\b.{0,60}\b(characters|bytes)\b",
    re.IGNORECASE,
)
"""How servers say that they limit the characters of a question: VictoriaMetrics, Mimir, and proxies that parse it."""
_LONG_SPAN: Final = re.compile(r"\b(time|query|requested|lookback) (range|length|span|window)\b", re.IGNORECASE)
"""How servers say that they answer for a shorter stretch of time alone: Mimir, Amazon's and Azure's."""
_AMOUNT: Final = re.compile(
    r"\b(time ?)?series\b|\b(samples|chunks|(data ?)?points|bytes|memory)\b|timed? ?out", re.IGNORECASE
)
"""Words for limits of what a question selects or costs, whatever its span is."""
_ADVICE: Final = re.compile(r"\b(consider|try|please|possible solutions|reduc|decreas|narrow|shorten)", re.IGNORECASE)
"""How Mimir, Thanos and VictoriaMetrics begin to say what may help, which names the span beside limits of all kinds."""
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*\\?(?:"|\Z)|on the time range \([^()]*\)')
"""Texts that servers repeat from the question: names of metrics (`..._limits`) and its span (VictoriaMetrics)."""
_SELECTS: Final = re.compile(r"[{,]\w+[=!]")
_NO_SIZE: Final = re.compile(r"(parse|syntax) error|(cannot|unable to|could not|failed to) parse", re.IGNORECASE)
"""How Prometheus and VictoriaMetrics say that they do not understand a question; a smaller one is no clearer."""
_PACE: Final = re.compile(
    r"\brate[ -]?limit|request[- ]rate|outstanding requests|too many requests|concurren|throttl|quota"
    r"|per (second|minute)",
    re.IGNORECASE,
)
"""How Mimir, Amazon's, Google's (quota) and VictoriaMetrics (concurrent) limit how many questions they are asked."""
_STORE_AWAY: Final = re.compile(r"rpc error: code = Unavailable")
"""What Thanos says when one of its stores is away."""

SERVICE_PROXY: Final = re.compile(r"/api/v1/namespaces/[^/]+/services/[^/]+/proxy(?:/|$)")
"""Path of a Service that is reached through a Kubernetes API server."""

SMALLER: Final = (
    "Raise profiler.prometheus.max_answer_bytes or the server's limits (--query.max-samples, --query.timeout)."
)
"""Remedy if even the smallest query is too large."""
_STORES: Final = "Restore the storage that the server cannot reach: without it answers lack a part of the usage."
_REFUSED: Final = "The server refuses the query; docs/prometheus.md lists tested servers and their requirements."
_SHORTER: Final = (
    "Allow longer queries: by large_client_header_buffers of an nginx before the server, by -search.maxQueryLen of "
    "VictoriaMetrics. Or name the server's own address instead of the proxy's: the server is queried with POST."
)
"""What helps when even the shortest question is too long."""
_LONG_ADDRESS: Final = re.compile(r"\b(uri|url|header|request[- ]line)\b.{0,40}\btoo (long|large)", re.IGNORECASE)
"""What nginx says of a long address or header where it answers 400."""
_CUT: Final = re.compile(r"truncat|limit|too many|exceed", re.IGNORECASE)
"""Warnings of servers that left out a part of an answer because it was too large."""
_PART: Final = re.compile(
    r"rpc error|partial|unavailable|(could|can) ?not fetch|failed to (fetch|receive)"
    r"|remote.?read|error sending request|returned http status 5|\bdial (tcp|unix)\b|connection (refused|reset)"
    r"|no such host|deadline exceeded|i/o timeout|unexpected EOF",
    re.IGNORECASE,
)
"""Warnings of servers that left out what a store of theirs, or a server that they read from, did not answer."""
_OF_EXPRESSION: Final = "PromQL"
"""How warnings begin that speak of the expression."""
_RIGHTS: Final = (
    "Give credentials that may read metrics: --bearer-token-file FILE, --header 'NAME: VALUE', or "
    "https://USER:PASSWORD@HOST; if they may read one namespace only, give an address of one namespace (OpenShift: https://HOST:9092/?namespace=NAME)."
)
_LOGIN: Final = (
    "Give credentials that the server accepts: --bearer-token-file FILE, --header 'NAME: VALUE', or "
    "https://USER:PASSWORD@HOST."
)
_PLAIN_HTTP: Final = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|HTTP_REQUEST")
"""What OpenSSL's versions say of an answer that is not TLS."""
TIME: Final = "Check that the server is not overloaded, or raise profiler.prometheus.timeout_seconds."

_NOT_THIS_METHOD: Final = (404, 405, 411, 415, 501)
"""What servers answer to a method that they do not take; 404 where they route by it. Gateways may answer any other 4xx
in words of their own, or redirect."""
_PAGE: Final = re.compile(r"(/(?:classic/)?(?:graph|query|alerts|targets)|/api/v1(?:/[\w/]+?)??)/api/v1/")
"""A page of Prometheus, or its API, at the end of the address that was given, before what is added to it."""


class PrometheusResponse(msgspec.Struct, frozen=True):
    """The JSON envelope of every API answer: status, data, error and warnings."""

    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: list[str] | None = None
    partial: bool | None = msgspec.field(name="isPartial", default=None)
    """True if a cluster of VictoriaMetrics answered without some of its storage nodes."""


class TooSlow(SourceLimit):
    """The server did not answer in time: a smaller query may succeed, but a server that is down looks the same."""


class TooLongSpan(SourceLimit):
    """The server answers only queries over shorter time spans."""


class CutAnswer(SourceLimit):
    """The server returned only a part of its answer because the whole was too large; `data` is that part, undecoded."""

    data: msgspec.Raw = msgspec.Raw(b"null")


class Overloaded(SourceUnreachable):
    """The server, or a proxy before it, is temporarily unable to answer; `retry_after_seconds` is 0 if unknown."""

    retry_after_seconds: float = 0.0


class Unauthenticated(SourceForbidden):
    """The server does not recognize the caller (401): credentials are missing, wrong or expired."""


class Refused(SourceProtocol):
    """The server does not support the request's method or path."""


def bare_address(url: str) -> str:
    """Return a URL without its parameters, which are long and may contain secrets."""
    return urlsplit(url)._replace(query="").geturl()


def require_complete_answer(url: str, envelope: PrometheusResponse) -> PrometheusResponse:
    """Return the envelope of a complete answer; raise an error for a partial one, which would look like less usage."""
    for warning in envelope.warnings or ():
        if warning.startswith(_OF_EXPRESSION):
            continue
        if _PART.search(warning):
            raise Overloaded(f"{url} answered only partly: {warning[:300]}", fix=_STORES)
        if _CUT.search(warning):
            cut = CutAnswer(f"{url} cut its answer: {warning[:300]}", fix=SMALLER)
            cut.data = envelope.data
            raise cut
    if envelope.partial:
        raise Overloaded(f"{url} answered only partly (isPartial): some of its storage is unavailable", fix=_STORES)
    return envelope


def parse_api_response(response: requests.Response, body: bytearray) -> PrometheusResponse:
    """Return the envelope of a successful answer; for any other answer, raise the matching SourceError."""
    code, url = response.status_code, bare_address(response.url)
    if code == 401:
        raise Unauthenticated(f"{url} answered {code} {response.reason}", fix=_LOGIN)
    if code == 403:
        grant = 'Grant verbs ["get"] on services/proxy in the namespace of Prometheus: see deploy/rbac/prometheus.yaml.'
        raise SourceForbidden(
            f"{url} answered {code} {response.reason}", fix=grant if SERVICE_PROXY.search(url) else _RIGHTS
        )
    if 300 <= code < 400:
        raise Refused(
            f"{url} redirects to {response.headers.get('location', 'nowhere')!r}, which is not followed",
            fix="Give the address behind the redirect; if that is a login page, credentials are missing.",
        )
    try:
        envelope = msgspec.json.decode(body, type=PrometheusResponse)
    except UNDECODABLE:
        # Beginning of a body that is not JSON, without its markup
        text = re.sub(r"<[^<>]*>", " ", body[:2000].decode("utf-8", "replace"))
        envelope = PrometheusResponse("", error=(f"the answer is not JSON: {' '.join(text.split())[:200]!r}"))
    if code == 200 and envelope.status == "success":
        return envelope
    error = _refusal(url, code, envelope)
    if isinstance(error, Overloaded):
        error.retry_after_seconds = retry.retry_after_seconds(response.headers.get("retry-after"), time.time())
    raise error


def _refusal(url: str, code: int, envelope: PrometheusResponse) -> SourceError:
    """Return the error for an answer without data: too large, too long, overloaded, or not the protocol."""
    message = f"{url} answered {code} {envelope.error_type}: {envelope.error[:300]}"
    from_prometheus = envelope.status == "error"
    if from_prometheus and _STORE_AWAY.search(envelope.error):
        return Overloaded(message, fix=_STORES)
    too_long = _LONG_TEXT if from_prometheus else _LONG_ADDRESS if code == 400 else None
    if code in (414, 431) or (too_long and too_long.search(envelope.error)):
        return SourceTooLong(message, fix=_SHORTER)
    # The words of the server itself, without what it repeats of the question
    unquoted = _QUOTED.sub(
        lambda match: "" if match[0][0] != '"' or _SELECTS.search(match[0]) else match[0], envelope.error
    )
    is_size = envelope.error_type == "timeout" or (_TOO_LARGE.search(unquoted) and not _NO_SIZE.search(unquoted))
    is_pace = code == 429 and _PACE.search(envelope.error)
    if not is_pace and (code == 413 or (from_prometheus and is_size)):
        # A limit may be on the span alone: what servers advise beside other limits does not count
        limit = _ADVICE.split(unquoted, maxsplit=1)[0]
        limit = limit if _TOO_LARGE.search(limit) else unquoted
        is_span = from_prometheus and _LONG_SPAN.search(limit) and not _AMOUNT.search(limit)
        return TooLongSpan(message, fix=SMALLER) if is_span else SourceLimit(message, fix=SMALLER)
    if code == 429:
        return Overloaded(
            message, fix="The server limits its callers: scan later, and leave profiler.prometheus.in_flight at 1."
        )
    if code == 408 or (code >= 500 and code not in _NOT_THIS_METHOD):
        return Overloaded(
            message, fix="Read the server's log; once the server works, scan again: only missing data are requested."
        )
    fix = _REFUSED if from_prometheus else "Check the address and its path prefix: this is not Prometheus' API."
    if not from_prometheus and (page := _PAGE.search(url)):  # people copy the address of one
        fix = f"Remove {page[1]} from the address: cotenant appends the path of the API itself."
    by_method = code in _NOT_THIS_METHOD or (400 <= code < 500 and not from_prometheus)
    return Refused(message, fix=fix) if by_method else SourceProtocol(message, fix=fix)


def unreachable(url: str, error: requests.RequestException) -> SourceError:
    """Return the error for a failed request: TooSlow if no answer arrived in time, else a connection error."""
    host = urlsplit(url).netloc
    if isinstance(error, requests.exceptions.ReadTimeout) or "Read timed out" in str(error):
        return TooSlow(f"{host} did not answer in time", fix=TIME)
    if isinstance(error, requests.exceptions.SSLError):
        if _PLAIN_HTTP.search(str(error)):
            return SourceUnreachable(f"{host} answers, but not with TLS", fix="Use an http:// address.")
        fix = "Set profiler.prometheus.ca_file to the certificate's authority, or use the certificate's host name."
        return SourceUnreachable(f"the certificate of {host} cannot be verified: {_cause(error)}", fix=fix)
    return SourceUnreachable(
        f"no connection to {host}: {_cause(error)}", fix="Check address, network and proxy settings."
    )


def _cause(error: requests.RequestException) -> str:
    """Return the network's own message of an error, without the layers of libraries around it."""
    reason = getattr(error.args[0] if error.args else None, "reason", None) or error
    return str(reason).rpartition("): ")[2]
