"""EDGE: the connection to Prometheus: prometheus-api-client on cotenant's own HTTP session.

The package decodes every answer into Python objects, has no timeout, does not retry POST and follows redirects. So it
gets a session that reads answers up to a maximum size, parses them (`answers.parse_api_response`) and returns undecoded
JSON. The only file that imports prometheus_api_client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import msgspec
import requests
from requests.auth import AuthBase, HTTPBasicAuth

from cotenant.base.errors import (
    SettingsError,
    SourceError,
    SourceForbidden,
    SourceLimit,
    SourceProtocol,
    SourceTooLong,
    SourceUnreachable,
)
from cotenant.base.http.requests_adapter import CertificateAdapter
from cotenant.base.json_documents.json_decoders import UNDECODABLE, make_ready
from cotenant.base.settings.catalogue import mask_secrets
from cotenant.profiler.prometheus import answers, decode, retry
from cotenant.profiler.prometheus.promql import Wording, of_labels, selector
from cotenant.profiler.settings import PrometheusSettings

TELLING_BYTES: Final = 1 << 20
"""Size of an answer from which on its transfer time shows whether compression is faster; other delays are shorter."""
_COMPRESSING_BYTES_PER_SECOND: Final = 30e6
"""What a server compresses with gzip on one core (`bench.profiler.scan`). That is two thirds of an answer's cost to its
processor, and worth a tenth of the bytes on a slow network alone."""
_WHOLE: Final = {"partial_response": "false", "deny_partial_response": "1"}
"""Asks Thanos and a cluster of VictoriaMetrics for an error where they would answer with a part; others ignore it."""
_RESOLUTION: Final = "max_source_resolution"
_RAW: Final = {_RESOLUTION: "0s"}
"""Thanos' own samples; left to itself, one that downsamples may answer a question of wide steps from 5-minute means."""


@dataclass(slots=True)
class QueryCosts:
    """Number of queries so far, their waiting time, bytes and warnings; shared by the threads that send queries."""

    queries: int = 0
    waited_seconds: float = 0.0
    received_bytes: int = 0
    warnings: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, size: int) -> None:
        """Count a query, successful or not: the seconds that it took and the bytes of its answer."""
        with self._lock:
            self.queries += 1
            self.waited_seconds += seconds
            self.received_bytes += size


Renewal = Callable[[], str]
"""Returns a header Authorization that is valid now; "" for none."""
_SIZE_ALONE: Final = (SourceTooLong, answers.CutAnswer, answers.TooLongSpan, answers.TooSlow)
"""Limits that speak of a question's size and of nothing else."""


class _Moment(msgspec.Struct):
    value: tuple[float, str]


