"""Groups of tests that share a control plane: those of one group run in one worker, one after the other."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
"""The mark's name of every test of the shared `control_plane`; its group is that of its folder of tests."""
BARE_CLUSTER: Final = "bare-cluster"
"""Tests of `bare_plane`, which need no other control plane."""
_FOLDERS: Final[dict[str, tuple[str, ...]]] = {
    "cluster-recorder": ("profiler",),  # which waits for most of its time: the others use the processors meanwhile
    CLUSTER: (),  # all other folders
    "cluster-nodes": ("enforcer", "node"),
    "cluster-manager": ("manager",),
    "cluster-changes": ("autopilot", "changes"),
    "cluster-scheduling": ("scheduler_ext",),
    "cluster-admission": ("admission", "guards"),
}
SHARED_GROUPS: Final = tuple(_FOLDERS)
"""In the order in which they begin, the longest first; each has a control plane of its own."""


def shared_group(folder: str) -> str:
    """Group of the tests of the shared control plane that are below this folder of tests."""
    return next((group for group, folders in _FOLDERS.items() if folder in folders), CLUSTER)
