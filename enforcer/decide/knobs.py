"""How the values of knobs are written to the files of `enforcer.knob_table`, read from them, and compared. Pure.

    as_text(Knob.CPU_QUOTA, NO_LIMIT, dialect) -> ("max",)         from_text(..., "20000 100000") -> 20000

The kernel rounds silently: shares are clamped, bytes are rounded down to whole pages, CPU lists are rewritten, and v2
weights are coarser than shares. `same` compares values as the kernel would return them, so that writes do not repeat.
Sources: kernel documentation of cgroup v1 and v2; OCI runtimes' conversions of shares to weights.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import Final

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.enforcer.knob_table import NO_LIMIT, SPECS, Knob, KnobFile, Value, Version

PERIOD_MICROSECONDS: Final = 100_000
"""Period to which quotas and bursts refer here, whatever the cgroup's own period."""
MICROSECONDS_PER_MILLICORE: Final = PERIOD_MICROSECONDS // 1000
PAGE_BYTES: Final = PAGESIZE
"""Page size of this machine's kernel: 4 KiB on x86, up to 64 KiB elsewhere."""
UNLIMITED_BYTES: Final = 2**63 - 2**16
"""Without a limit memory.limit_in_bytes has the largest whole number of pages: this, or a little more."""
SHARES: Final = (2, 262_144)
WEIGHTS: Final = (1, 10_000)
LEAST_QUOTA: Final = 1000
_DEVICE: Final = re.compile(r"([0-9]{1,4}:[0-9]{1,8}) ([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The cgroup version of each controller that this node has (io is called blkio on v1)."""

    versions: Mapping[str, Version] = field(default_factory=dict)
    page_bytes: int = PAGE_BYTES
    _present: dict[Knob, tuple[Version, KnobFile]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for knob, spec in SPECS.items():
            for version, file in ((Version.V2, spec.v2), (Version.V1, spec.v1)):
                if file is not None and self.versions.get(file.controller) is version:
                    self._present[knob] = version, file

    def version(self, knob: Knob) -> Version | None:
        """Return the cgroup version that has the controller of this setting (knob); None if no hierarchy has it."""
        entry = self._present.get(knob)
        return entry[0] if entry else None

    def file(self, knob: Knob) -> KnobFile | None:
        """Return the file of this setting (knob) on this node; None if its controller is absent."""
        entry = self._present.get(knob)
        return entry[1] if entry else None


_V2_IO_KEY: Final = {
    Knob.BLKIO_READ_BPS: "rbps", Knob.BLKIO_WRITE_BPS: "wbps",
    Knob.BLKIO_READ_IOPS: "riops", Knob.BLKIO_WRITE_IOPS: "wiops",
}  # fmt: skip
BLOCK_DEVICES: Final = frozenset(_V2_IO_KEY)
"""Knobs with an amount for each block device."""
CPU_TIMES: Final = (Knob.CPU_QUOTA, Knob.CPU_BURST)
"""Knobs whose files count microseconds of the cgroup's own period."""
_CPU_LISTS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
_PAGED: Final = (Knob.MEMORY_LIMIT, Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH)


# --- what may be asked for ------------------------------------------------------------------------------------------
def objection(knob: Knob, value: Value) -> str:
    """Return why no kernel would accept the value (wrong type, out of range, an empty CPU list); "" if one might."""
    spec = SPECS[knob]
    if knob in _V2_IO_KEY or knob in _CPU_LISTS:
        return _text_objection(knob, value)
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{knob}: {value!r} is not a whole number"
    if value == NO_LIMIT and spec.limitless:
        return ""
    assert spec.least is not None
    if value < spec.least or (spec.most is not None and value > spec.most):
        return f"{knob}: {value} is not within {spec.least}..{spec.most}"
    return ""


def _text_objection(knob: Knob, value: Value) -> str:
    if not isinstance(value, str):
        return f"{knob}: {value!r} is not a text"
    try:
        entries = _devices(value) if knob in _V2_IO_KEY else parse_cpus(value)
    except UsageError as bad:
        return f"{knob}: {bad.message}"
    if knob in _CPU_LISTS and not entries:
        return f"{knob}: {value!r} names no CPU; a cgroup without CPUs cannot run anything"
    return ""


# --- values as the kernel keeps them --------------------------------------------------------------------------------
def kept(knob: Knob, value: Value, dialect: Dialect) -> Value:
    """Return the value that the kernel reports after `value` was written: clamped, rounded to pages, or rewritten."""
    if isinstance(value, str):
        return _kept_text(knob, value)
    if knob is Knob.CPU_SHARES:
        clamped = min(max(value, SHARES[0]), SHARES[1])
        return clamped if dialect.version(knob) is Version.V1 else shares_of(weight_of(clamped))
    if knob is Knob.CPU_QUOTA and value >= 0:
        return max(value, LEAST_QUOTA)
    if knob in _PAGED and value >= UNLIMITED_BYTES:
        return NO_LIMIT if SPECS[knob].limitless else UNLIMITED_BYTES
    if knob in _PAGED and value >= 0:
        return value // dialect.page_bytes * dialect.page_bytes
    return value


def _kept_text(knob: Knob, value: str) -> str:
    try:
        if knob in _CPU_LISTS:
            return format_cpus(parse_cpus(value))
        return ",".join(f"{device} {amount}" for device, amount in sorted(_devices(value).items()) if amount)
    except UsageError:
        return value


def same(knob: Knob, first: Value, second: Value, dialect: Dialect) -> bool:
    """Return whether the kernel treats two values as equal."""
    return first == second or kept(knob, first, dialect) == kept(knob, second, dialect)


def may_stem_from(knob: Knob, present: Value, written: Value, dialect: Dialect) -> bool:
    """Return whether `present` is the value `written`, apart from block devices that have disappeared since."""
    if knob in BLOCK_DEVICES:
        with contextlib.suppress(UsageError):
            return _devices(str(present)).items() <= _devices(str(written)).items()
    return same(knob, present, written, dialect)


def round_for_write(knob: Knob, value: Value) -> Value:
    """Return the value to write: CPU time is rounded down to millicores, which any period of whole ms can express."""
    if knob not in CPU_TIMES or not isinstance(value, int) or value < 0:
        return value
    rounded = value // 100 * 100
    return max(rounded, LEAST_QUOTA) if knob is Knob.CPU_QUOTA else rounded


def least_quota(period: int) -> int:
    """Return the smallest quota that the kernel accepts with this period (us), scaled to microseconds per 100 ms."""
    return -(-LEAST_QUOTA * PERIOD_MICROSECONDS // period)


def weight_of(shares: int) -> int:
    """Return the v2 weight (1..10000) of v1 shares (2..262144) by the linear conversion of older runtimes."""
    return WEIGHTS[0] + (shares - SHARES[0]) * (WEIGHTS[1] - WEIGHTS[0]) // (SHARES[1] - SHARES[0])


def newer_weight_of(shares: int) -> int:
    """Return the v2 weight of a container's v1 shares as runc from 1.3.2 and crun from 1.23 convert them."""
    if not SHARES[0] < shares < SHARES[1]:
        return WEIGHTS[0] if shares <= SHARES[0] else WEIGHTS[1]
    power = math.log2(shares)
    return math.ceil(10 ** ((power**2 + 125 * power) / 612 - 7 / 34))


def shares_of(weight: int) -> int:
    """Return the fewest v1 shares that have this v2 weight, so that weight_of(shares_of(w)) == w."""
    span = (weight - WEIGHTS[0]) * (SHARES[1] - SHARES[0])
    return SHARES[0] - (-span // (WEIGHTS[1] - WEIGHTS[0]))


# --- text of the files ----------------------------------------------------------------------------------------------
def as_text(
    knob: Knob, value: Value, dialect: Dialect, period: int = PERIOD_MICROSECONDS, present: Value | None = None
) -> tuple[str, ...]:
    """Return the texts that set a value, one per write(2); `present` names the devices whose lines must be reset."""
    v2 = dialect.version(knob) is Version.V2
    if knob in _V2_IO_KEY:
        target_rates, before = _devices(str(value)), _devices(str(present or ""))
        amounts = {device: target_rates.get(device, 0) for device in sorted({*target_rates, *before})}
        return tuple(f"{d} {_V2_IO_KEY[knob]}={n or 'max'}" if v2 else f"{d} {n}" for d, n in amounts.items())
    if isinstance(value, str):
        return (value or "\n",)  # writing nothing at all is no write
    if value == NO_LIMIT and (knob in CPU_TIMES or SPECS[knob].limitless):
        return ("max" if v2 or knob is Knob.MEMORY_HIGH else str(NO_LIMIT),)
    if knob in CPU_TIMES:
        own = value * period // PERIOD_MICROSECONDS
        return (str(max(own, LEAST_QUOTA) if knob is Knob.CPU_QUOTA else own),)
    if knob is Knob.CPU_SHARES:
        clamped = min(max(value, SHARES[0]), SHARES[1])
        return (str(weight_of(clamped) if v2 else clamped),)
    return (str(value),)


def from_text(knob: Knob, text: str, dialect: Dialect, period: int = PERIOD_MICROSECONDS) -> Value | None:
    """Parse a file's text; None for a value that the knob cannot have, such as the weight of an idle cgroup."""
    version = dialect.version(knob)
    stripped = text.strip()
    try:
        if knob in _CPU_LISTS:
            return format_cpus(parse_cpus(stripped))
        if knob in _V2_IO_KEY:
            return _devices_in(knob, stripped, version)
        return _number(knob, stripped, version, period)
    except (ValueError, IndexError, UsageError):
        return None


def _number(knob: Knob, text: str, version: Version | None, period: int) -> int | None:
    """Return a text's number in the agent's unit; None for a weight of 0, which means that shares were never set.

    CPU time is scaled to a period of 100 ms, a v2 weight becomes shares, "max" and unlimited amounts become NO_LIMIT.
    """
    first, *rest = text.split()
    if first == "default":  # io.weight
        first = rest.pop(0)
    if first == "max":
        return NO_LIMIT
    number = int(first)
    if knob in CPU_TIMES and number >= 0:
        return -(-number * PERIOD_MICROSECONDS // int(rest[0] if rest else period))
    if knob is Knob.CPU_SHARES and version is Version.V2:
        return shares_of(number) if number else None
    if SPECS[knob].limitless and number >= UNLIMITED_BYTES:
        return NO_LIMIT
    return number


# --- block devices --------------------------------------------------------------------------------------------------
def _devices(value: str) -> dict[str, int]:
    """Return the amount by device; UsageError names the part that is invalid."""
    matches = [(_DEVICE.fullmatch(part.strip()), part) for part in value.split(",") if part.strip()]
    wrong = next((part for match, part in matches if match is None), None)
    if wrong is not None:
        raise UsageError(f"{wrong[:80]!r} is not a device and an amount", fix='Write, for example, "8:0 1048576".')
    return {match[1]: int(match[2]) for match, _ in matches if match}


def _devices_in(knob: Knob, text: str, version: Version | None) -> str:
    amounts: dict[str, int] = {}
    for device, *rest in (line.split() for line in text.splitlines() if line.strip()):
        amount = rest[0]
        if version is Version.V2:
            amount = dict(pair.split("=", 1) for pair in rest).get(_V2_IO_KEY[knob], "max")
        if amount != "max":
            amounts[device] = int(amount)
    return ",".join(f"{device} {amount}" for device, amount in sorted(amounts.items()) if amount)
