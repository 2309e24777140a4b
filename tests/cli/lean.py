"""Settings of commands whose output is judged by its form: the boosted forecast member takes half of a scan's time."""

from __future__ import annotations

import os
from typing import Final

LEAN_VARIABLES: Final = {"COTENANT_FORECASTING__BOOSTER_ROWS": "0"}
LEAN: Final = {**os.environ, **LEAN_VARIABLES}
