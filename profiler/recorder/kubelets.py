"""EDGE: reads kubelets at their own port, many in parallel, each once per round.

It needs the right `nodes/metrics`; nothing goes through the API server. A kubelet that does not answer is queried less
often, and does not delay others. The nodes of a round are spread over part of the interval, each at the same point in
every round, so that neither the network nor this process has all the load at once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)

from cotenant.base.errors import (
    CotenantError,
    SettingsError,
    SourceError,
    SourceForbidden,
    SourceProtocol,
    SourceUnreachable,
)
from cotenant.base.kube.auth import Access
from cotenant.base.kube.connection import cluster_tls
from cotenant.profiler.recorder.exposition import THROTTLED
from cotenant.profiler.recorder.pod_records import KubeletAddress

INTERVAL_SECONDS: Final = 60.0
"""Time between two readings of a kubelet: the default of a Prometheus server."""
CONNECTIONS: Final = 128
"""Most connections at the same time."""
PATIENCE_SECONDS: Final = 10.0
"""Timeout of a whole answer; a kubelet that must collect new values takes a second."""
LONGEST_PAUSE_SECONDS: Final = 600.0
MOST_BYTES: Final = 64 * 1024**2
_PIECE: Final = 128 * 1024
"""Unpacked at a time."""
SPREAD: Final = 0.5
"""Share of the interval over which the queries of a round are spread."""
CERTIFICATE_FIX: Final = (
    "The kubelet serves a certificate that the cluster's authority did not sign. Let kubelets request one "
    "(serverTLSBootstrap: true, then approve the requests: kubectl get csr), or name the authority that signed them in "
    "--kubelet-ca-file. --kubelet-insecure skips the verification of the kubelet's identity."
)
FORBIDDEN_FIX: Final = 'Grant access in a ClusterRole: apiGroups: [""], resources: ["nodes/metrics"], verbs: ["get"].'

Take = Callable[[str, bytes, float], None]
"""Called with the node, the text of its answer and the Unix time of its arrival; a SourceError counts as no answer."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A metrics page of a kubelet; `metric` is the only metric needed of a long page, which is sent compressed.

    Kubelets that can filter metrics are asked to (`name[]`); in other answers what follows that metric is not
    decompressed.
    """

    path: str
    metric: str = ""

    @property
    def target(self) -> str:
        """Path and query of the request's URL."""
        return f"{self.path}?name%5B%5D={self.metric}" if self.metric else self.path


RESOURCES: Final = MetricsPage("/metrics/resource")
THROTTLING: Final = MetricsPage("/metrics/cadvisor", THROTTLED)


@dataclass(frozen=True, slots=True)
class KubeletRules:
    """The rules for reading kubelets: how often, and how their certificates are verified.

    `ca_file` is a PEM file of the authorities that may sign them; "" for the cluster's own. With `insecure` no
    certificate is verified: anybody on the network can answer instead of a kubelet. `round_seconds` is the time between
    rounds by the machine's clock, if the recorder's clock is faster; None means the interval.
    """

    interval_seconds: float = INTERVAL_SECONDS
    ca_file: str = ""
    insecure: bool = False
    round_seconds: float | None = None


@dataclass(slots=True)
class _Trouble:
    """The last error of a node, how often it occurred in a row, and when the node is queried again (monotonic)."""

    error: CotenantError
    times: int
    until: float


class Kubelets:
    """Queries the kubelets of nodes round by round; `errors` has the nodes whose last query failed."""

    def __init__(
        self,
        access: Access,
        rules: KubeletRules,
        interval_seconds: float,
        now: Callable[[], float] = time.time,
        page: MetricsPage = RESOURCES,
    ) -> None:
        """Create the reader; nothing is queried yet. Raise SettingsError for an unreadable file of certificates."""
        self.asked = 0
        """Number of queries sent so far."""
        self._access, self._interval, self._now, self._page = access, interval_seconds, now, page
        self._context = tls_context(access, rules)
        self._troubles: dict[str, _Trouble] = {}

    @property
    def errors(self) -> dict[str, CotenantError]:
        """Errors of the nodes whose last query failed, by node; thread-safe."""
        return {node: trouble.error for node, trouble in list(self._troubles.items())}

    async def read_round(
        self,
        addresses: Iterable[KubeletAddress],
        take: Take,
        *,
        spread: float = SPREAD,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        """Query each due node once, and pass each answer to `take` as it arrives; query no more once `stopped()`."""
        nodes = {address.node: address for address in addresses}
        self._troubles = {node: trouble for node, trouble in self._troubles.items() if node in nodes}
        begun_seconds = time.monotonic()
        free = asyncio.Semaphore(CONNECTIONS)
        due = [a for a in nodes.values() if not (t := self._troubles.get(a.node)) or t.until <= begun_seconds]
        authorization = await asyncio.to_thread(self._access.authorization) or ""

        async def ask(address: KubeletAddress, session: ClientSession) -> None:
            await asyncio.sleep(spread * self._interval * place_in_round(address.node))
            async with free:
                if stopped is not None and stopped():
                    return
                await self._ask(address, session, take)

        async with open_session(self._context, authorization) as session:
            await asyncio.gather(*(ask(address, session) for address in due))

    async def _ask(self, address: KubeletAddress, session: ClientSession, take: Take) -> None:
        self.asked += 1
        try:
            text = await fetch(session, address, self._page)
            take(address.node, text, self._now())
        except CotenantError as error:
            self._note(address.node, error)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a node answers, all others are recorded
            why = f"{type(error).__name__}: {error}"[:300]
            self._note(address.node, SourceProtocol(f"{_who(address)}: its answer cannot be read: {why}"))
        else:
            self._troubles.pop(address.node, None)

    def _note(self, node: str, error: CotenantError) -> None:
        times = self._troubles[node].times + 1 if node in self._troubles else 1
        until = time.monotonic() + pause_seconds(times, self._interval)
        self._troubles[node] = _Trouble(error, times, until)


def place_in_round(node: str) -> float:
    """Return the point in a round of queries, 0..1, at which a node is queried; it is fixed for a node's name."""
    return zlib.crc32(node.encode()) / 2**32


def pause_seconds(failures: int, interval_seconds: float) -> float:
    """Return the least pause before a node is queried again: none after one failure, then growing, up to a limit."""
    if failures < 2:
        return 0.0
    return min(interval_seconds * (2.0 ** min(failures - 2, 20) - 0.5), LONGEST_PAUSE_SECONDS)


def tls_context(access: Access, rules: KubeletRules) -> ssl.SSLContext:
    """Return the TLS context for kubelets: verified by `rules.ca_file` or the cluster's authority, or not at all."""
    authority = rules.ca_file or access.ca_file
    try:
        return cluster_tls(access, authority, verify=not rules.insecure)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"the certificates for kubelets cannot be read: {authority or access.cert_file}: {error}",
            fix="Give --kubelet-ca-file the path of a PEM file, or leave it empty for the cluster's authority.",
        ) from error


