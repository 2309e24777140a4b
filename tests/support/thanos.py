"""A real Thanos for tests and benches: a sidecar beside each Prometheus, and a querier over the sidecars.

with thanos(folder, {"a": prometheus_url}) as querier:
    requests.get(querier.url + "/api/v1/...")

Or a querier over a bucket of blocks, of which the older ones are downsampled and their samples are gone.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.binaries import find
from tests.cluster.process import Server, free_port

REPLICA: Final = "prometheus_replica"
"""Label by which the querier knows two Prometheus of a pair that hold the same."""


@dataclass(frozen=True, slots=True)
class Querier:
    """The querier's address, and the sidecars behind it by the name of their Prometheus."""

    url: str
    sidecars: Mapping[str, Server]


@contextmanager
def thanos(folder: Path, prometheus_urls: Mapping[str, str]) -> Iterator[Querier]:
    """A querier that knows every sidecar; every Prometheus needs an external label. Ended on exit."""
    with ExitStack() as running:
        sidecars, endpoints = {}, []
        for name, url in prometheus_urls.items():
            endpoint, own = f"127.0.0.1:{free_port()}", ("--prometheus.url", url, "--tsdb.path", str(folder))
            sidecars[name] = _start(running, "sidecar", folder / f"sidecar-{name}.log", *own, grpc=endpoint)
            # Strict: a sidecar that is away stays asked for, so that an answer without it is known to be a part.
            endpoints.append(f"--endpoint-strict={endpoint}")
        port = free_port()
        options = (*endpoints, f"--query.replica-label={REPLICA}")
        querier = _start(running, "query", folder / "query.log", *options, port=port)
        querier.wait_until(lambda: _stores(f"http://127.0.0.1:{port}") == len(sidecars))
        yield Querier(f"http://127.0.0.1:{port}", sidecars)


@contextmanager
def thanos_over_bucket(
    folder: Path, downsampled: Sequence[Path], raw: Sequence[Path], *options: str
) -> Iterator[Querier]:
    """A querier over a bucket: of these Prometheus' data the one has 5-minute values alone, the other its samples.

    A block is downsampled where it is longer than 40 hours. options: of the querier.
    """
    bucket, objects = folder / "bucket", folder / "bucket.yml"
    objects.write_text(json.dumps({"type": "FILESYSTEM", "config": {"directory": str(bucket)}}))
    store = ("--objstore.config-file", str(objects), "--data-dir")
    with ExitStack() as running:
        samples = [_uploaded(block, bucket) for data in downsampled for block in _blocks(data)]
        with ExitStack() as compacting:
            compactor = _start(
                compacting, "tools bucket downsample", folder / "downsample.log", *store, str(folder / "d")
            )
            compactor.wait_until(lambda: len(_blocks(bucket)) == 2 * len(samples))
        for block in samples:
            shutil.rmtree(block)
        for data in raw:
            for block in _blocks(data):
                _uploaded(block, bucket)
        grpc, port = f"127.0.0.1:{free_port()}", free_port()
        _start(running, "store", folder / "store.log", *store, str(folder / "s"), grpc=grpc)
        querier = _start(running, "query", folder / "query.log", f"--endpoint-strict={grpc}", *options, port=port)
        querier.wait_until(lambda: _stores(f"http://127.0.0.1:{port}") == 1)
        yield Querier(f"http://127.0.0.1:{port}", {})


def _blocks(data: Path) -> list[Path]:
    """Complete blocks in a folder: Thanos writes a block's description last."""
    return [path.parent for path in data.glob("*/meta.json")]


def _uploaded(block: Path, bucket: Path) -> Path:
    """The copy of a Prometheus' block as its sidecar uploads it."""
    copy = bucket / block.name
    shutil.copytree(block, copy)
    description = json.loads((copy / "meta.json").read_text())
    description["thanos"] = {"labels": {REPLICA: "a"}, "downsample": {"resolution": 0}, "source": "sidecar"}
    (copy / "meta.json").write_text(json.dumps(description))
    return copy


def _start(running: ExitStack, role: str, log: Path, *options: str, port: int = 0, grpc: str = "") -> Server:
    """One process of Thanos, ready."""
    port = port or free_port()
    addresses = [f"--http-address=127.0.0.1:{port}"]
    if role in ("sidecar", "store", "query"):
        addresses.append(f"--grpc-address={grpc or f'127.0.0.1:{free_port()}'}")
    server = Server(
        f"thanos {role}", [str(find("thanos")), *role.split(), *addresses, "--log.level=warn", *options], log
    )
    running.callback(server.stop, 2.0)
    server.start()
    server.wait_until(lambda: _answer(f"http://127.0.0.1:{port}/-/ready") is not None)
    return server


def _stores(url: str) -> int:
    """Sidecars from which the querier has heard what they hold: the rest have no labels yet."""
    return (_answer(f"{url}/api/v1/stores") or b"").count(b'"labelSets":[{')


def _answer(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bytes(response.read())
    except (urllib.error.URLError, OSError):
        return None
