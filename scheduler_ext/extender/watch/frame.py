"""Messages from the watching process to the serving one: changed rows as bytes, and the data beside the rows. Pure.

A frame with `names` replaces everything; one without changes some rows. Encoded with MessagePack: numbers travel as
the bytes of their array, so that a frame of 5,000 nodes is taken over without a Python object a node.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.allocation.devices import DeviceInventory, TakenDevices

SLOT_SECONDS: Final = 1800
SLOTS: Final = 50  # half hours of a forecast that a snapshot holds: a day, the present one, and one to pass meanwhile


class PlaceholderOf(msgspec.Struct, frozen=True, array_like=True):
    """A pod that reserves capacity: where, and for which Reservation (its name)."""

    node: str
    reservation: str


class ShareOf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The share of a pod in its node's columns USED, PROD_USED (each CPU, memory) and RECLAIMED_CPU."""

    used_cpu: float
    used_memory: float
    prod_cpu: float
    prod_memory: float
    reclaimed_cpu: float


class CollectionState(msgspec.Struct, frozen=True):
    """State of one watched collection: its age when the frame left, and why it is not up to date, or "".

    absent: its kind is not installed, which is an answer too.
    """

    age_seconds: float
    error: str = ""
    synced: bool = True
    absent: bool = False


class FreeCpus(msgspec.Struct, frozen=True, array_like=True):
    """The free CPUs of a node, by NUMA node in the order of their numbers; lists are empty where it gives no CPUs.

    closed: why it gives none: "topology" that cannot be read, CPUs are the "kubelet"'s, or "". free: CPUs; whole:
    CPUs on cores that are entirely free; cores: cores with a free CPU; sizes: CPUs of the empty machine. step: every
    number of CPUs on full cores is a multiple of it. bind, numa, strategy: what the node's labels demand, or "".
    amplified: CPUs that may still be given beside the others' requests, None where allocatable is not amplified.
    """

    closed: str = ""
    free: list[int] = []
    whole: list[int] = []
    cores: list[int] = []
    sizes: list[int] = []
    step: int = 1
    bind: str = ""
    numa: str = ""
    strategy: str = ""
    amplified: int | None = None


class FreeDevices(msgspec.Struct, frozen=True, array_like=True):
    """The free amounts of each healthy device of a node, by kind.

    free: per device, amounts by resource name, and all of its memory in bytes; begun: the same of devices in use.
    inventory, taken: what a placement reads; digest: of both, equal on nodes where the same pods find their devices.
    """

    free: dict[str, list[tuple[dict[str, int], int]]] = {}
    begun: dict[str, list[tuple[dict[str, int], int]]] = {}
    inventory: DeviceInventory | None = None
    taken: TakenDevices | None = None
    digest: bytes = b""


class Frame(msgspec.Struct, frozen=True):
    """One step from a snapshot to the next; None: as before.

    rows: int32 row numbers; values: float64 (rows, WIDTH); ahead: float64 (rows, 2, SLOTS) of p95 from `first_slot`
    (Unix time / SLOT_SECONDS) on, b"" when no forecast changed. reservations: what changed of them, as JSON, None where
    one is gone. sent_seconds: monotonic time at which it left; clock_ahead_seconds: of the cluster's time before the
    machine's. fresh: the first of a watcher, which knows nothing of
    what was before.
    """

    sent_seconds: float
    sources: dict[str, CollectionState]
    fresh: bool = False
    names: list[str] | None = None
    rows: bytes = b""
    values: bytes = b""
    ahead_rows: bytes = b""
    ahead: bytes = b""
    first_slot: int = 0
    guards: dict[str, list[str]] | None = None
    placeholders: dict[str, PlaceholderOf] | None = None
    reservations: dict[str, bytes | None] | None = None
    shares: dict[str, ShareOf] | None = None
    rooms: dict[str, FreeCpus | None] | None = None
    """CPUs that are free, of nodes where that changed; None where a node is gone."""
    device_rooms: dict[str, FreeDevices | None] | None = None
    """Devices that are free, of nodes where that changed; None where a node is gone."""
    gone: list[str] | None = None  # uids of pods that left
    clock_ahead_seconds: float = 0.0


ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder(Frame)
