"""A CRI proxy as a process of its own, as on a node."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.process import Server
from tests.node.cri import Cri

SECONDS = 60.0


class ProxyProcess:
    """`with ProxyProcess(folder, upstream) as proxy`: serving on `socket`.

    Its hooks have much time: a busy machine is no fault, unless a test is about just that.
    """

    def __init__(
        self, folder: Path, upstream: Path, name: str = "cri", policy: Path | None = None, hook_seconds: float = 30.0
    ) -> None:
        self.socket = folder / f"{name}.sock"
        self.hook_dir = folder / "hooks"
        self.hook_dir.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "cotenant.enforcer.runtime.cri_proxy", "--socket", str(self.socket)]
        command += ["--upstream", str(upstream), "--hook-dir", str(self.hook_dir), "--hook-seconds", str(hook_seconds)]
        command += ["--policy", str(policy)] if policy else []
        self.server = Server("cri-proxy", command, folder / f"{name}.log")

    def __enter__(self) -> ProxyProcess:
        self.start()
        return self

    def start(self) -> None:
        """Start it, also again; it serves when this returns, whether or not the runtime is there."""
        self.server.start()
        self.server.wait_until(lambda: "CRI proxy serves" in self.server.written(), SECONDS)

    def client(self) -> Cri:
        return Cri(self.socket)

    def register(self, name: str, endpoint: Path, points: Sequence[str], policy: str = "") -> None:
        """Register a hook server by a file, as its installer would."""
        document = {"remote-endpoint": str(endpoint), "failure-policy": policy, "runtime-hooks": list(points)}
        draft = self.hook_dir / f"{name}.draft"
        draft.write_text(json.dumps(document))
        draft.rename(self.hook_dir / f"{name}.json")

    def __exit__(self, *_: object) -> None:
        self.server.stop()
