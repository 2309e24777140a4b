"""A second kube-apiserver on the same etcd, which hears of every change as late as a test says.

with second_apiserver(plane, folder) as slow:
    slow.delay_seconds = 1.0
    plane.api(slow.kubeconfig).create(...)      # judged by what it knew a second ago
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.cluster.api import ApiError
from tests.cluster.control_plane import APISERVER, ControlPlane
from tests.cluster.process import Server, free_port

_CHUNK = 1 << 16


class SlowApiServer:
    """Its etcd answers and tells of changes `delay_seconds` late, in order; what it writes itself arrives at once."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.delay_seconds = 0.0
        self._plane = plane
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        changed = {
            "--etcd-servers": f"http://127.0.0.1:{self._listener.getsockname()[1]}",
            "--secure-port": str(port),
        }
        self._server = Server("second-apiserver", [_with(word, changed) for word in plane.servers[APISERVER].command],
                              folder / "second-apiserver.log")  # fmt: skip
        document = yaml.safe_load(plane.admin_kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = self.url
        self.kubeconfig = folder / "second-apiserver.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        threading.Thread(target=self._accept, daemon=True).start()
        self._server.start()
        self._server.wait_until(self._ready)

    def stop(self) -> None:
        """End it and its connections."""
        self._server.kill()
        for opened in self._sockets:
            with suppress(OSError):
                opened.close()

    def _ready(self) -> bool:
        api = self._plane.api(self.kubeconfig, timeout=5)
        try:
            return api.ask("GET", "/readyz").get("message") == "ok"
        except (OSError, ApiError):
            return False
        finally:
            api.close()

    def _accept(self) -> None:
        etcd = urlsplit(self._plane.etcd_url)
        with suppress(OSError):  # the listener was closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((etcd.hostname or "", etcd.port or 0))
                self._sockets += [near, far]
                threading.Thread(target=_pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_on_late, args=(far, near), daemon=True).start()

    def _pass_on_late(self, source: socket.socket, target: socket.socket) -> None:
        """What comes is sent on after the delay of the moment it came, never before what came earlier."""
        waiting: deque[tuple[float, bytes]] = deque()
        more = threading.Condition()

        def send() -> None:
            with suppress(OSError):
                while True:
                    with more:
                        more.wait_for(lambda: bool(waiting))
                        due, content = waiting.popleft()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not content:
                        return
                    target.sendall(content)

        threading.Thread(target=send, daemon=True).start()
        content = b"-"
        while content:
            try:
                content = source.recv(_CHUNK)
            except OSError:
                content = b""
            with more:
                waiting.append((time.monotonic() + self.delay_seconds, content))
                more.notify()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)


def _with(word: str, changed: dict[str, str]) -> str:
    """An argument of the first server, or what the second one has in its place."""
    name = word.partition("=")[0]
    return f"{name}={changed[name]}" if name in changed else word


@contextmanager
def second_apiserver(plane: ControlPlane, folder: Path) -> Iterator[SlowApiServer]:
    """Ready and not slow yet; ended on exit."""
    server = SlowApiServer(plane, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