class Client:
    """A client of one Prometheus server; thread-safe."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        outage_seconds: float = 0.0,
        timer: retry.Timer | None = None,
        renew: Renewal | None = None,
    ) -> None:
        from prometheus_api_client import PrometheusConnect

        make_ready()
        self._settings = settings
        self.account = QueryCosts()
        self._takes_patterns: bool | None = None
        """Whether the server finds metrics by a regular expression of their names; None before it was asked."""
        self.url, user = _address(settings.url)
        auth: AuthBase = HTTPBasicAuth(*user) if user else _Nothing()
        if settings.bearer_token_file:
            auth = _BearerTokenFile(Path(settings.bearer_token_file))
        elif settings.username:
            password = _secret(Path(settings.password_file)) if settings.password_file else ""
            auth = HTTPBasicAuth(settings.username, password)
        session = _BoundedSession(settings, auth, self.account, renew)
        timeout = (settings.connect_timeout_seconds, settings.timeout_seconds)
        headers = {**({"X-Scope-OrgID": settings.tenant} if settings.tenant else {}), **settings.headers}
        # POST, whose length nobody limits; GET through an API server, where POST would need the right `create`
        method = "GET" if answers.SERVICE_PROXY.search(urlsplit(self.url).path) else "POST"
        self._api: Any = PrometheusConnect(self.url, headers=headers, session=session, timeout=timeout, method=method)
        # The constructor mounts an adapter of its own, with ten connections and a retry that leaves POST out.
        session.mount(
            self.url, CertificateAdapter(settings.server_name, pool_maxsize=settings.in_flight, pool_block=True)
        )
        timer = timer or retry.MachineTimer()
        self._policy = retry.RetryPolicy(settings.retries, settings.backoff_seconds, outage_seconds, timer)

    def range(
        self, query: str | Wording, start_seconds: int, end_seconds: int, step_seconds: int, resolution_seconds: int = 0
    ) -> msgspec.Raw:
        """Return the result of a range query, undecoded; raise SourceLimit if a smaller query may succeed.

        If the server refuses the usual wording of the query, the exact one is sent. `resolution_seconds` is the
        resolution from which a downsampling store may answer; 0 allows raw samples only. Other failures raise other
        kinds of SourceError.
        """
        moments = (start_seconds, end_seconds, step_seconds, resolution_seconds)
        if isinstance(query, str) or query.usual == query.exact or self._takes_patterns:
            text = query if isinstance(query, str) else query.usual
            return self._range(text, *moments)
        if self._takes_patterns is False:
            return self._range(query.exact, *moments)
        try:
            answer = self._range(query.usual, *moments)
        except (SourceProtocol, SourceLimit, SourceForbidden) as error:
            if isinstance(error, (*_SIZE_ALONE, answers.Unauthenticated)):
                raise
            try:
                answer = self._range(query.exact, *moments)
            except SourceError:
                raise error from None
            self._takes_patterns = False
            return answer
        self._takes_patterns = True
        return answer

    def _range(
        self, query: str, start_seconds: int, end_seconds: int, step_seconds: int, resolution_seconds: int
    ) -> msgspec.Raw:
        start, end = (datetime.fromtimestamp(t, UTC) for t in (start_seconds, end_seconds))
        limits = {"timeout": f"{self._settings.timeout_seconds:g}s"}
        if resolution_seconds:
            limits[_RESOLUTION] = f"{resolution_seconds}s"
        return self._ask_with_retries(
            lambda: self._api.custom_query_range(query, start, end, str(step_seconds), limits)
        )

    def series(self, selectors: Sequence[str], start_seconds: int, end_seconds: int) -> msgspec.Raw:
        """Return the label sets of all series in the time span that match a selector, undecoded, from the index."""
        start, end = (datetime.fromtimestamp(t, UTC) for t in (start_seconds, end_seconds))
        return self._ask_with_retries(lambda: self._api.get_series(start, end, {"match[]": list(selectors)}))

    def names(self, start_seconds: int, end_seconds: int, matching: str = "{}") -> frozenset[str]:
        """Return the names of metrics with a series in the time span that matches the selector; `{}` matches all."""
        params = {"start": start_seconds, "end": end_seconds, **({} if matching == "{}" else {"match[]": matching})}
        answer = self._ask_with_retries(lambda: self._api.get_label_values("__name__", params))
        return frozenset(decode.texts(answer))

    def clock_seconds(self) -> float | None:
        """Return the Unix time by the server's own clock; None if it refuses the query or its answer is unreadable."""
        try:
            answer = self._ask_with_retries(lambda: self._api.custom_query("vector(time())"))
            return float(msgspec.json.decode(answer, type=list[_Moment])[0].value[1])
        except (SourceProtocol, SourceLimit, SourceForbidden, IndexError, ValueError, *UNDECODABLE):
            return None

    def describe(self) -> str:
        """Return the server's address and the cluster's labels."""
        own = of_labels(self._settings.labels)
        return f"prometheus {self.url}" + (selector(own) if own else "")

    def close(self) -> None:
        """Close all connections."""
        self._api.close()

    def stop(self) -> None:
        """Send no further queries; queries that wait for the server to come back fail now."""
        self._policy.stop()

    def _ask_with_retries(self, ask: Any) -> msgspec.Raw:
        """Send a query with retries (POST too, as queries change nothing); fail at once if the server is down."""
        attempts = retry.Attempts()
        while True:
            if not self._policy.may_ask():
                raise SourceUnreachable(
                    f"{self.url} did not answer {self._policy.silence} times in a row; no further query was sent",
                    fix="Check that the server runs, then scan again: only missing data are requested.",
                )
            try:
                # The part of an answer that the package picks out, which takes its shape for granted.
                try:
                    answer = ask()
                except (KeyError, TypeError):
                    answer = None
                if not isinstance(answer, msgspec.Raw):
                    raise SourceProtocol(
                        f"{self.url} answered without the requested data",
                        fix="Check that this is the address of Prometheus' API.",
                    )
            except (answers.TooSlow, SourceUnreachable) as error:
                # The kind of a failed try, which determines the next one.
                if isinstance(error, answers.Overloaded):
                    failure = retry.FailedTry(silent=False, retry_after_seconds=error.retry_after_seconds)
                else:
                    failure = retry.FailedTry(silent=True, slow=isinstance(error, answers.TooSlow))
                pause = self._policy.pause_seconds(attempts, failure)
                if pause is None:
                    raise
                self._policy.timer.pause(pause)
            else:
                self._policy.answered(attempts)
                return answer


