"""The kubelet's configuration of cgroups and CPUs, and its exclusive CPU assignments. Pure.

Five top-level scalars of a file that kubeadm and others write as plain YAML; read without a YAML parser, which would
cost the agent as much memory as everything else here. JSON, and a key that is nested or folded, is not found.

The file is a wish: options of the kubelet, and files beside it, go before it. What it names may hold; what it does not
name is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_SCALAR: Final = re.compile(r"""^(\w+):[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s#"'{\[][^#\n]*?))?[ \t]*(?:#.*)?$""", re.M)
SIZE_CAP_BYTES: Final = 1 << 20
NOT_ASKED: Final = "it was not asked yet"
"""Why the podresources service has not answered, before the first question."""


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The fields of the file that the agent needs; empty = not set."""

    cgroup_driver: str = ""
    cgroup_root: str = ""
    static_cpus: bool = False
    """Whether it names the CPU manager's policy static; if not, nothing is known."""
    reserved_cpus: str = ""
    """reservedSystemCPUs, a list such as "0-1"."""
    quotas_off: bool = False
    """Whether cpuCFSQuota is false: the kubelet then sets no CPU quota anywhere."""

    @property
    def base(self) -> tuple[str, ...]:
        """The cgroupRoot as parts."""
        return tuple(part for part in self.cgroup_root.split("/") if part)


@dataclass(frozen=True, slots=True)
class Assignments:
    """One answer of the kubelet's podresources service. Pods by their key, "namespace/name"."""

    pods: frozenset[str] = frozenset()
    """All that it runs."""
    exclusive: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """CPUs that its static policy gave to the containers of a pod; pods without such are left out."""
    allocatable: frozenset[int] = frozenset()
    """CPUs that it gives out exclusively; none unless its CPU manager's policy is static."""
    static_cpus: bool | None = None
    """Whether its CPU manager gives CPUs out; None = not known. A kubelet that has just started and names no pod yet
    offers no CPUs either, whatever its policy."""


def kubelet_config(text: str) -> KubeletConfig:
    """Decode a KubeletConfiguration; an unknown driver counts as not set."""
    scalars = {m[1]: (m[2] or m[3] or m[4] or "").strip() for m in _SCALAR.finditer(text[:SIZE_CAP_BYTES])}
    driver = scalars.get("cgroupDriver", "")
    return KubeletConfig(
        cgroup_driver=driver if driver in ("cgroupfs", "systemd") else "",
        cgroup_root=scalars.get("cgroupRoot", ""),
        static_cpus=scalars.get("cpuManagerPolicy", "") == "static",
        reserved_cpus=scalars.get("reservedSystemCPUs", ""),
        quotas_off=scalars.get("cpuCFSQuota", "") == "false",
    )
