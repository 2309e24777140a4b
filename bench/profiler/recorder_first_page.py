"""One `helm install` on a bare cluster with one real node: how long until the first page shows live use.

    .venv/bin/python -m bench.profiler.recorder_first_page

The chart's defaults, nothing else: recorder and dashboard start from this checkout, on a kubelet, containerd and API
server that have nothing else to do. Time counts from the beginning of `helm install`.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path

from bench.record import below, record
from tests.cli.charts import chart, release
from tests.cluster.waiting import wait_for
from tests.node.bare_cluster import bare_cluster, home, values

GOAL_SECONDS = 120.0
LONGEST_SECONDS = 900.0
LIVE = re.compile(r"Now \d+ nodes with \d+ containers use \d+\.\d cores")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, bare_cluster(Path(folder), signed=True) as plane:
        start = time.monotonic()
        release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values(plane))
        wait_for("live use on the first page", lambda: LIVE.search(home()), LONGEST_SECONDS, every=1)
        taken = time.monotonic() - start
        pods = json.loads(plane.kubectl("get", "pods", "-n", "cotenant", "-o", "json"))["items"]
        restarts = sum(c["restartCount"] for pod in pods for c in pod["status"].get("containerStatuses", ()))
    rows = [
        below("helm install until the first page shows live use", round(taken), "s", GOAL_SECONDS),
        below("containers that were started again", restarts, "containers", 0),
    ]
    record("recorder_first_page", ".venv/bin/python -m bench.profiler.recorder_first_page", rows)


if __name__ == "__main__":
    main()
