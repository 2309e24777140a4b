"""EDGE: the NRI plugin, a thread of the node agent that the runtime calls before it creates or changes a container.

    connect -> RegisterPlugin -> the runtime calls: Configure, Synchronize (all that runs), then one call an event

It only answers: it never changes a container of its own accord (an UpdateContainers from a plugin can deadlock the
runtime, containerd issue 13733). It never answers with an error, which would keep a container from starting: a failed
or late decision is logged, counted and answered with "no change". After a lost connection it reconnects, and the
Synchronize that follows corrects containers that were created meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

import structlog

from cotenant.enforcer.runtime.bounded import Bounded, Late
from cotenant.enforcer.runtime.facts import Decide
from cotenant.enforcer.runtime.messages import nri
from cotenant.enforcer.runtime.messages import ttrpc as body
from cotenant.enforcer.runtime.nri import answers, ttrpc
from cotenant.enforcer.settings import RuntimeSettings

NAME: Final = "cotenant"
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
FIRST_RETRY_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)


class NriEventType(IntEnum):
    """The events to which the plugin subscribes, by NRI's numbers; NRI has no number for SYNCHRONIZE."""

    SYNCHRONIZE = 0
    RUN_POD_SANDBOX = 1
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    REMOVE_CONTAINER = 11


SUBSCRIBED: Final = sum(1 << (event - 1) for event in NriEventType if event)
_TOLD: Final = {
    "RunPodSandbox": NriEventType.RUN_POD_SANDBOX,
    "RemovePodSandbox": NriEventType.REMOVE_POD_SANDBOX,
    "PostStartContainer": NriEventType.POST_START_CONTAINER,
    "RemoveContainer": NriEventType.REMOVE_CONTAINER,
}
"""Methods of NRI 0.12 and later, one an event; older runtimes tell the same by StateChange."""


@dataclass(frozen=True, slots=True)
class NriEvent:
    """A runtime event upon which the agent runs its next tick early; the ids are the runtime's."""

    event: NriEventType
    pod_uid: str = ""
    container_id: str = ""


@dataclass(slots=True)
class Counters:
    """The plugin's counters since the start, for metrics."""

    registrations: int = 0
    answers: int = 0
    adjusted: int = 0
    late: int = 0
    failed: int = 0


