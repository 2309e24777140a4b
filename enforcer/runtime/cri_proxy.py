"""EDGE: the CRI proxy between the kubelet and a runtime without NRI: it forwards every call and decodes a few.

    kubelet -> our socket -> (hooks) -> the runtime's socket

`cri_forward` forwards calls, `cri_hooks` changes the few. `python -m cotenant.enforcer.runtime.cri_proxy` starts only
the proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from cotenant.base.errors import CotenantError
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.process.endings import end_on_hang_up
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings, container_resources
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.runtime import CHANNEL_OPTIONS, SERVER_OPTIONS
from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.cri_forward import SERVICES, Forward
from cotenant.enforcer.runtime.cri_hooks import CriHooks
from cotenant.enforcer.runtime.cri_messages import cgroup_parent_of
from cotenant.enforcer.runtime.facts import Decide
from cotenant.enforcer.runtime.hook_servers import HookServers
from cotenant.enforcer.runtime.messages import cri
from cotenant.enforcer.runtime.parents import Parents
from cotenant.enforcer.runtime.socket_guard import SocketGuard
from cotenant.enforcer.settings import RuntimeSettings
from cotenant.enforcer.sources.documents import policy_of

WATCH_SECONDS: Final = 0.25
"""Time between two checks of the socket's name, the policy and the registrations."""
LONGEST_REPAIR_SECONDS: Final = 60.0
"""Longest time between two attempts to decide on containers that started without a decision."""
GRACE_SECONDS: Final = 5.0
"""Time for calls in progress at the proxy's end."""

log = structlog.get_logger(__name__)


