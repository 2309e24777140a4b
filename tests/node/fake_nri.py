"""The runtime's side of NRI, played by a test step by step: its own framing, so that ours is not judged by itself."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.enforcer.runtime.messages import nri, ttrpc

TO_PLUGIN, TO_RUNTIME = 1, 2
REQUEST, RESPONSE = 1, 2
PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
SECONDS = 60.0


class PluginError(Exception):
    """The plugin answered with a status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Peer:
    """One connection of the plugin."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(SECONDS)
        self.largest_frame = 0
        self.said: list[tuple[int, int]] = []
        """(connection, type) of every message that the plugin has sent."""
        self._streams: dict[int, bytes] = defaultdict(bytes)
        self._next = 1

    def receive(self, stream_id: int) -> tuple[int, bytes]:
        """The next message on that connection: its stream id and body. ConnectionError at the end."""
        while (message := self._whole(stream_id)) is None:
            number, length = struct.unpack(">II", self._exactly(8))
            self.largest_frame = max(self.largest_frame, length)
            self._streams[number] += self._exactly(length)
        return message

    def send(self, number: int, stream: int, kind: int, body: bytes, piece: int = 4096) -> None:
        """A message in frames of `piece` bytes."""
        frame = struct.pack(">IIBB", len(body), stream, kind, 0) + body
        for at in range(0, len(frame), piece):
            part = frame[at : at + piece]
            self.connection.sendall(struct.pack(">II", number, len(part)) + part)

    def take_registration(self) -> tuple[int, Any]:
        """Its RegisterPlugin call: stream id and request."""
        stream, body = self.receive(TO_RUNTIME)
        request = ttrpc.Request.FromString(body)
        assert (request.service, request.method) == ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
        return stream, nri.RegisterPluginRequest.FromString(request.payload)

    def accept(self, stream: int, code: int = 0, text: str = "") -> None:
        """Answer the registration."""
        response = ttrpc.Response()
        if code:
            response.status.code, response.status.message = code, text
        self.send(TO_RUNTIME, stream, RESPONSE, response.SerializeToString())

    def ask(self, method: str, payload: bytes, service: str = PLUGIN, piece: int = 4096) -> bytes:
        """Call the plugin; its payload. PluginError when it answers with a status."""
        stream, self._next = self._next, self._next + 2
        call = ttrpc.Request(service=service, method=method, payload=payload)
        self.send(TO_PLUGIN, stream, REQUEST, call.SerializeToString(), piece)
        answered, body = self.receive(TO_PLUGIN)
        assert answered == stream
        response = ttrpc.Response.FromString(body)
        if response.status.code:
            raise PluginError(response.status.code, response.status.message)
        return response.payload

    def welcome(self, pods: Any = (), containers: Any = ()) -> Any:
        """Registration, Configure and one Synchronize as a runtime does them; the plugin's updates."""
        stream, _ = self.take_registration()
        self.accept(stream)
        self.ask("Configure", nri.ConfigureRequest(runtime="fake", version="1").SerializeToString())
        return self.synchronize(pods, containers)

    def synchronize(self, pods: Any, containers: Any, more: bool = False) -> Any:
        request = nri.SynchronizeRequest(pods=pods, containers=containers, more=more)
        return nri.SynchronizeResponse.FromString(self.ask("Synchronize", request.SerializeToString()))

    def create(self, pod: Any, container: Any) -> Any:
        request = nri.ContainerRequest(pod=pod, container=container).SerializeToString()
        return nri.CreateContainerResponse.FromString(self.ask("CreateContainer", request))

    def _whole(self, number: int) -> tuple[int, bytes] | None:
        arrived = self._streams[number]
        if len(arrived) < 10:
            return None
        length, stream, kind, _ = struct.unpack(">IIBB", arrived[:10])
        if len(arrived) < 10 + length:
            return None
        self._streams[number] = arrived[10 + length :]
        self.said.append((number, kind))
        return stream, arrived[10 : 10 + length]

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.connection.recv(length - len(data))
            if not part:
                raise ConnectionError("the plugin closed the connection")
            data += part
        return data


class FakeRuntime:
    """A socket that plugins connect to."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(SECONDS)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Peer]:
        """The next connection, closed at the end."""
        connection, _ = self.listener.accept()
        with connection:
            yield Peer(connection)

    def close(self) -> None:
        self.listener.close()


def pod(name: str = "p", labels: Any = None, annotations: Any = None) -> Any:
    return nri.Pod(
        id=f"{name}-sandbox",
        name=name,
        uid=f"{name}-uid",
        namespace="default",
        labels=labels or {},
        annotations=annotations or {},
        linux=nri.PodLinux(cgroup_parent=f"/kubepods/besteffort/pod{name}"),
    )


def container(name: str = "main", of: str = "p", state: int = 3, **cpu: int) -> Any:
    nri_container = nri.Container(id=f"{of}-{name}", pod_id=f"{of}-sandbox", name=name, state=state)
    for key, value in cpu.items():
        getattr(nri_container.linux.resources.cpu, key).value = value
    return nri_container
