"""Runtimes that a test plays behind the proxy, where a real one cannot be made to misbehave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))
Unary = Callable[[bytes, Any], bytes]
Streaming = Callable[[Iterator[bytes], Any], Iterator[bytes]]


class PlayedServer(grpc.GenericRpcHandler):
    """`with PlayedServer(socket, {"/a.B/C": handler}) as server`; a missing method is UNIMPLEMENTED."""

    def __init__(self, socket: Path, unary: dict[str, Unary], streaming: dict[str, Streaming] | None = None) -> None:
        self.socket = socket
        self._handlers = {
            **{path: grpc.unary_unary_rpc_method_handler(h) for path, h in unary.items()},
            **{path: grpc.stream_stream_rpc_method_handler(h) for path, h in (streaming or {}).items()},
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)

    def __enter__(self) -> PlayedServer:
        self.start()
        return self

    def start(self) -> None:
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=OPTIONS)
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(f"unix:{self.socket}")
        self.server.start()

    def stop(self) -> None:
        self.server.stop(None).wait(60)
        deadline = time.monotonic() + 10  # gRPC takes the socket's name away, which the next server may have by then
        while self.socket.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self.stop()
