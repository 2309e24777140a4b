"""What the proxy must not change: every way a call can end, by runtimes that a test plays. No container is run."""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cotenant.enforcer.runtime.cri_proxy import options_of, settings_of
from tests.cluster.process import Server
from tests.cluster.waiting import wait_for
from tests.node.cri import Cri, Outcome
from tests.node.proxying import ProxyProcess
from tests.node.upstreams import PlayedServer, Unary

pytestmark = pytest.mark.slow

V1 = "/runtime.v1.RuntimeService"
HUGE = 6 << 20
"""Over gRPC's default limit of 4 MiB."""


def test_every_flag_of_the_command_line_is_followed() -> None:
    argv = ["--socket", "/a", "--upstream", "/b", "--hook-dir", "/c", "--hook-seconds", "2.5"]
    settings = settings_of(options_of(argv))
    assert (settings.cri_socket, settings.cri_upstream, settings.cri_hook_dir, settings.cri_hook_seconds) == (
        "/a",
        "/b",
        "/c",
        2.5,
    )


def fail(_: bytes, context: Any) -> bytes:
    context.set_trailing_metadata((("why", "because"), ("detail-bin", b"\x00\xff")))
    context.abort(grpc.StatusCode.NOT_FOUND, "no such container: é")
    raise AssertionError


def echo(request: bytes, context: Any) -> bytes:
    context.send_initial_metadata((("first", "1"),))
    context.set_trailing_metadata((("last", "2"),))
    return request


def call_facts(_: bytes, context: Any) -> bytes:
    """What it was called with: metadata, and how much time it has."""
    metadata = sorted((k, v) for k, v in context.invocation_metadata() if k.startswith("x-"))
    return repr((metadata, context.time_remaining())).encode()


