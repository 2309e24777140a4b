"""What all tests share: property tests are judged by their answers, not by the clock of a busy machine.

In continuous integration the examples are the same on every run, so that a change is judged by what it changed; on a
developer's machine they are new each time and go on searching.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("busy-machine", deadline=None)
settings.register_profile("continuous-integration", deadline=None, derandomize=True)
settings.load_profile("continuous-integration" if os.environ.get("CI") else "busy-machine")
