"""What forecasts learned about some series from back-tests, for use at later moments. Pure.

Back-tests are most of a forecast's work, and their results (which members suit a series, the booster, how far upper
levels must be raised) change from day to day, not from hour to hour. The members' results on the last hours are not
kept: they are measured at each forecast, so that a changed level is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.forecasting.shard import MixtureFit

MOST_UNKNOWN = 0.1
"""Share of series that may be new: they are forecast by what held for the others on average."""
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The results of back-tests of some series, in shards in the order of `names`, from history up to `end_seconds`."""

    names: tuple[str, ...]
    end_seconds: int
    fits: tuple[MixtureFit, ...]

    def serves(self, names: Sequence[str], end_seconds: int, most_hours: float) -> bool:
        """Return whether the learned results may be used for these series at this time.

        They must not be empty, nor as old as `most_hours`, and at most a share MOST_UNKNOWN of `names` may be new.
        """
        age_seconds = end_seconds - self.end_seconds
        unknown = len(set(names).difference(self.names))
        return bool(self.fits) and 0 <= age_seconds < most_hours * HOUR_SECONDS and unknown <= MOST_UNKNOWN * len(names)

    def shards(self, names: Sequence[str]) -> Iterator[tuple[Rows, MixtureFit]]:
        """Yield (indices in `names`, fit) for each shard (group of series); new series belong to the last shard."""
        place_of = {name: index for index, name in enumerate(self.names)}
        places = np.array([place_of.get(name, -1) for name in names], dtype=np.intp)
        first = 0
        for number, fit in enumerate(self.fits, 1):
            after = first + len(fit.scores)
            here = (places >= first) & (places < after)
            if number == len(self.fits):
                here |= places < 0
            rows = np.flatnonzero(here)
            if rows.size:
                yield rows, fit.rows(np.where(places[rows] < 0, -1, places[rows] - first))
            first = after
