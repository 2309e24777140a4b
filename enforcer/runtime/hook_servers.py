"""EDGE: other programs that take part in a container's creation: Koordinator's RuntimeHookService over gRPC.

Each JSON file of a folder registers one: its socket, the hook points at which it is called, and whether the kubelet's
call is refused (Fail) or continues unchanged (Ignore, the default) if it does not answer.

    {"remote-endpoint": "/run/x.sock", "failure-policy": "Ignore", "runtime-hooks": ["PreCreateContainer"]}
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import grpc
import msgspec
import structlog

from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.enforcer.runtime import CHANNEL_OPTIONS
from cotenant.enforcer.runtime.messages import hook

SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"
POINTS: Final[Mapping[str, Any]] = {
    "PreRunPodSandbox": hook.SandboxResponse,
    "PostStopPodSandbox": hook.SandboxResponse,
    "PreCreateContainer": hook.ContainerResponse,
    "PreStartContainer": hook.ContainerResponse,
    "PostStartContainer": hook.ContainerResponse,
    "PostStopContainer": hook.ContainerResponse,
    "PreUpdateContainerResources": hook.ContainerResponse,
}
"""Hook points, each named like its method of the hook service, and the type of the method's answer."""

log = structlog.get_logger(__name__)


class HookServerRefused(CotenantError):
    """A hook server with policy Fail did not answer, so the kubelet's call must not continue."""


class _Registration(msgspec.Struct, frozen=True, rename="kebab"):
    remote_endpoint: str
    failure_policy: Literal["Fail", "Ignore", ""] = ""
    runtime_hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookServer:
    """A registered hook server: its gRPC target, its hook points, and whether its failure policy is Fail."""

    name: str
    endpoint: str
    points: frozenset[str]
    fail: bool = False


def parse(name: str, text: bytes) -> HookServer:
    """Return the hook server of a registration file; raise ValueError if it is invalid."""
    try:
        registration = msgspec.json.decode(text, type=_Registration)
    except UNDECODABLE as error:
        raise ValueError(f"{name}: {error}") from error
    path = registration.remote_endpoint.removeprefix("unix://")
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"{name}: remote-endpoint {path!r} is no absolute path of a unix socket")
    points = frozenset(registration.runtime_hooks) & POINTS.keys()
    return HookServer(name, f"unix:{path}", points, registration.failure_policy == "Fail")


class HookServers:
    """The registered hook servers, reloaded when the folder changes; each call takes `seconds` at most."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._folder = Path(folder) if folder else None
        self._seconds = seconds
        self._stamp: object = None
        self._refused: int | None = None
        """Why the folder could not be read when it was looked at last."""
        self._servers: tuple[HookServer, ...] = ()
        self._channels: dict[str, Any] = {}

    def refresh(self) -> None:
        """Reload the folder if it changed; skip unreadable files; if the folder is unreadable, the servers stay."""
        stamp = {}
        try:
            for path in self._folder.glob("*.json") if self._folder else ():
                with contextlib.suppress(OSError):
                    info = path.stat()
                    stamp[path] = (info.st_ino, info.st_mtime_ns, info.st_size)
        except OSError as error:
            if error.errno != self._refused:
                log.warning("the list of hook servers is not updated", folder=str(self._folder), reason=error.strerror)
            self._refused = error.errno
            return
        self._refused = None
        if stamp == self._stamp:
            return
        self._stamp = stamp
        servers = []
        for path in sorted(stamp, key=str):
            try:
                servers.append(parse(path.name, path.read_bytes()))
            except (OSError, ValueError) as error:
                log.error("a hook server's registration is not usable", file=str(path), reason=str(error))
        self._servers = tuple(servers)
        log.info("hook servers are registered", servers=[f"{s.name} at {s.endpoint}" for s in self._servers])

    def wanted(self, point: str) -> bool:
        """Return whether any hook server is registered for this hook point."""
        return any(point in server.points for server in self._servers)

    async def ask(
        self, point: str, request: Callable[[], Any], take: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        """Call each server of the hook point, in the order of their files' names.

        `request` builds each request, and `take` receives each answer. `seconds` may shorten the time limit of each
        call. Raises `HookServerRefused` if a server with policy Fail does not answer.
        """
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        for server in self._servers:
            if point not in server.points:
                continue
            try:
                message = request().SerializeToString()
                channel = self._channels.get(server.endpoint)
                if channel is None:
                    channel = grpc.aio.insecure_channel(server.endpoint, CHANNEL_OPTIONS)
                    self._channels[server.endpoint] = channel
                answer = await channel.unary_unary(f"/{SERVICE}/{point}Hook")(message, timeout=limit)
                take(POINTS[point].FromString(answer))
            except Exception as error:
                reason = str(error) or type(error).__name__
                if isinstance(error, grpc.aio.AioRpcError):
                    reason = f"{error.code().name} {error.details()}"
                if server.fail:
                    raise HookServerRefused(f"hook server {server.name} failed at {point}: {reason}") from error
                log.warning("a hook server failed and is ignored", server=server.name, point=point, reason=reason)

    async def close(self) -> None:
        """Close the connections to all hook servers."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