def double(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
    for request in requests:
        yield request
        yield request


def events(_: Iterator[bytes], context: Any) -> Iterator[bytes]:
    context.send_initial_metadata((("first", "1"),))
    yield b"one"
    yield b"two"
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")


class Waiting:
    """A method that hangs until its caller gives up."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def __call__(self, _: bytes, context: Any) -> bytes:
        entered = threading.Event()
        context.add_callback(lambda: (self.left.set(), entered.set()))
        entered.wait(60)
        return b""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crp-") as text:
        yield Path(text)


@pytest.fixture(scope="module")
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture(scope="module")
def upstream(folder: Path, waiting: Waiting) -> Iterator[PlayedServer]:
    unary: dict[str, Unary] = {
        f"{V1}/ContainerStatus": fail,
        f"{V1}/Status": echo,
        "/runtime.v1alpha2.RuntimeService/Status": echo,
        "/runtime.v1.ImageService/ListImages": echo,
        f"{V1}/Version": call_facts,
        f"{V1}/StopContainer": waiting,
        f"{V1}/CreateContainer": echo,
        f"{V1}/FromTheFuture": echo,
        "/another.v7.Service/Method": fail,
    }
    with PlayedServer(folder / "up.sock", unary, {f"{V1}/GetContainerEvents": events, "/x.Y/Both": double}) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(folder: Path, upstream: PlayedServer) -> Iterator[ProxyProcess]:
    with ProxyProcess(folder, upstream.socket) as process:
        yield process


@pytest.fixture
def both(upstream: PlayedServer, proxy: ProxyProcess) -> Iterator[tuple[Cri, Cri]]:
    pair = Cri(upstream.socket), proxy.client()
    yield pair
    for cri in pair:
        cri.close()


def ends(pair: tuple[Cri, Cri], path: str, body: bytes = b"") -> list[Outcome]:
    service, _, method = path.removeprefix("/").partition("/")
    outcomes = []
    for cri in pair:
        cri.service = service
        outcomes.append(cri.outcome(method, body))
    return outcomes


@pytest.mark.server
@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{V1}/ContainerStatus", grpc.StatusCode.NOT_FOUND),
        (f"{V1}/Status", grpc.StatusCode.OK),
        ("/runtime.v1alpha2.RuntimeService/Status", grpc.StatusCode.OK),
        ("/runtime.v1.ImageService/ListImages", grpc.StatusCode.OK),
        (f"{V1}/FromTheFuture", grpc.StatusCode.OK),
        (f"{V1}/ReopenContainerLog", grpc.StatusCode.UNIMPLEMENTED),
        (f"{V1}/NobodyHasIt", grpc.StatusCode.UNIMPLEMENTED),
        ("/another.v7.Service/Method", grpc.StatusCode.NOT_FOUND),
    ],
)
def test_a_call_ends_as_it_would_without_the_proxy(both: tuple[Cri, Cri], path: str, code: grpc.StatusCode) -> None:
    direct, through = ends(both, path, b"\x0a\x01x")
    assert direct.code is code
    assert through == direct


def test_garbage_for_a_call_that_is_looked_into_goes_on_as_it_came(both: tuple[Cri, Cri]) -> None:
    garbage = b"\xff\xff\xff garbage"
    direct, through = ends(both, f"{V1}/CreateContainer", garbage)
    assert through.body == garbage
    assert through == direct


def test_messages_larger_than_grpcs_default_pass_both_ways(both: tuple[Cri, Cri]) -> None:
    large = bytes(HUGE)
    assert ends(both, f"{V1}/Status", large)[1].body == large


def test_initial_and_trailing_metadata_pass(both: tuple[Cri, Cri]) -> None:
    for cri in both:
        response, call = cri.channel.unary_unary(f"{V1}/Status").with_call(b"x", timeout=60)
        assert ("first", "1") in tuple(call.initial_metadata())
        assert ("last", "2") in tuple(call.trailing_metadata())
        assert response == b"x"


def test_a_callers_metadata_and_deadline_pass(both: tuple[Cri, Cri]) -> None:
    metadata = (("x-one", "1"), ("x-two-bin", b"\x00\x01"))
    for cri in both:
        call = cri.channel.unary_unary(f"{V1}/Version")
        received, seconds = eval(call(b"", timeout=50, metadata=metadata))
        assert received == sorted(metadata)
        assert 30 < seconds < 60  # the runtime reads its own clock


def test_a_call_without_a_deadline_gets_none(both: tuple[Cri, Cri]) -> None:
    for cri in both:
        response = cri.channel.unary_unary(f"{V1}/Version")(b"")
        seconds = eval(response)[1]
        assert seconds is None or seconds > 1e8


def test_a_deadline_ends_the_call_at_the_runtime_too(proxy: ProxyProcess, waiting: Waiting) -> None:
    waiting.left.clear()
    client = proxy.client()
    for seconds in (0.2, 2.0, 20.0):  # one that has run out before the runtime heard of the call proves nothing
        assert client.outcome("StopContainer", seconds=seconds).code is grpc.StatusCode.DEADLINE_EXCEEDED
        if waiting.left.wait(20):
            break
    assert waiting.left.is_set()
    client.close()


def test_a_caller_that_hangs_up_ends_the_call_at_the_runtime_too(proxy: ProxyProcess, waiting: Waiting) -> None:
    waiting.left.clear()
    client = proxy.client()
    call = client.channel.unary_unary(f"{V1}/StopContainer").future(b"")
    time.sleep(0.1)  # whether it has arrived by now does not matter
    call.cancel()
    client.close()
    hung_up = proxy.client()
    for seconds in (0.3, 3.0, 30.0):
        hung_up.channel.unary_unary(f"{V1}/StopContainer").future(b"", timeout=seconds)
        if waiting.left.wait(seconds + 20):
            break
    assert waiting.left.is_set()
    hung_up.close()


def test_a_stream_from_the_runtime_passes_with_its_end(both: tuple[Cri, Cri]) -> None:
    for cri in both:
        call = cri.channel.unary_stream(f"{V1}/GetContainerEvents")(b"", timeout=60)
        datas: list[bytes] = []
        with pytest.raises(grpc.RpcError) as ended:
            datas.extend(iter(call.__next__, None))
        assert ("first", "1") in tuple(call.initial_metadata())
        assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")


def test_streams_pass_both_ways_while_both_sides_talk(both: tuple[Cri, Cri]) -> None:
    for cri in both:
        answers = cri.channel.stream_stream("/x.Y/Both")(iter([b"a", b"b"]), timeout=60)
        assert list(answers) == [b"a", b"a", b"b", b"b"]


@pytest.mark.parametrize("authority", ["/run/some/kubelet.sock", "localhost", "%2Frun%2Fx.sock"])
def test_any_authority_that_a_client_sends_is_accepted(proxy: ProxyProcess, authority: str) -> None:
    client = Cri(proxy.socket, options=(("grpc.default_authority", authority),))
    assert client.outcome("Status", b"x").body == b"x"
    client.close()


def test_a_runtime_that_is_away_is_unavailable_at_once_and_found_again_soon(
    folder: Path, upstream: PlayedServer, proxy: ProxyProcess
) -> None:
    client = proxy.client()

    def away_and_back() -> float:
        """Seconds until it is found again."""
        assert client.outcome("Status").code is grpc.StatusCode.OK
        upstream.stop()
        wait_for("the outage", lambda: client.outcome("Status").code is grpc.StatusCode.UNAVAILABLE)
        began = time.monotonic()
        while time.monotonic() - began < 3.0:  # long enough for gRPC's own back-off to have grown past a second
            assert client.outcome("Status", seconds=30).code is grpc.StatusCode.UNAVAILABLE
            time.sleep(0.05)
        upstream.start()
        began = time.monotonic()
        wait_for("the runtime", lambda: client.outcome("Status").code is grpc.StatusCode.OK, every=0.01)
        return time.monotonic() - began

    # Tuned: attempts at most 0.5 s apart. The default would wait several seconds by now. A busy machine may be slower
    # than either, so one good round in three is enough.
    assert any(away_and_back() < 5.0 for _ in range(3))
    client.close()


@pytest.mark.server
def test_a_second_instance_refuses_to_start_and_the_first_serves_on(
    folder: Path, upstream: PlayedServer, proxy: ProxyProcess
) -> None:
    second = ProxyProcess(folder, upstream.socket)
    second.server.log = folder / "second.log"
    with pytest.raises(RuntimeError, match="another instance serves"):
        second.start()
    assert second.server.process is not None
    assert second.server.process.returncode == 1
    client = proxy.client()
    assert client.outcome("Status", b"x").body == b"x"
    client.close()


@pytest.mark.parametrize("harm", ["deleted", "replaced"])
def test_a_socket_whose_name_was_taken_away_is_put_back(proxy: ProxyProcess, harm: str) -> None:
    before = proxy.socket.stat().st_ino
    proxy.socket.unlink()
    if harm == "replaced":
        proxy.socket.touch()
    wait_for("the name", lambda: proxy.socket.exists() and proxy.socket.stat().st_ino == before)
    client = proxy.client()
    assert client.outcome("Status", b"x").body == b"x"
    client.close()


@pytest.mark.server
def test_a_killed_proxy_leaves_nothing_that_hinders_the_next(folder: Path, upstream: PlayedServer) -> None:
    process = ProxyProcess(folder, upstream.socket, "killed")
    process.start()
    process.server.kill()
    assert process.socket.exists()
    process.start()
    client = process.client()
    assert client.outcome("Status", b"x").body == b"x"
    client.close()
    process.server.stop()
    assert [p.name for p in folder.glob("*killed.sock*")] == ["killed.sock.lock"]


@pytest.mark.server
def test_a_supervisor_hears_that_it_serves_goes_on_and_ends(
    folder: Path, upstream: PlayedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(folder / "notify"))
        supervisor.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        with ProxyProcess(folder, upstream.socket, "watched") as watched:
            assert [supervisor.recv(99) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            watched.server.stop()
        messages = [supervisor.recv(99)]
        while messages[-1] == b"WATCHDOG=1":
            messages.append(supervisor.recv(99))
        assert messages[-1] == b"STOPPING=1"


@pytest.mark.server
def test_the_command_serves_as_the_light_entry_does(folder: Path, upstream: PlayedServer) -> None:
    listen = folder / "command.sock"
    argv = ["node", "cri-proxy", "--socket", str(listen), "--upstream", str(upstream.socket), "--hook-dir", ""]
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()", *argv]
    server = Server("cri-proxy", command, folder / "command.log")
    server.start()
    server.wait_until(listen.exists)
    client = Cri(listen)
    assert client.outcome("Status", b"x").body == b"x"
    client.close()
    server.stop()
    assert server.process is not None
    assert server.process.returncode == 0


def test_only_its_owner_may_use_the_socket(proxy: ProxyProcess) -> None:
    assert proxy.socket.stat().st_mode & 0o777 == 0o600
