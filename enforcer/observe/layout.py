"""The paths of a pod's cgroups from uid, container id and QoS class, per cgroup driver and runtime. Pure.

    Layout(Driver.SYSTEMD, Runtime.CRIO).pod(uid, KubeQos.BURSTABLE)

Every text that becomes part of a path is checked here, letter by letter; an invalid one is a UsageError. So no name
from the API server, a policy or a journal leads out of the cgroup root. Sources: kubelet's container manager (naming of
QoS and pod cgroups, escaping for systemd), containerd's and CRI-O's naming of container cgroups, Koordinator's
`hostApplications`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import CgroupPath, KubeQos, Level
from cotenant.enforcer.model.node_policy import HostApplication

_UID: Final = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,126}[0-9A-Za-z])?")
_CONTAINER: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_PART: Final = re.compile(r"[0-9A-Za-z_:@+=,\\-][0-9A-Za-z_.:@+=,\\-]{0,254}")
DEEPEST: Final = 16
"""Most parts of the path of a cgroup that the agent reads."""


class Driver(StrEnum):
    """The kubelet's cgroup driver, which determines the names of cgroups."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class Runtime(StrEnum):
    """The container runtime, which names the containers' cgroups."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"


_TIERS: Final = {KubeQos.GUARANTEED: (), KubeQos.BURSTABLE: ("burstable",), KubeQos.BEST_EFFORT: ("besteffort",)}


@dataclass(frozen=True, slots=True)
class Layout:
    """The cgroup names of one node; `base` is the kubelet's cgroupRoot as parts, empty for the root."""

    driver: Driver = Driver.CGROUPFS
    runtime: Runtime = Runtime.CONTAINERD
    base: tuple[str, ...] = ()

    def kubepods(self) -> CgroupPath:
        """Return the path of the cgroup that has all pods; it is also the parent of Guaranteed pods."""
        return self._path(())

    def tier(self, qos: KubeQos) -> CgroupPath:
        """Return the path of the cgroup whose children are the pods of one Kubernetes QoS class."""
        return self._path(_TIERS[qos])

    def pod(self, uid: str, qos: KubeQos) -> CgroupPath:
        """Return a pod's cgroup; raise UsageError if `uid` is invalid."""
        return self._path((*_TIERS[qos], f"pod{checked_uid(uid)}"))

    def container(self, uid: str, qos: KubeQos, container_id: str) -> CgroupPath:
        """Return a container's cgroup; `container_id` is the runtime's, without "containerd://"."""
        return f"{self.pod(uid, qos)}/{self.container_name(container_id)}"

    def container_name(self, container_id: str) -> str:
        """Return the last part of a container's cgroup path; raise UsageError if `container_id` is invalid."""
        name = checked_container_id(container_id)
        if self.driver is Driver.SYSTEMD:
            return f"{'crio' if self.runtime is Runtime.CRIO else 'cri-containerd'}-{name}.scope"
        return f"crio-{name}" if self.runtime is Runtime.CRIO else name

    def _path(self, below: tuple[str, ...]) -> CgroupPath:
        parts = (*self.base, "kubepods", *below)
        if self.driver is Driver.CGROUPFS:
            return "/".join(parts)
        # systemd spells every ancestor into a slice's name, and "-" is its separator: inside a part it becomes "_".
        names = accumulate((part.replace("-", "_") for part in parts), lambda above, part: f"{above}-{part}")
        return "/".join(f"{name}.slice" for name in names)


def checked_uid(uid: str) -> str:
    """Return the uid; raise UsageError if it is not safe as one part of a path."""
    if not _UID.fullmatch(uid):
        raise UsageError(f"pod uid {uid[:80]!r} is invalid", fix="Use 1 to 128 letters, digits and inner dashes.")
    return uid


def checked_container_id(container_id: str) -> str:
    """Return the container id; raise UsageError if it is not safe as one part of a path."""
    if not _CONTAINER.fullmatch(container_id):
        raise UsageError(f"container id {container_id[:80]!r} is invalid", fix="Use 1 to 128 letters, digits, _ and -.")
    return container_id


def checked_path(path: str) -> CgroupPath:
    """Return the path; raise UsageError if it has over DEEPEST parts, or an empty or invalid one, such as `..`."""
    parts = path.split("/")
    if len(parts) > DEEPEST or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(
            f"cgroup path {path[:120]!r} is invalid",
            fix=f"Use at most {DEEPEST} parts of letters, digits and _.:@+=,\\-, none starting with a dot, no first /.",
        )
    return path


