"""Stores what forecasts learned from back-tests, with the results, for the next analysis.

For each group of series (`workloads-cpu`) one block has a row per series, and another a row per boosted tree. Data that
cannot be read, were learned with other settings or models, or have another format are ignored: the next forecast learns
again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from msgspec.structs import replace

from cotenant.base.errors import StoreError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.settings.base import digest
from cotenant.base.store import Store
from cotenant.base.usage.forecast import ModelCard
from cotenant.forecasting.boosting.booster import Booster
from cotenant.forecasting.boosting.trees import LEAVES, Trees
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.plugins import members
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.shard import MixtureFit

_FOLDER: Final = "learned-forecasts"
_FORM: Final = "1"
"""Increases whenever learned data, or their storage, change their meaning."""
_TREES: Final = "-trees"
_END: Final = "end_seconds"
"""Key of the end of the learned history, in the stamps of both blocks."""
_SERIES_PARTS: Final = ("scores", "booster_scores", "lifts", "errors")
_TREE_PARTS: Final = ("features", "thresholds", "remaining", "leaves")
_Block = dict[str, npt.NDArray[Any]]


def settings_of(group: str, settings: ForecastingSettings) -> ForecastingSettings:
    """Return a group's forecasting settings: totals of nodes get no boosted trees, which would take too much time."""
    return replace(settings, booster_rows=0) if group.startswith(("nodes", "prod")) else settings


def read(store: Store, group: str, settings: ForecastingSettings) -> Learned | None:
    """Return what the forecasts of a group learned with these settings; None if nothing usable is stored."""
    try:
        stored, grown = store.read_block(_FOLDER, group), store.read_block(_FOLDER, f"{group}{_TREES}")
        if stored is None or grown is None or any(stamp.get("key") != _key(settings) for _, stamp in (stored, grown)):
            return None
        if stored[1][_END] != grown[1][_END]:  # the process ended between the two writes
            return None
        return _decode_learned(*stored, grown[0])
    except (StoreError, KeyError, ValueError, IndexError, *UNDECODABLE) as error:
        structlog.get_logger(__name__).info("forecasts learn anew", group=group, reason=str(error))
        return None


def write(store: Store, group: str, learned: Learned, settings: ForecastingSettings) -> None:
    """Store what a group learned for the next analysis; nothing if no series could be tested."""
    if not learned.names:
        return
    series, trees, stamp = _encode_learned(learned)
    store.write_block(_FOLDER, group, series, {**stamp, "key": _key(settings)})
    store.write_block(_FOLDER, f"{group}{_TREES}", trees, {_END: stamp[_END], "key": _key(settings)})


def forget(store: Store, prefix: str, groups: Container[str]) -> None:
    """Remove what groups with this name prefix learned, except those in `groups`."""
    for name in store.block_names(_FOLDER):
        if name.startswith(prefix) and name.removesuffix(_TREES) not in groups:
            store.remove_result(f"{_FOLDER}/{name}.parquet")


def _key(settings: ForecastingSettings) -> str:
    """Return a key of format, settings and members: a change of any makes a stored fit useless."""
    names = [member.name for member in members(tuple(settings.plugins))]
    return " ".join((_FORM, digest(settings), *names))


class _Boosted(msgspec.Struct):
    """The metadata of a stored fit: its number of series and models, and what its booster was trained on."""

    size: int
    models: int = 0
    base: tuple[float, ...] = ()
    rows: int = 0
    series: int = 0
    card: ModelCard | None = None


def _encode_learned(learned: Learned) -> tuple[_Block, _Block, dict[str, str]]:
    """Return the rows of the series, the rows of the trees, and the stamp of the former."""
    fits = learned.fits
    series = {
        "name": np.array(learned.names, dtype=object),
        **{part: np.concatenate([getattr(fit, part) for fit in fits]) for part in _SERIES_PARTS},
    }
    # Trees of all boosters, one a row; none of the right shape where there are no boosters.
    grown = [fit.booster.trees for fit in fits if fit.booster]
    trees = {}
    for part in _TREE_PARTS:
        none = np.zeros((0, LEAVES if part == "leaves" else LEAVES - 1))
        arrays = [getattr(of, part) for of in grown]
        trees[part] = np.concatenate([of.reshape(-1, of.shape[-1]) for of in arrays]) if grown else none
    records = []
    for fit in fits:
        size = len(fit.scores)
        if (booster := fit.booster) is None:
            records.append(_Boosted(size))
        else:
            base = tuple(booster.trees.base.tolist())
            records.append(_Boosted(size, len(base), base, booster.rows, booster.series, fit.card))
    return series, trees, {_END: str(learned.end_seconds), "fits": msgspec.json.encode(records).decode()}


def _decode_learned(
    series: Mapping[str, npt.NDArray[Any]], stamp: Mapping[str, str], trees: Mapping[str, Any]
) -> Learned:
    """Return the inverse of `_encode_learned`; raise KeyError, ValueError or msgspec errors for other data."""
    boosted = msgspec.json.decode(stamp["fits"], type=list[_Boosted])
    trees_per_model = len(trees["leaves"]) // max(1, sum(forest.models for forest in boosted))
    fits, first, first_tree = [], 0, 0
    for forest in boosted:
        rows, own = slice(first, first + forest.size), slice(first_tree, first_tree + forest.models * trees_per_model)
        if forest.models:
            booster_trees = {part: trees[part][own] for part in _TREE_PARTS}
            shaped = {part: rows.reshape(forest.models, -1, rows.shape[-1]) for part, rows in booster_trees.items()}
            booster = Booster(Trees(np.array(forest.base), **shaped), forest.rows, forest.series)
        else:
            booster = None
        scores, boosted_scores, lifts, errors = (series[part][rows] for part in _SERIES_PARTS)
        fits.append(MixtureFit(scores, boosted_scores, lifts, errors, booster, forest.card))
        first, first_tree = rows.stop, own.stop
    names = tuple(series["name"].tolist())
    if first != len(names):
        raise ValueError(f"stored fits cover {first} of {len(names)} series")
    return Learned(names, int(stamp[_END]), tuple(fits))
