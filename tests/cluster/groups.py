"""Groups of tests that share a control plane: those of one group run in one worker."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
CONTROLLERS_CLUSTER: Final = "controllers-cluster"
"""Tests of the shared control plane are two groups, each with a control plane of its own: in one they take longer than
all other tests together."""
BARE_CLUSTER: Final = "bare-cluster"
"""Tests of `bare_plane`, which need no other control plane."""
