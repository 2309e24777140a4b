"""What all tests share: property tests are judged by their answers, not by the clock of a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busy-machine", deadline=None)
settings.load_profile("busy-machine")
