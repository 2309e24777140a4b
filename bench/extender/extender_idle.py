"""An extender that looks at nothing: what being asked costs, whoever answers. For `bench.extender.extender_throughput`.

    python -m bench.extender.extender_idle FOLDER MOST

It is served as the product's is, hands back the first names that it was asked (as many as the product would, MOST), and
watches nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cotenant.base.http.http_connection import Request, Response
from cotenant.scheduler_ext.extender.serve import wire
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings

FIELD = b'"NodeNames":['


class Idle:
    """The application of `cotenant.base.http.http_connection`."""

    def __init__(self, most: int) -> None:
        self._most = most

    def answer(self, request: Request) -> Response:
        names = request.body[request.body.rfind(FIELD) + len(FIELD) : request.body.rfind(b"]")]
        first = np.array(names.split(b",", self._most)[: self._most], dtype=object)
        return Response(200, wire.filter_answer(first), "application/json")

    def asks_elsewhere(self, path: str) -> bool:
        return False

    def refused(self, path: str) -> None:
        """Nothing is counted."""


def main() -> None:
    """Print the port, then serve until stdin ends."""
    settings = ExtenderSettings(port=0, certificate_folder=str(Path(sys.argv[1], "server")))
    server = ExtenderServer(Idle(int(sys.argv[2])), settings)
    server.start()
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
