"""EDGE: forwards a call of the kubelet to the runtime and returns its answer, for any method.

Calls pass as bytes with their deadline, metadata, status and details, streams in both directions, also of methods
unknown to this version; only the calls that `CriHooks` names are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from cotenant.enforcer.runtime.cri_hooks import CriHooks
from cotenant.enforcer.runtime.hook_servers import HookServerRefused

SERVICES: Final = ("runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService")
_IMAGES: Final = ("runtime.v1.ImageService", "runtime.v1alpha2.ImageService")
_UNARY: Final = (
    "Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox CreateContainer "
    "StartContainer StopContainer RemoveContainer ListContainers ContainerStatus UpdateContainerResources "
    "ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats ListContainerStats PodSandboxStats "
    "ListPodSandboxStats UpdateRuntimeConfig Status CheckpointContainer ListMetricDescriptors ListPodSandboxMetrics "
    "RuntimeConfig UpdatePodSandboxResources"
)
_UNARY_IMAGES: Final = "ListImages ImageStatus PullImage RemoveImage ImageFsInfo"
"""Known to be one message each way, which is cheaper; everything else passes as streams both ways."""
SINGLE_SECONDS: Final = 0.02
"""Wait after an unknown call's first message for the end of its messages, which comes at once if there is only one."""
FOREVER_SECONDS: Final = 1e8
"""gRPC's way to say that there is no deadline."""


class Forward(grpc.GenericRpcHandler):
    """A gRPC handler that forwards every method of every service."""

    def __init__(self, channel: Any, hooks: CriHooks, spawn: Callable[[Any], object]) -> None:
        self._channel = channel
        self._hooks = hooks
        self._spawn = spawn
        self._known: dict[str, Any] = {}
        for names, methods in ((SERVICES, _UNARY), (_IMAGES, _UNARY_IMAGES)):
            for path in (f"/{name}/{method}" for name in names for method in methods.split()):
                self._known[path] = grpc.unary_unary_rpc_method_handler(self._unary(path))

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler that forwards this call."""
        path = handler_call_details.method
        return self._known.get(path) or grpc.stream_stream_rpc_method_handler(self._stream(path))

    def _unary(self, path: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        service, _, method = path.removeprefix("/").partition("/")
        send = self._channel.unary_unary(path)
        if service in SERVICES and method in self._hooks.methods:
            return self._forward_with_hooks(method, send)

        async def forward(request: bytes, context: Any) -> bytes:
            return await _exchange(send, request, context)

        return forward

    def _forward_with_hooks(self, method: str, send: Any) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def forward(request: bytes, context: Any) -> bytes:
            try:
                passage = await self._hooks.enter(method, request, _timeout(context))
            except HookServerRefused as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
                raise  # abort has raised
            response = await _exchange(send, passage.request, context)
            if passage.done is not None:
                self._spawn(self._hooks.leave(method, passage.done, response))
            return response

        return forward

    def _stream(self, path: str) -> Callable[[Any, Any], Awaitable[None]]:
        from_one, from_many = self._channel.unary_stream(path), self._channel.stream_stream(path)

        async def forward(requests: AsyncIterator[bytes], context: Any) -> None:
            around = {"timeout": _timeout(context), "metadata": _metadata(context)}
            incoming = _RequestStream(requests)
            sending = None
            if (only := await incoming.only()) is not None:
                call = from_one(only, **around)
            else:
                call = from_many(**around)
                sending = asyncio.ensure_future(_pump(incoming, call))
            try:
                await _relay(call, context)
            finally:
                incoming.close()
                call.cancel()
                if sending is not None:
                    sending.cancel()

        return forward


class _RequestStream:
    """A caller's messages, and whether there is only one.

    grpc.aio replaces the runtime's status by INTERNAL if a message is written to a call that has ended meanwhile. A
    single message is sent together with the call, so that this cannot happen, and all of CRI's calls have only one.
    """

    def __init__(self, requests: AsyncIterator[bytes]) -> None:
        self._requests = requests
        self._ahead: list[asyncio.Future[bytes | None]] = []

    async def only(self) -> bytes | None:
        """Return the only message; None if more messages follow, or may follow."""
        first = await self._peek(None)
        if first is None or await self._peek(SINGLE_SECONDS) is not None or not self._ahead[-1].done():
            return None
        return first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for future in self._ahead:
            if (buffered := await future) is None:
                return
            yield buffered
        async for request in self._requests:
            yield request

    def close(self) -> None:
        for future in self._ahead:
            future.cancel()

    async def _peek(self, seconds: float | None) -> bytes | None:
        future = asyncio.ensure_future(_next(self._requests))
        self._ahead.append(future)
        await asyncio.wait({future}, timeout=seconds)
        return future.result() if future.done() else None


async def _next(requests: AsyncIterator[bytes]) -> bytes | None:
    async for request in requests:
        return request
    return None


async def _relay(call: Any, context: Any) -> None:
    try:
        await _initial(call, context)
        async for response in call:
            await context.write(response)
        code = await call.code()
        trailing = tuple(await call.trailing_metadata() or ())
    except grpc.aio.AioRpcError as error:
        await _abort(context, error)
        raise  # abort has raised
    if code is not grpc.StatusCode.OK:
        await context.abort(code, await call.details(), trailing)
    context.set_trailing_metadata(trailing)


async def _exchange(send: Any, request: bytes, context: Any) -> bytes:
    call = send(request, timeout=_timeout(context), metadata=_metadata(context))
    try:
        response: bytes = await call
    except grpc.aio.AioRpcError as error:
        await _abort(context, error)
        raise  # abort has raised
    await _initial(call, context)
    if trailing := await call.trailing_metadata():
        context.set_trailing_metadata(tuple(trailing))
    return response


async def _pump(requests: AsyncIterable[bytes], call: Any) -> None:
    try:
        async for request in requests:
            await call.write(request)
        await call.done_writing()
    except (asyncio.InvalidStateError, grpc.aio.BaseError):
        return  # the runtime has answered already; its answer is what counts


async def _initial(call: Any, context: Any) -> None:
    if initial := await call.initial_metadata():
        await context.send_initial_metadata(tuple(initial))


async def _abort(context: Any, error: Any) -> None:
    """End the call with the runtime's status; the metadata must be a tuple, or else the code becomes UNKNOWN."""
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


def _timeout(context: Any) -> float | None:
    seconds_left: float | None = context.time_remaining()
    return None if seconds_left is None or seconds_left > FOREVER_SECONDS else seconds_left


def _metadata(context: Any) -> tuple[tuple[str, Any], ...]:
    """Return the caller's metadata without the user agent, which belongs to the connection, not to the call."""
    return tuple((key, value) for key, value in context.invocation_metadata() or () if key != "user-agent")
