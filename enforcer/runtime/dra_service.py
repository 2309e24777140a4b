"""EDGE: the kubelet's interface of dynamic resource allocation: registration, and the service DRAPlugin (v1), by gRPC.

The kubelet finds the registration socket in its folder `plugins_registry`, queries the path of the service's socket,
and calls the service before the first container of a pod with claims and after the last. Each claim has its own answer
or error, so that one that cannot be prepared does not delay other pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from cotenant.base.errors import CotenantError
from cotenant.enforcer.dra.claims import Claims
from cotenant.enforcer.dra.offer import DRIVER
from cotenant.enforcer.runtime import SERVER_OPTIONS
from cotenant.enforcer.runtime.messages import dra, registration
from cotenant.enforcer.runtime.socket_guard import SocketGuard

SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
SUPPORTED: Final = "v1.DRAPlugin"
REGISTRATION_SERVICE: Final = "pluginregistration.Registration"
STOP_SECONDS: Final = 5.0
_log = structlog.get_logger(__name__)


class DraService:
    """Serves the kubelet's two sockets inside its context; it calls `registered` after each registration."""

    def __init__(
        self, claims: Claims, plugin_folder: Path, registry_folder: Path, registered: Callable[[], None]
    ) -> None:
        self.kubelet_knows = False
        """Whether the kubelet has registered this driver."""
        self._claims, self._registered = claims, registered
        self._plugin = SocketGuard(plugin_folder / "dra.sock")
        self._registration = SocketGuard(registry_folder / f"{DRIVER}-reg.sock")
        self._listening = ExitStack()

    def __enter__(self) -> DraService:
        """Start to listen, on the service's socket first; raise SocketTaken if another agent already listens there."""
        claim_calls = {
            "NodePrepareResources": (dra.ClaimsRequest, self._prepare),
            "NodeUnprepareResources": (dra.ClaimsRequest, self._unprepare),
        }
        registration_calls = {
            "GetInfo": (registration.InfoRequest, self._info),
            "NotifyRegistrationStatus": (registration.RegistrationStatus, self._handle_registration),
        }
        with ExitStack() as started:
            self._serve(self._plugin, SERVICE, claim_calls, started)
            self._serve(self._registration, REGISTRATION_SERVICE, registration_calls, started)
            self._listening = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening; prepared claims stay prepared."""
        self._listening.close()

    def heal(self) -> None:
        """Restore sockets that another program removed."""
        for guard in (self._plugin, self._registration):
            if guard.heal():
                _log.warning("socket put back", socket=str(guard.public))

    def _serve(
        self,
        guard: SocketGuard,
        service: str,
        methods: Mapping[str, tuple[Any, Callable[[Any], Any]]],
        started: ExitStack,
    ) -> None:
        """Start a server with its own thread: its calls run one by one, and registration never waits for a claim.

        `started` undoes each step, also if a later one fails.
        """
        guard.take()
        started.callback(guard.release)
        server = grpc.server(ThreadPoolExecutor(1, thread_name_prefix="dra"), options=SERVER_OPTIONS)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda request, _, answer=answer: answer(request),
                request_deserializer=kind.FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )
            for name, (kind, answer) in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{guard.private}")
        server.start()
        started.callback(lambda: server.stop(STOP_SECONDS).wait(2 * STOP_SECONDS))
        guard.publish()

    # --- registration -------------------------------------------------------------------------------------------------
    def _info(self, _: Any) -> Any:
        return registration.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._plugin.public), supported_versions=[SUPPORTED]
        )

    def _handle_registration(self, status: Any) -> Any:
        self.kubelet_knows = bool(status.plugin_registered)
        if self.kubelet_knows:
            _log.info("the kubelet has registered the driver", driver=DRIVER)
            self._registered()
        else:
            _log.error("the kubelet refuses the driver", driver=DRIVER, reason=status.error)
        return registration.RegistrationStatusResponse()

    # --- claims -------------------------------------------------------------------------------------------------------
    def _prepare(self, request: Any) -> Any:
        response = dra.PrepareResponse()
        for claim in request.claims:
            entry = response.claims.add(key=claim.uid)
            try:
                ready = self._claims.prepare(claim.namespace, claim.name, claim.uid)
            except Exception as error:  # noqa: BLE001 - the kubelet tries again, and tells the pod's owner why
                entry.value.error = _log_refusal(error, "prepared", claim)
            else:
                # The runtime's name of a request stands once, at its first device.
                entry.value.devices.extend(
                    dra.Device(
                        request_names=[offered_device.name],
                        pool_name=device.pool,
                        device_name=device.device,
                        cdi_device_ids=[ready.cdi_id(offered_device)] if number == 0 else [],
                    )
                    for offered_device in ready.requests
                    for number, device in enumerate(offered_device.devices)
                )
        return response

    def _unprepare(self, request: Any) -> Any:
        response = dra.UnprepareResponse()
        for claim in request.claims:
            entry = response.claims.add(key=claim.uid)
            entry.value.SetInParent()
            try:
                self._claims.unprepare(claim.uid)
            except Exception as error:  # noqa: BLE001 - the kubelet tries again
                entry.value.error = _log_refusal(error, "unprepared", claim)
        return response


def _log_refusal(error: Exception, what: str, claim: Any) -> str:
    reason = error.message if isinstance(error, CotenantError) else f"{type(error).__name__}: {error}"
    _log.warning(f"claim not {what}", claim=f"{claim.namespace}/{claim.name}", reason=reason)
    return f"{reason}. {error.fix}" if isinstance(error, CotenantError) and error.fix else reason
