"""At a container's creation: NRI plugin and CRI proxy, which ask the same pure decision as the reconciling loop.

    runtime's message -> facts (pure) -> container_resources (pure) -> answer (pure) -> wire (EDGE)

The only address of grpc and protobuf, so also of the kubelet's podresources service. Both hooks are optional and fail
open: the loop alone keeps every value.
"""

from __future__ import annotations

from typing import Final

INSTALL: Final = "pip install 'cotenant[node]'"
"""What brings grpc and protobuf, for those to whom they are missing."""