def open_session(context: ssl.SSLContext, authorization: str) -> ClientSession:
    """Return a session for the kubelets of a round, inside the event loop that uses it; close it with `async with`.

    Each request has its own connection, so that no round begins with a connection that broke since the last round.
    """
    headers = {"Accept": "text/plain"} | ({"Authorization": authorization} if authorization else {})
    return ClientSession(
        connector=TCPConnector(ssl=context, limit=0, force_close=True),
        headers=headers,
        skip_auto_headers=("Accept-Encoding", "User-Agent"),
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=PATIENCE_SECONDS),
    )


async def fetch(session: ClientSession, address: KubeletAddress, page: MetricsPage) -> bytes:
    """Return a kubelet's page, or its start with the needed metric; raise SourceError if it cannot be read."""
    target = f"https://{address.place}{page.target}"
    headers = {"Accept-Encoding": "gzip"} if page.metric else {}
    try:
        async with session.get(target, headers=headers, allow_redirects=False) as response:
            received = bytearray()
            async for part in response.content.iter_any():
                received += part
                if len(received) > MOST_BYTES:
                    raise SourceProtocol(f"{_who(address)} answers more than {MOST_BYTES >> 20} MiB")
            body = bytes(received)
            del received  # many pages are unpacked at once: each is held once meanwhile
    except (ClientError, OSError) as error:
        raise _failure(error, address) from error
    if response.status != 200:
        what = f"{_who(address)} answers {response.status}: {body[:200].decode('utf-8', 'replace').strip()}"
        if response.status == 401:
            raise SourceForbidden(
                what, fix="Kubelets must accept tokens of service accounts: authentication.webhook.enabled: true."
            )
        raise SourceForbidden(what, fix=FORBIDDEN_FIX) if response.status == 403 else SourceProtocol(what)
    if response.headers.get("Content-Encoding", "").lower() != "gzip":
        return body
    try:
        return unpack(body, page.metric)
    except (zlib.error, ValueError) as error:
        raise SourceProtocol(f"{_who(address)}: its answer cannot be unpacked: {error}") from error


def unpack(packed: bytes, metric: str) -> bytes:
    """Decompress a gzip page up to the end of one metric's lines, or completely if the metric is missing.

    Raise zlib.error for other data, and ValueError for data that are cut or larger than MOST_BYTES.
    """
    unpacker, text, first = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), bytearray(b"\n"), -1
    sample, comment = b"\n" + metric.encode() + b"{", b"\n#"
    while not unpacker.eof:
        tail_start = max(0, len(text) - len(sample))
        piece = unpacker.decompress(packed, _PIECE)
        packed = unpacker.unconsumed_tail
        text += piece
        if len(text) > MOST_BYTES:
            raise ValueError(f"the unpacked page has more than {MOST_BYTES >> 20} MiB")
        first = first if first >= 0 else text.find(sample, tail_start)
        # The samples of a metric follow each other, and the next metric begins with its comments.
        if first >= 0 and (end := text.find(comment, max(first, tail_start))) >= 0:
            return bytes(text[1 : end + 1])
        if not piece and not packed and not unpacker.eof:
            raise ValueError("its compressed text is incomplete")
    return bytes(text[1:])


def _failure(error: ClientError | OSError, address: KubeletAddress) -> SourceError:
    who = _who(address)
    match error:
        case TimeoutError():
            return SourceUnreachable(f"{who} did not answer in {PATIENCE_SECONDS:g} s")
        case ClientConnectorCertificateError():
            refused = getattr(error.certificate_error, "verify_message", error.certificate_error)
            return SourceUnreachable(f"{who}: its certificate is refused: {refused}", fix=CERTIFICATE_FIX)
        case ClientConnectorError():
            return SourceUnreachable(
                f"{who} cannot be reached: {error.os_error.strerror or error.os_error}",
                fix=f"Let this pod reach port {address.port} of nodes: check the network and NetworkPolicies.",
            )
        case ClientPayloadError() | ServerDisconnectedError():
            return SourceProtocol(f"{who}: its answer was cut: {error}")
        case OSError():
            return SourceUnreachable(f"{who}: the connection broke: {error.strerror or error}")
        case _:
            answer_text = error.message if isinstance(error, ClientResponseError) else str(error)
            return SourceProtocol(f"{who} does not answer as a kubelet: {' '.join(answer_text.split())[:200]}")


def _who(address: KubeletAddress) -> str:
    return f"the kubelet of node {address.node} ({address.place})"