# --- host applications ----------------------------------------------------------------------------------------------
_BASES: Final = {
    "": None, "CgroupRoot": None, "Kubepods": KubeQos.GUARANTEED,
    "KubepodsBurstable": KubeQos.BURSTABLE, "KubepodsBesteffort": KubeQos.BEST_EFFORT,
}  # fmt: skip


def host_application_path(application: HostApplication, layout: Layout) -> CgroupPath:
    """Return the path of a host application's cgroup: its base, parentDir and relativePath, joined.

    Without a cgroupPath, Koordinator's own paths apply: host-best-effort/<name> for BE, else
    host-latency-sensitive/<name>. Raises UsageError for an invalid path, or one of Kubernetes' own cgroups.
    """
    cgroup_path = application.cgroup_path
    if cgroup_path is None or not (cgroup_path.parent_dir or cgroup_path.relative_path):
        family = "host-best-effort" if application.qos == QosClass.BE else "host-latency-sensitive"
        return checked_path(f"{family}/{application.name}")
    if cgroup_path.base not in _BASES:
        raise UsageError(f"host application {application.name!r}: cgroupPath.base {cgroup_path.base[:40]!r} is unknown")
    tier = _BASES[cgroup_path.base]
    base = "" if tier is None else layout.tier(tier)
    parts = [base, cgroup_path.parent_dir.strip("/"), cgroup_path.relative_path.strip("/")]
    path = checked_path("/".join(part for part in parts if part))
    if level_of(path, layout) is not None:
        raise UsageError(f"host application {application.name!r}: {path} is one of the kubelet's cgroups")
    return path


def level_of(path: CgroupPath, layout: Layout) -> Level | None:
    """Return the level of kubepods or a cgroup below it; None for any other, such as one inside a container's."""
    tiers = {layout.tier(qos) for qos in KubeQos} - {layout.kubepods()}
    if path == layout.kubepods():
        return Level.KUBEPODS
    if path in tiers:
        return Level.QOS
    parent, _, name = path.rpartition("/")
    if parent in tiers or parent == layout.kubepods():
        # A pod's is "podUID", or with systemd "TIER-podUID.slice".
        if layout.driver is Driver.CGROUPFS:
            names_pod = name.startswith("pod")
        else:
            tier = parent.rpartition("/")[2].removesuffix(".slice")
            names_pod = name.startswith(f"{tier}-pod") and name.endswith(".slice")
        return Level.POD if names_pod else None
    return Level.CONTAINER if parent and level_of(parent, layout) is Level.POD else None


# --- which layout a node has ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Detection:
    """The detected layout, None if detection failed; `problem` says why, or that a second cgroup tree is ignored."""

    layout: Layout | None
    problem: str = ""


def detect(paths: Collection[CgroupPath], base: tuple[str, ...] = (), driver_told: str = "") -> Detection:
    """Detect the layout from a node's cgroups: which root exists, and how the containers below are named.

    If both drivers' roots exist, the one with pods is chosen, and `problem` says so. If both have pods, or none has,
    the driver `driver_told` by the kubelet decides; without it, detection fails.
    """
    layouts = {driver: Layout(driver, base=base) for driver in Driver}
    roots = [driver for driver, layout in layouts.items() if layout.kubepods() in paths]
    used = [driver for driver in roots if any(level_of(path, layouts[driver]) is Level.POD for path in paths)]
    if not roots:
        return Detection(None, "no kubepods cgroup: the kubelet has not run here, or has another cgroupRoot")
    if len(roots) > 1 and len(used) != 1 and driver_told in roots:
        return Detection(
            Layout(Driver(driver_told), _runtime(paths), base), f"of two kubepods trees, the kubelet uses {driver_told}"
        )
    if len(used) > 1:
        return Detection(None, "both kubepods and kubepods.slice have pods: the cgroup driver was changed meanwhile")
    if len(roots) > 1 and not used:
        return Detection(None, "both kubepods and kubepods.slice exist, neither has pods")
    driver = (used or roots)[0]
    note = f"both kubepods and kubepods.slice exist; only that of driver {driver} has pods" if len(roots) > 1 else ""
    return Detection(Layout(driver, _runtime(paths), base), note)


def _runtime(paths: Iterable[CgroupPath]) -> Runtime:
    names = (path.rpartition("/")[2] for path in paths)
    return Runtime.CRIO if any(name.startswith("crio-") for name in names) else Runtime.CONTAINERD
