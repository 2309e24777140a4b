"""Where a node's kubelet listens. It asks nobody, so that history is read without an HTTP client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletAddress:
    """A node and where its kubelet listens."""

    node: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """Host and port as HTTP writes them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
