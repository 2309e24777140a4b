"""Kubelets are read over verified TLS, each once a round; who does not answer is asked less often and says why."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import (
    CotenantError,
    SettingsError,
    SourceError,
    SourceForbidden,
    SourceProtocol,
    SourceUnreachable,
)
from cotenant.base.kube.auth import Access
from cotenant.profiler.recorder.exposition import parse_resource_metrics
from cotenant.profiler.recorder.kubelets import (
    RESOURCES,
    KubeletRules,
    Kubelets,
    fetch,
    open_session,
    pause_seconds,
    place_in_round,
    tls_context,
)
from cotenant.profiler.recorder.pod_records import KubeletAddress
from tests.cluster.pki import Authority
from tests.support.kubelets import TOKEN, KubeletServers, containers_of

NODES, PODS = 6, 3


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeletServers]:
    with KubeletServers(tmp_path_factory.mktemp("kubelets"), NODES, PODS) as running:
        yield running


def access(authority: Path | str, token: str = TOKEN) -> Access:
    return Access("c", "", lambda: f"Bearer {token}", ca_file=str(authority))


def read(kubelets: Kubelets, addresses: list[KubeletAddress]) -> Counter[str]:
    """Samples by node."""
    samples: Counter[str] = Counter()

    def take(node: str, text: bytes, received: float) -> None:
        assert received > 0
        samples[node] += parse_resource_metrics(text).samples

    with ThreadPoolExecutor(1) as pool:  # a browser's test may have left a running loop in this thread
        pool.submit(asyncio.run, kubelets.read_round(addresses, take, spread=0.0)).result()
    return samples


def test_each_kubelet_is_asked_once_a_round_and_all_of_its_answer_is_read(servers: KubeletServers) -> None:
    kubelets = Kubelets(access(servers.authority), KubeletRules(), 60.0)

    samples = read(kubelets, servers.addresses)

    # Three metrics of each container, two of the node.
    assert samples == {a.node: 3 * len(containers_of(i, PODS)) + 2 for i, a in enumerate(servers.addresses)}
    assert kubelets.asked == NODES
    assert kubelets.errors == {}


def test_an_answer_on_which_the_reader_fails_costs_the_other_nodes_nothing(servers: KubeletServers) -> None:
    kubelets, taken = Kubelets(access(servers.authority), KubeletRules(), 60.0), []
    bad = servers.addresses[0].node

    def take(node: str, _text: bytes, _received: float) -> None:
        taken.append(int("no number" if node == bad else 1))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, kubelets.read_round(servers.addresses, take, spread=0.0)).result()
    assert taken == [1] * (NODES - 1)
    assert list(kubelets.errors) == [bad] and "cannot be read: ValueError" in kubelets.errors[bad].message


def test_a_certificate_of_another_authority_is_refused_with_its_fix(servers: KubeletServers, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other").certificate
    kubelets = Kubelets(access(other), KubeletRules(), 60.0)

    assert read(kubelets, servers.addresses[:1]) == {}
    (error,) = kubelets.errors.values()
    assert isinstance(error, SourceUnreachable)
    assert servers.addresses[0].node in error.message
    assert "serverTLSBootstrap" in error.fix
    assert "--kubelet-ca-file" in error.fix


def test_the_named_authority_counts_and_insecure_gives_up_the_proof(servers: KubeletServers, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other").certificate
    for own in (KubeletRules(ca_file=str(servers.authority)), KubeletRules(insecure=True)):
        assert len(read(Kubelets(access(other), own, 60.0), servers.addresses)) == NODES
    assert not KubeletRules().insecure


def test_a_missing_right_is_said_by_its_name(servers: KubeletServers) -> None:
    kubelets = Kubelets(access(servers.authority, "another"), KubeletRules(), 60.0)

    assert read(kubelets, servers.addresses[:1]) == {}
    (error,) = kubelets.errors.values()
    assert isinstance(error, SourceForbidden)
    assert "nodes/metrics" in error.fix


def test_a_kubelet_that_is_away_costs_the_others_nothing_and_is_asked_again_at_once_then_seldom(
    servers: KubeletServers,
) -> None:
    away = KubeletAddress("away", "127.0.0.1", 1)
    kubelets = Kubelets(access(servers.authority), KubeletRules(), 60.0)

    for _ in range(4):
        assert len(read(kubelets, [*servers.addresses, away])) == NODES

    # Asked in the first and the second round; then it pauses for half a minute, which the others' rounds don't take.
    assert kubelets.asked == 4 * NODES + 2
    assert kubelets.errors.keys() == {"away"}
    assert read(kubelets, servers.addresses) and not kubelets.errors  # a node that is gone is no trouble


def test_an_authority_without_key_identifiers_is_taken_where_python_asks_for_them_by_default(
    servers: KubeletServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = ssl.create_default_context

    def strict(cafile: str | None = None) -> ssl.SSLContext:
        """The context as Python 3.13 and later make it."""
        context = default(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    address = servers.addresses[0]
    with (
        socket.create_connection((address.host, address.port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match="Key Identifier"),
    ):
        strict(str(servers.authority)).wrap_socket(plain, server_hostname=address.host)
    kubelets = Kubelets(access(servers.authority), KubeletRules(), 60.0)
    assert len(read(kubelets, servers.addresses)) == NODES
    assert not kubelets.errors


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("nothing")
    with pytest.raises(SettingsError, match=r"ca\.pem"):
        tls_context(access(""), KubeletRules(ca_file=str(wrong)))


@given(st.integers(0, 10_000), st.floats(15, 100))
def test_the_pause_grows_up_to_ten_minutes(failures: int, interval: float) -> None:
    assert 0 <= pause_seconds(failures, interval) <= pause_seconds(failures + 1, interval) <= 600


@given(st.text(max_size=60))
def test_a_node_has_one_place_in_every_round(name: str) -> None:
    assert 0 <= place_in_round(name) < 1
    assert place_in_round(name) == place_in_round(name)


BROKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nbroken"
"""After it the connection is reset."""
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (65 * 1024**2) + bytes(65 * 1024**2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "error", "phrase"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", SourceProtocol, "does not answer as a kubelet"),
        (b"", SourceProtocol, "its answer was cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\na 1", SourceProtocol, "its answer was cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na 1\r\n", SourceProtocol, "its answer was cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\na 1\r\n", SourceProtocol, "Invalid character"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\n\r\n", SourceProtocol, "answers 302"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\nUnauthorized", SourceForbidden, "answers 401: Unauthorized"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nlater", SourceProtocol, "answers 503: later"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\na 1", SourceProtocol, "cannot be unpacked"),
        (LARGE, SourceProtocol, "answers more than 64 MiB"),
        (BROKEN, SourceError, "its answer was cut"),
    ],
    ids=[
        *("other protocol", "nothing", "cut", "chunk missing", "no chunk"),
        *("redirect", "401", "503", "no gzip", "large", "reset"),
    ],
)
def test_whatever_is_no_whole_answer_of_a_kubelet_is_refused_with_its_node(
    tmp_path: Path, body: bytes, error: type[CotenantError], phrase: str
) -> None:
    authority = Authority.create(tmp_path / "pki")
    certificate, key = authority.issue("kubelet", "system:node:odd", hosts=("127.0.0.1",))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    context = tls_context(access(authority.certificate), KubeletRules())

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # who read enough has gone
            writer.write(body)
            await writer.drain()
            writer.transport.abort() if body is BROKEN else writer.close()

    async def ask() -> bytes:
        server = await asyncio.start_server(answer_once, "127.0.0.1", 0, ssl=serving)
        address = KubeletAddress("odd", "127.0.0.1", server.sockets[0].getsockname()[1])
        async with server, open_session(context, "Bearer t") as session:
            return await fetch(session, address, RESOURCES)

    with ThreadPoolExecutor(1) as pool, pytest.raises(error) as raised:
        pool.submit(asyncio.run, ask()).result()
    assert "the kubelet of node odd" in raised.value.message and phrase in raised.value.message


def test_of_a_round_in_which_one_does_not_speak_tls_all_others_are_read(servers: KubeletServers) -> None:
    kubelets = Kubelets(access(servers.authority), KubeletRules(), 60.0)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        odd = KubeletAddress("odd", "127.0.0.1", plain.getsockname()[1])

        def hang_up() -> None:
            plain.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert len(read(kubelets, [*servers.addresses, odd])) == NODES
        thread.join()
    assert kubelets.errors.keys() == {"odd"}
