"""Messages from the watcher process to the serving one: changed rows as bytes, and other changed data. Pure.

A frame with `names` replaces everything; one without changes some rows. Frames are MessagePack with numbers as the
bytes of their array, so that 5,000 nodes are applied without a Python object per node.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.allocation.devices import DeviceInventory, TakenDevices

SLOT_SECONDS: Final = 1800
SLOTS: Final = 50  # half hours of a forecast that a snapshot holds: a day, the present one, and one to pass meanwhile


class PlaceholderOf(msgspec.Struct, frozen=True, array_like=True):
    """A placeholder pod, which keeps capacity free for a Reservation: its node, and the name of the Reservation."""

    node: str
    reservation: str


class ShareOf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod's contribution to its node's columns USED, PROD_USED (each CPU, memory) and RECLAIMED_CPU."""

    used_cpu: float
    used_memory: float
    prod_cpu: float
    prod_memory: float
    reclaimed_cpu: float


class CollectionState(msgspec.Struct, frozen=True):
    """The state of one watched collection: its age when the frame was sent, and why it is outdated, or "".

    If `absent`, the API server does not know its kind, so that it is complete without objects.
    """

    age_seconds: float
    error: str = ""
    synced: bool = True
    absent: bool = False


class FreeCpus(msgspec.Struct, frozen=True, array_like=True):
    """The free CPUs of a node, in lists by NUMA node; the lists are empty if the node offers none.

    `closed` says why it offers none: its "topology" is unreadable, the "kubelet" assigns CPUs, or "". `free` are the
    free CPUs, `whole` those on entirely free cores, `cores` the cores with a free CPU, and `sizes` the CPUs of the
    empty machine. CPUs on full cores are assigned in multiples of `step`. `bind`, `numa` and `strategy` are what the
    node's labels require, or "". If allocatable is amplified, `amplified` is the number of CPUs that pods' requests
    leave, else None.
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

    `free` has for each device the amounts by resource name, and its whole memory in bytes; `begun` has the same for
    partly used devices. `inventory` and `taken` are the input of an allocation, which is equal for equal `digest`.
    """

    free: dict[str, list[tuple[dict[str, int], int]]] = {}
    begun: dict[str, list[tuple[dict[str, int], int]]] = {}
    inventory: DeviceInventory | None = None
    taken: TakenDevices | None = None
    digest: bytes = b""


class Frame(msgspec.Struct, frozen=True):
    """The changes from one snapshot to the next; a field that is None has not changed.

    `rows` are int32 row numbers, `values` float64 (rows, WIDTH); `ahead` is float64 (rows, 2, SLOTS), p95 from
    `first_slot` (Unix time / SLOT_SECONDS) on, b"" if no forecast changed. `reservations` are the changed ones as JSON,
    None for a deleted one. `sent_seconds` is the monotonic time of sending, `clock_ahead_seconds` how far the cluster's
    clock is ahead of the machine's. `fresh` marks the first frame of a watcher, which replaces everything.
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
    """Free CPUs of the nodes where they changed; None for a deleted node."""
    device_rooms: dict[str, FreeDevices | None] | None = None
    """Free devices of the nodes where they changed; None for a deleted node."""
    gone: list[str] | None = None  # uids of pods that left
    clock_ahead_seconds: float = 0.0


ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder(Frame)