def notify(state: str) -> None:
    """Send a state such as "READY=1" to the supervisor by systemd's sd_notify, if it names a socket; ignore errors."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.setblocking(False)
        notifier.sendto(state.encode(), address)


class CriProxy:
    """The proxy, which serves from `start` to `stop` in one event loop; raises SocketTaken if another one serves."""

    def __init__(self, settings: RuntimeSettings, decide: Decide) -> None:
        self.settings = settings
        self._guard = SocketGuard(Path(settings.cri_socket))
        self._servers = HookServers(settings.cri_hook_dir, settings.cri_hook_seconds)
        self.hooks = CriHooks(decide, self._servers, Bounded(settings.cri_hook_seconds))
        self._tasks: set[asyncio.Task[None]] = set()
        self._repairing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._repairing.set_result(None)
        self._repair_at, self._repair_wait = 0.0, WATCH_SECONDS
        self.failed = asyncio.Event()
        """Set when it can serve no longer and should be started anew."""

    async def start(self) -> None:
        """Listen on the socket and serve it; the runtime need not be running yet."""
        self._guard.take()
        self._servers.refresh()
        self._channel = grpc.aio.insecure_channel(f"unix:{self.settings.cri_upstream}", CHANNEL_OPTIONS)
        self.hooks.recover = self._recover
        self.hooks.cgroup_parent = self._cgroup_parent
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((Forward(self._channel, self.hooks, self._spawn),))
        self._server.add_insecure_port(f"unix:{self._guard.private}")
        await self._server.start()
        self._guard.publish()
        notify("READY=1")
        self._spawn(self._watch())
        self._spawn(self._recover_quietly())
        log.info("CRI proxy serves", socket=self.settings.cri_socket, upstream=self.settings.cri_upstream)

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Wait for calls in progress to end, at most `grace_seconds`, then release the socket."""
        notify("STOPPING=1")
        for task in self._tasks:
            task.cancel()
        await self._server.stop(grace_seconds)
        await self._servers.close()
        await self._channel.close()
        self._guard.release()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            notify("WATCHDOG=1")
            try:
                if self._guard.heal():
                    log.warning("another program removed the socket; it is restored", socket=self.settings.cri_socket)
                self._servers.refresh()
                # In a task of its own, so that the supervisor goes on hearing of us.
                if self.hooks.store.undecided() and self._repairing.done() and time.monotonic() >= self._repair_at:
                    self._repairing = self._spawn(self._repair_quietly())
            except OSError as error:
                log.error("the socket cannot be restored", socket=self.settings.cri_socket, reason=str(error))
                self.failed.set()
                return

    async def _repair_quietly(self) -> None:
        try:
            await self.hooks.repair(self._update)
            self._repair_wait = WATCH_SECONDS
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning("containers start without a decision for now", reason=why, again_seconds=self._repair_wait)
            self._repair_at = time.monotonic() + self._repair_wait
            self._repair_wait = min(2 * self._repair_wait, LONGEST_REPAIR_SECONDS)

    async def _update(self, container_id: str, resources: Any) -> None:
        """Update a container's resources at the runtime; ignore a container that is gone."""
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=resources)
        send = self._channel.unary_unary(f"/{SERVICES[0]}/UpdateContainerResources")
        try:
            await send(request.SerializeToString(), timeout=self.settings.cri_hook_seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise

    async def _recover(self, seconds: float) -> None:
        base = f"/{SERVICES[0]}"
        sandboxes = await self._channel.unary_unary(f"{base}/ListPodSandbox")(b"", timeout=seconds)
        containers = await self._channel.unary_unary(f"{base}/ListContainers")(b"", timeout=seconds)
        listed = cri.ListPodSandboxResponse.FromString(sandboxes), cri.ListContainersResponse.FromString(containers)
        self.hooks.store.recover(listed[0].items, listed[1].containers)

    async def _cgroup_parent(self, sandbox_id: str, seconds: float) -> str:
        """Return the cgroup parent of a sandbox from containerd's verbose status; "" if it is missing."""
        request = cri.StatusRequest(id=sandbox_id, verbose=True).SerializeToString()
        send = self._channel.unary_unary(f"/{SERVICES[0]}/PodSandboxStatus")
        answer = cri.SandboxStatusResponse.FromString(await send(request, timeout=seconds))
        return cgroup_parent_of(answer.info.get("info", ""))

    async def _recover_quietly(self) -> None:
        try:
            await self._recover(self.settings.cri_hook_seconds)
        except grpc.aio.AioRpcError as error:
            log.info("the runtime is not running yet", code=error.code().name, details=error.details())


class PolicyDecision:
    """Decides by a NodeSLO file (reloaded on change) or the built-in policy, within the parent cgroups' limits."""

    def __init__(self, path: str, cgroup_root: str) -> None:
        self._parents = Parents(Path(cgroup_root))
        self._path = Path(path) if path else None
        self._stamp: tuple[int, int] | None = None
        self._policy = node_policy.decode({})

    def __call__(self, pod: PodSpec, container: ContainerSpec, cgroup_parent: str) -> ContainerSettings:
        """Return the settings for one container."""
        try:
            if self._path is not None:
                info = self._path.stat()
                stamp = (info.st_ino, info.st_mtime_ns)
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._policy = policy_of(self._path.read_text(), str(self._path))
        except (OSError, UnicodeDecodeError, CotenantError) as error:
            log.error("policy file refused: the previous policy stays", file=str(self._path), reason=str(error))
        resources = container_resources(pod, container, self._policy)
        return self._parents.fitted(resources, cgroup_parent, container.id)


async def serve(settings: RuntimeSettings, decide: Decide) -> bool:
    """Serve until SIGTERM or SIGINT; return False if the server failed before."""
    proxy = CriProxy(settings, decide)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await proxy.start()
    waiting = [asyncio.ensure_future(event.wait()) for event in (ended, proxy.failed)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await proxy.stop()
    return not proxy.failed.is_set()


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed command-line options."""
    defaults = RuntimeSettings()
    parser = argparse.ArgumentParser("python -m cotenant.enforcer.runtime.cri_proxy", description="CRI runtime proxy.")
    parser.add_argument("--socket", default=defaults.cri_socket, help="where to listen")
    parser.add_argument("--upstream", default=defaults.cri_upstream, help="the runtime's CRI socket")
    parser.add_argument("--hook-dir", default=defaults.cri_hook_dir, help="folder that registers hook servers")
    parser.add_argument("--hook-seconds", type=float, default=defaults.cri_hook_seconds, help="time limit of one hook")
    parser.add_argument("--policy", default="", help="NodeSLO file")
    parser.add_argument("--cgroup-root", default="/sys/fs/cgroup", help="where cgroup file systems are mounted")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> RuntimeSettings:
    """Return the settings of the proxy from its command-line options."""
    return RuntimeSettings(
        cri_socket=options.socket,
        cri_upstream=options.upstream,
        cri_hook_dir=options.hook_dir,
        cri_hook_seconds=options.hook_seconds,
    )


def main(arguments: list[str]) -> int:
    """Serve with command-line options and return the exit code."""
    options = options_of(arguments)
    configure_logging(TelemetrySettings())
    decide = PolicyDecision(options.policy, options.cgroup_root)
    try:
        return 0 if asyncio.run(serve(settings_of(options), decide)) else 1
    except CotenantError as error:
        log.error(error.message, fix=error.fix)
        return error.exit_code


if __name__ == "__main__":
    end_on_hang_up()
    sys.exit(main(sys.argv[1:]))