class _Answer:
    """Replaces requests' response inside the package: the same two attributes, with the data undecoded."""

    status_code = 200

    def __init__(self, data: msgspec.Raw) -> None:
        self._data = data

    def json(self) -> dict[str, Any]:
        is_object = bytes(memoryview(self._data)[:1]) == b"{"
        return {"data": msgspec.json.decode(self._data, type=dict[str, msgspec.Raw]) if is_object else self._data}


class _BoundedSession(requests.Session):
    """A session that limits the size of answers, follows no redirect and raises cotenant's errors.

    Answers are plain, or compressed if the network is slow; a header in the settings takes precedence.
    """

    def __init__(
        self, settings: PrometheusSettings, auth: AuthBase, account: QueryCosts, renew: Renewal | None
    ) -> None:
        super().__init__()
        self._renew, self._renewed = renew, dict[str, str]()
        self._limit = settings.max_answer_bytes
        self._account = account
        self._is_network_known = False
        self._takes_post: bool | None = None
        self._proxies = dict.fromkeys(("http", "https"), settings.proxy) if settings.proxy else None
        self._parameters = parse_qs(urlsplit(settings.url.strip()).query, keep_blank_values=True)
        self.headers["Accept-Encoding"] = "identity"
        # Set always: without it requests would send whatever ~/.netrc holds for the host.
        self.auth = auth
        self.verify = False if settings.insecure else settings.ca_file or True
        self.cert = (settings.client_cert_file, settings.client_key_file) if settings.client_cert_file else None

    def request(self, method: Any, url: Any, **options: Any) -> Any:  # type: ignore[override]
        """Send a request; switch to GET if POST is refused and GET is not, as by proxies that grant only `get`."""
        if method != "POST" or self._takes_post is False:
            return self._send_authenticated("GET", url, options)
        try:
            answer = self._send_authenticated("POST", url, options)
        except (SourceForbidden, answers.Refused) as error:
            if self._takes_post:
                raise
            try:
                answer = self._send_authenticated("GET", url, options)
            except (SourceForbidden, SourceProtocol):
                raise error from None
            except SourceLimit:
                self._takes_post = False
                raise
            self._takes_post = False
            return answer
        self._takes_post = True
        return answer

    def _send_authenticated(self, method: str, url: str, options: Mapping[str, Any]) -> _Answer:
        """Return the answer, after renewing credentials that have expired."""
        sent = self._renewed
        try:
            return self._sent(method, url, options)
        except answers.Unauthenticated:
            if self._renew is None:
                raise
            if self._renewed is sent:  # else another thread has renewed them since
                fresh = self._renew()
                self._renewed = {"Authorization": fresh} if fresh else {}
        return self._sent(method, url, options)

    def _sent(self, method: str, url: str, request_options: Mapping[str, Any]) -> _Answer:
        """Return the whole answer to one request; POST parameters are sent in the body, where length does not matter.

        The URL's own parameters stay in the URL, because proxies check permissions by them.
        """
        options = {**request_options, "stream": True, "allow_redirects": False, "auth": None}
        options["proxies"] = self._proxies
        options["headers"] = {**(request_options.get("headers") or {}), **self._renewed}
        parameters = {**_RAW, **(request_options.get("params") or {}), **_WHOLE}
        if method == "POST":
            options |= {"params": self._parameters, "data": parameters}
        else:
            options["params"] = self._parameters | parameters
        started, body = time.monotonic(), bytearray()
        try:
            with super().request(method, url, **options) as response:
                body = self._read(response, started + 2 * options["timeout"][1])
                envelope = answers.parse_api_response(response, body)
        except requests.RequestException as error:
            raise answers.unreachable(url, error) from error
        finally:
            self._account.add(time.monotonic() - started, len(body))
        self._account.warnings.update(envelope.warnings or ())
        return _Answer(answers.require_complete_answer(answers.bare_address(url), envelope).data)

    def _read(self, response: requests.Response, deadline: float) -> bytearray:
        """Return the whole body, unless it is too large or arrives too slowly."""
        body, begun_seconds, url = bytearray(), time.monotonic(), response.url
        for piece in response.iter_content(1 << 18):
            body += piece
            if len(body) > self._limit:
                raise SourceLimit(
                    f"an answer of {answers.bare_address(url)} is larger than {self._limit} bytes", fix=answers.SMALLER
                )
            if time.monotonic() > deadline:
                raise answers.TooSlow(
                    f"an answer of {answers.bare_address(url)} was not complete in time", fix=answers.TIME
                )
        # Ask for compressed answers from now on if the first large one shows that they are worth it.
        size_bytes = len(body)
        seconds = time.monotonic() - begun_seconds
        if not (self._is_network_known or size_bytes < TELLING_BYTES):
            self._is_network_known = True
            if worth_compressing(size_bytes, seconds):
                self.headers["Accept-Encoding"] = "gzip"
        return body


