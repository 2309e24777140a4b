"""The version of cotenant, which every process, image and stored result names."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
