"""Forecasts of workloads as the manager publishes them, so that all rounds use the same forecasts. Pure.

They are in one ConfigMap of deflated MessagePack, at most MOST_BYTES, because one object per workload would be
thousands of writes an hour. If it is full, the workloads with least usage are left out and count with present usage.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.resource import MIB, Resource
from cotenant.scheduler_ext.rebalance.load import WorkloadOutlook
from cotenant.scheduler_ext.reservations.guard import MANAGED

OUTLOOKS_CONFIG_MAP: Final = "cotenant-workload-forecasts"
KEY: Final = "forecasts"
MOST_BYTES: Final = 900_000  # an object of the API server holds 1 MiB


class _PublishedOutlook(msgspec.Struct, array_like=True):
    """A workload's forecast as published: cpu in millicores, memory in MiB."""

    namespace: str
    kind: str
    name: str
    start_seconds: int
    cpu: list[int]
    memory: list[int]
    replicas: list[int]


def outlooks_address(namespace: str) -> Address:
    """Return the address of the ConfigMap with the forecasts, in the manager's namespace."""
    return Address("v1", "configmaps", OUTLOOKS_CONFIG_MAP, namespace)


def outlooks_config_map(
    outlooks: Mapping[WorkloadRef, WorkloadOutlook], namespace: str, most_bytes: int = MOST_BYTES
) -> Apply:
    """Return the write of the ConfigMap with these forecasts, of the workloads with most CPU if not all fit."""
    chosen = sorted(outlooks.items(), key=lambda item: (-max(item[1].median[0], default=0.0), item[0]))
    data = _pack_outlooks(chosen)
    while len(data) > most_bytes:
        chosen = chosen[: int(len(chosen) * 0.95 * most_bytes / len(data))]
        data = _pack_outlooks(chosen)
    address, text = outlooks_address(namespace), base64.b64encode(data).decode()
    body = address.manifest("ConfigMap", {"labels": dict(MANAGED)}, binaryData={KEY: text})
    return Apply(address, body, why=f"publish new forecasts of {len(chosen)} of {len(outlooks)} workloads")


def _pack_outlooks(outlooks: Sequence[tuple[WorkloadRef, WorkloadOutlook]]) -> bytes:
    rows = [
        _PublishedOutlook(
            ref.namespace, ref.kind, ref.name, int(outlook.start_seconds),
            [round(amount) for amount in outlook.median[0]], [round(amount / MIB) for amount in outlook.median[1]],
            list(outlook.replicas),
        )
        for ref, outlook in outlooks
    ]  # fmt: skip
    return zlib.compress(msgspec.msgpack.encode(rows))


def outlooks_in(body: Mapping[str, Any] | None) -> dict[WorkloadRef, WorkloadOutlook]:
    """Return the forecasts of a ConfigMap; {} if it does not exist, ValueError if its content is invalid."""
    text = ((body or {}).get("binaryData") or {}).get(KEY)
    if not text:
        return {}
    try:
        rows = msgspec.msgpack.decode(zlib.decompress(base64.b64decode(text)), type=list[_PublishedOutlook])
    except (zlib.error, *UNDECODABLE) as error:
        raise ValueError(str(error)) from error
    return {
        WorkloadRef(row.namespace, row.kind, row.name): WorkloadOutlook(
            row.start_seconds,
            (tuple(map(float, row.cpu)), tuple(float(mebibytes * MIB) for mebibytes in row.memory)),
            tuple(row.replicas),
        )
        for row in rows
    }


class WorkloadMedian(msgspec.Struct, frozen=True, array_like=True):
    """Median usage of all pods of a workload in each half hour from `start_seconds` on, in the resources' units.

    `replicas` are the pods that its autoscaler will run in each half hour; empty without an autoscaler.
    """

    namespace: str
    kind: str
    name: str
    start_seconds: int
    median: dict[Resource, list[int]]
    replicas: list[int] = []

    @property
    def ref(self) -> WorkloadRef:
        """The workload's reference."""
        return WorkloadRef(self.namespace, self.kind, self.name)


class MedianResults(Protocol):
    """The results of a pipeline run that rebalancing uses."""

    @property
    def workload_medians(self) -> Sequence[WorkloadMedian]:
        """The forecasts of workloads, one for each workload that can be forecast."""