class NriPlugin:
    """Keeps the plugin registered, in a thread from `start` to `stop`; neither method raises because of the runtime."""

    def __init__(
        self, settings: RuntimeSettings, decide: Decide, on_event: Callable[[NriEvent], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self.decide = decide
        self.counters = Counters()
        self.state = "not started"
        """One line for people: registered, or why not."""
        self.bounded = Bounded(settings.nri_answer_seconds)
        self._on_event = on_event
        self._stopping = threading.Event()
        self._session: _Session | None = None
        self._thread = threading.Thread(target=self._run, name="nri-plugin", daemon=True)

    @property
    def registered(self) -> bool:
        """True while the plugin is registered with the runtime."""
        session = self._session
        return session is not None and session.synchronized

    def start(self) -> None:
        """Start the thread and return at once, even if there is no socket yet."""
        self._thread.start()

    def stop(self) -> None:
        """Disconnect from the runtime, which continues without the plugin, and wait for the thread."""
        self._stopping.set()
        if self._session is not None:
            self._session.close()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def notify(self, event: NriEvent) -> None:
        """Pass an event to the listener; its errors do not affect the runtime."""
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - theirs
            self.counters.failed += 1
            log.error("a listener to runtime events failed", runtime_event=event.event.name, reason=repr(error))

    def _run(self) -> None:
        wait = FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            before = self.counters.registrations
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(self.settings.nri_register_seconds)
                    connection.connect(self.settings.nri_socket)
                    self._session = session = _Session(self, connection)
                    if not self._stopping.is_set():
                        session.serve()
            except Exception as error:  # noqa: BLE001 - any fault ends in a new connection, none ends the thread
                state = f"no connection to {self.settings.nri_socket}: {error or type(error).__name__}"
                if state != self.state and not self._stopping.is_set():
                    log.info("NRI plugin is not registered", state=state)
                self.state = state
            finally:
                self._session = None
            if self.counters.registrations > before:
                wait = FIRST_RETRY_SECONDS
            self._stopping.wait(wait)
            wait = min(2 * wait, self.settings.nri_retry_seconds)
        self.state = "stopped"


class _Session:
    def __init__(self, plugin: NriPlugin, connection: socket.socket) -> None:
        self.plugin = plugin
        self.synchronized = False
        self._connection = connection
        self._trunk = ttrpc.Trunk()
        self._accepted = False
        self._pods: list[Any] = []
        self._containers: list[Any] = []
        self._happened: list[NriEvent] = []
        self._methods: dict[str, Callable[[bytes], Any]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": partial(self._answer_event, NriEventType.CREATE_CONTAINER, answers.answer_creation),
            "UpdateContainer": partial(self._answer_event, NriEventType.UPDATE_CONTAINER, answers.answer_update),
            "StateChange": self._state_change,
            "Shutdown": lambda _: None,
            **{name: partial(self._take_event, event) for name, event in _TOLD.items()},
        }

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Register, then answer calls until the connection ends; ConnectionError, TimeoutError, OSError."""
        settings = self.plugin.settings
        registration = nri.RegisterPluginRequest(name=NAME, index=settings.nri_index).SerializeToString()
        deadline = time.monotonic() + settings.nri_register_seconds
        call = ttrpc.request(1, RUNTIME_SERVICE, "RegisterPlugin", registration)
        self._connection.sendall(ttrpc.frames(ttrpc.RUNTIME_CONNECTION, call))
        while True:
            self._connection.settimeout(None if self._accepted else max(deadline - time.monotonic(), 0.001))
            data = self._connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the runtime closed the connection")
            for connection, message in self._trunk.feed(data):
                if connection == ttrpc.PLUGIN_CONNECTION and message.type == ttrpc.REQUEST:
                    self._connection.sendall(ttrpc.frames(connection, self._answer(message)))
                    # Now the runtime no longer waits: the events of this call go to the plugin's listener.
                    happened, self._happened = self._happened, []
                    for event in happened:
                        self.plugin.notify(event)
                elif connection == ttrpc.RUNTIME_CONNECTION and message.type == ttrpc.RESPONSE:
                    response = body.Response.FromString(message.body)
                    if response.status.code != ttrpc.OK:
                        raise ConnectionError(f"the runtime refused the plugin: {response.status.message}")
                    self._accepted = True
                    self.plugin.counters.registrations += 1
                    self.plugin.state = f"registered at {settings.nri_socket}"
                    log.info("NRI plugin is registered", socket=settings.nri_socket)

    def _answer(self, message: ttrpc.Message) -> ttrpc.Message:
        call = body.Request.FromString(message.body)
        method = self._methods.get(call.method) if call.service == PLUGIN_SERVICE else None
        if method is None:
            return ttrpc.response(message.stream, code=ttrpc.UNIMPLEMENTED, text=f"no method {call.method}")
        counters = self.plugin.counters
        counters.answers += 1
        try:
            answer = method(call.payload)
        except Late as late:
            counters.late += 1
            log.warning("a container starts unchanged", method=call.method, reason=str(late))
        except Exception as error:  # noqa: BLE001 - an error of ours must not keep a container from starting
            counters.failed += 1
            log.error("a container starts unchanged", method=call.method, reason=repr(error))
        else:
            return ttrpc.response(message.stream, answer.SerializeToString() if answer is not None else b"")
        return ttrpc.response(message.stream)

    def _configure(self, payload: bytes) -> Any:
        request = nri.ConfigureRequest.FromString(payload)
        log.info("NRI plugin is configured", runtime=request.runtime, version=request.version)
        return nri.ConfigureResponse(events=SUBSCRIBED)

    def _synchronize(self, payload: bytes) -> Any:
        part = nri.SynchronizeRequest.FromString(payload)
        self._pods.extend(part.pods)
        self._containers.extend(part.containers)
        if part.more:
            return nri.SynchronizeResponse(more=True)
        pods, self._pods = self._pods, []
        containers, self._containers = self._containers, []
        self.synchronized = True
        self._happened.append(NriEvent(NriEventType.SYNCHRONIZE))
        decide = self.plugin.decide
        answer = self.plugin.bounded.call(lambda: answers.answer_synchronize(pods, containers, decide))
        self.plugin.counters.adjusted += len(answer.updates)
        return answer

    def _answer_event(self, event: NriEventType, answer: Callable[[Any, Decide], Any], payload: bytes) -> Any:
        """Decide on a container within the time limit, note the event, and return the protobuf response."""
        request = nri.ContainerRequest.FromString(payload)
        self._happened.append(NriEvent(event, request.pod.uid, request.container.id))
        decide = self.plugin.decide
        response = self.plugin.bounded.call(lambda: answer(request, decide))
        self.plugin.counters.adjusted += bool(response.ByteSize())
        return response

    def _take_event(self, event: NriEventType, payload: bytes) -> None:
        request = nri.ContainerRequest.FromString(payload)
        self._happened.append(NriEvent(event, request.pod.uid, request.container.id))

    def _state_change(self, payload: bytes) -> None:
        change = nri.StateChange.FromString(payload)
        if change.event in set(NriEventType):
            self._happened.append(NriEvent(NriEventType(change.event), change.pod.uid, change.container.id))
