"""Hooks at a container's creation: NRI plugin and CRI proxy, which use the same pure decision as the reconciling loop.

    runtime's message -> facts (pure) -> container_resources (pure) -> answer (pure) -> wire (EDGE)

Only this package uses grpc and protobuf, so the client of the kubelet's podresources service is also here. Both hooks
are optional and fail open: the loop alone keeps every value.
"""

from __future__ import annotations

from typing import Final

INSTALL: Final = "pip install 'cotenant[node]'"
"""Remedy if grpc and protobuf are missing."""

# How our gRPC channels and servers are set, so that they are never narrower or slower than a direct connection.
_METADATA_BYTES: Final = 1 << 20
_UNLIMITED: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # An error's text travels as metadata, and a runtime's may be long.
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * _METADATA_BYTES),
)
CHANNEL_OPTIONS: Final = (
    *_UNLIMITED,
    # The defaults back off to minutes: a runtime that was away for long would be found again long after it is back.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
)
SERVER_OPTIONS: Final = (
    *_UNLIMITED,
    ("grpc.so_reuseport", 0),
    # A client's keepalive is the runtime's business, not a reason to close its connection.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)
