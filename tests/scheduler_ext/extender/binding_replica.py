"""A replica's bind verb as a process of its own, to be killed: questions as lines on stdin, answers on stdout.

    python -m tests.scheduler_ext.extender.binding_replica KUBECONFIG

A question is {"name", "namespace", "uid", "nodes"}: the nodes are tried in turn, as a scheduler would choose others.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cotenant.base.kube import connect
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import (
    CpuAllocationSettings,
    DeviceAllocationSettings,
    ExtenderSettings,
)

THREADS = 4


def main(kubeconfig: str) -> None:
    client = connect(KubeSettings(kubeconfig=kubeconfig))
    settings = ExtenderSettings(cpus=CpuAllocationSettings(on=True), devices=DeviceAllocationSettings(on=True))
    allocation = HardwareAllocation(allocators(settings))
    binder, lock = Binder(client.sibling, allocation), threading.Lock()

    def work(question: dict[str, Any]) -> None:
        error = "no node was named"
        for node in question["nodes"]:
            error = binder.bind(BindArgs(question["name"], question["namespace"], question["uid"], node))
            if not error or "already" in error:
                break
        with lock:
            print(json.dumps({"name": question["name"], "error": error}), flush=True)

    with ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin:
            pool.submit(work, json.loads(line))


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