def worth_compressing(size_bytes: int, seconds: float) -> bool:
    """Return whether an uncompressed answer took longer to arrive than the server would take to compress it."""
    return size_bytes < _COMPRESSING_BYTES_PER_SECOND * seconds


def _address(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return the URL without credentials, parameters and trailing slash, and the credentials."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"{mask_secrets('url', url)!r} is not an http or https address of Prometheus",
            fix="Give --prometheus http://host:9090",
        )
    user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return urlunsplit(bare).rstrip("/"), user


class _BearerTokenFile(AuthBase):
    """Bearer authentication with a file that is read again for every request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {_secret(self._path)}"
        return request


class _Nothing(AuthBase):
    """No authentication beyond the headers."""

    def __call__(self, request: Any) -> Any:
        return request


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"the credential file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"the credential file {path} is not text: byte {error.start} is not UTF-8",
            fix="Name a file with only the password or token, as text.",
        ) from error


def warnings(settings: PrometheusSettings) -> Mapping[str, str]:
    """Return warnings on how the server is accessed, by key."""
    plain = urlsplit(settings.url).scheme == "http" and bool(settings.username or settings.bearer_token_file)
    notes = {
        "insecure": settings.insecure and "the server's certificate is not verified (insecure)",
        "plain": plain and "credentials are sent without encryption (http)",
        "tenant": settings.tenant and "a tenant header is set, as for Mimir or Cortex; these servers were not tested",
    }
    return {key: text for key, text in notes.items() if text}
