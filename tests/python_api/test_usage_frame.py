"""Usage in long form: what is read is what was written, and a mistake is named with column, value, unit and fix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cotenant.base.errors import CotenantError, FrameError, NoData, NotEnoughHistory
from cotenant.base.usage.usage import TimeGrid
from cotenant.python_api.usage_frame import CONTAINER, WORKLOAD, read, write

CPU, MEMORY = "cpu_usage_millicores", "memory_working_set_bytes"
START = 1_793_577_600
"""2026-11-02 00:00 UTC."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
MATRICES = st.tuples(st.integers(1, 4), st.integers(2, 6)).flatmap(
    lambda shape: arrays.arrays(
        np.float32, shape, elements=st.one_of(st.just(np.float32(np.nan)), st.floats(0, 1e6, width=32))
    )
)


def frame(**columns: Any) -> pd.DataFrame:
    rows = {"time": [START, START + 300], "workload": ["a", "a"], CPU: [1.0, 2.0]}
    return pd.DataFrame({**rows, **columns})


@pytest.mark.slow
@given(values=MATRICES, step=st.sampled_from([60, 300, 600, 1800]), data=st.data())
def test_what_is_written_is_read_again(values: np.ndarray, step: int, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.tuples(*[TEXTS] * 5), min_size=len(values), max_size=len(values), unique=True))
    grid = TimeGrid(START, step, values.shape[1])
    values[0, :2], values[0, -1] = 1, 2  # what has no value at an end does not show how long the history is
    request = 100 * np.arange(len(values), dtype=np.float64)
    identity = {part: [name[i] for name in names] for i, part in enumerate(CONTAINER)}
    long = write(identity, grid, {CPU: values}, {"cpu_request_millicores": request})
    shuffled = long.sample(frac=1, random_state=1)
    usage = read(shuffled, CONTAINER, [CPU], ["cpu_request_millicores"])
    present = np.isfinite(values).any(axis=1)
    order = sorted(np.flatnonzero(present).tolist(), key=names.__getitem__)
    assert usage.names == tuple(names[row] for row in order)
    assert usage.grid == grid
    np.testing.assert_array_equal(usage.values[CPU], values[order])
    np.testing.assert_array_equal(usage.amounts["cpu_request_millicores"], request[order])


CELLS = st.one_of(st.none(), st.floats(), st.integers(-5, 10**13), TEXTS, st.datetimes())


@given(
    st.lists(st.fixed_dictionaries({"time": CELLS, "workload": CELLS, CPU: CELLS}), max_size=4),
    st.sampled_from([None, "time", "workload", CPU]),
)
def test_whatever_stands_in_a_frame_it_is_read_or_refused_in_words(rows: list[dict[str, Any]], dropped: Any) -> None:
    usage_frame = pd.DataFrame(rows, columns=["time", "workload", CPU])
    usage_frame = usage_frame if dropped is None else usage_frame.drop(columns=dropped)
    try:
        usage = read(usage_frame, WORKLOAD, [CPU])
    except CotenantError as error:
        assert error.message
        assert error.fix or isinstance(error, NoData)
    else:
        assert np.isfinite(usage.values[CPU]).any()
        assert (np.nan_to_num(usage.values[CPU]) >= 0).all()


@pytest.mark.parametrize(
    ("mistaken", "text", "fix"),
    [
        (frame().drop(columns=CPU).assign(cpu_usage_cores=1.0), f"no column '{CPU}', only 'cpu_usage_cores'",
         f"frame['{CPU}'] = 1000 * frame['cpu_usage_cores']"),
        (frame().rename(columns={CPU: "cpu_usage_millicore"}), f"no column '{CPU}'", "If column 'cpu_usage_mi"),
        (frame().rename(columns={"workload": "deployment"}), "no column 'workload'", "It has columns: time"),
        (frame(**{CPU: ["1", "250m"]}), f"{CPU} is '250m' in row 1, which is not a number", "plain numbers of "
        "millicores"),
        (frame(**{CPU: [1, -5]}), f"{CPU} is -5 millicores in row 1", "not below 0"),
        (frame(**{CPU: [np.inf, np.inf]}), f"{CPU} is inf millicores in row 0 and 1 more", "finite"),
        (frame(workload=["a", None]), "workload is empty in row 1", "fill in its workload"),
        (frame(time=[1000 * START] * 2), f"time is {1000 * START} in row 0 and 1 more", "divide milliseconds by 1000"),
        (frame(time=["yesterday", "today"]), "time is 'yesterday' in row 0 and 1 more", "RFC 3339"),
        (frame(time=[START, START + 7]), "have a step of 1 s; it must be at least 60 s", "floor('5min')"),
        (frame(time=[START + 30, START + 330]), "is no multiple of the step of 300 s", "floor('5min')"),
        (pd.concat([frame(kind="Job"), frame(kind="Job")]), "Job/a has two rows at", "columns pod and container"),
        (frame(time=["2026-11-02T00:00Z", "1926-11-02T00:00Z"]), "days in slots of 1800 s, more than", "years away"),
        (frame().set_index(pd.to_datetime([START, START + 300], unit="s")).drop(columns="time"),
         "has the time as its index", "reset_index(names='time')"),
        (pd.concat([frame(), frame()[[CPU]]], axis=1), f"has column '{CPU}' twice", "Drop one"),
        (pd.concat([frame(cluster="east"), frame(workload="b", cluster="west")]), "of 2 clusters: east, west",
         "clusters.frame(lambda one: "),
        (pd.concat([frame(cluster="east"), frame(workload="b")]), "of 2 clusters: (none), east",
         "clusters.frame(lambda one: "),
        ([1, 2], "usage is a list, not a pandas DataFrame", "Give a DataFrame"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_column_value_unit_and_fix(mistaken: Any, text: str, fix: str) -> None:
    with pytest.raises((FrameError, NotEnoughHistory)) as refused:
        read(mistaken, WORKLOAD, [CPU])
    assert text in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("column", "values", "unit", "factor"),
    [
        (MEMORY, [300.0, 1200.0], "MiB", "2**20"),
        (MEMORY, [307_200.0, 900_000.0], "KiB", "2**10"),  # 300 and 879 MiB
        (MEMORY, [0.3, 2.5], "GiB", "2**30"),
        ("memory_request_bytes", [512, 2048], "MiB", "2**20"),
        ("memory_limit_bytes", [1, 4], "GiB", "2**30"),
        ("cpu_request_millicores", [1, 4], "cores", "1000"),
        ("cpu_limit_millicores", [0.5, 16], "cores", "1000"),  # half a millicore is nothing that Kubernetes stores
    ],
)
def test_a_column_whose_every_value_is_too_small_is_refused_with_its_likely_unit(
    column: str, values: list[float], unit: str, factor: str
) -> None:
    amounts = ["cpu_request_millicores", "cpu_limit_millicores", "memory_request_bytes", "memory_limit_bytes"]
    with pytest.raises(FrameError, match=f"no value of {column} is above .* the unit is likely {unit}") as refused:
        read(frame(**{column: values}), WORKLOAD, [CPU, MEMORY], amounts)
    assert refused.value.fix == f"frame[{column!r}] = {factor} * frame[{column!r}]"
    # one value that is plausible speaks for the column, and zeros for nothing
    right = {MEMORY: [4096.0, 2.0**20], "memory_request_bytes": [0, 0], "cpu_request_millicores": [1, 10]}
    assert read(frame(**right), WORKLOAD, [CPU, MEMORY], amounts).values[MEMORY].max() == 2**20


@pytest.mark.parametrize(
    ("mistaken", "text", "fix"),
    [
        (frame(memory_working_set_mib=300), f"no column '{MEMORY}', only 'memory_working_set_mib'",
         f"frame['{MEMORY}'] = 2**20 * frame['memory_working_set_mib']"),
        (frame(cpu_request_cores=2.0), "no column 'cpu_request_millicores', only 'cpu_request_cores'",
         "frame['cpu_request_millicores'] = 1000 * frame['cpu_request_cores']"),
    ],
)  # fmt: skip
def test_a_wrong_unit_beside_a_right_one_is_not_passed_over(mistaken: Any, text: str, fix: str) -> None:
    with pytest.raises(FrameError) as refused:
        read(mistaken, WORKLOAD, [CPU, MEMORY], ["cpu_request_millicores"])
    assert (text in refused.value.message, refused.value.fix) == (True, fix)
    # in both units it is there in ours
    both = mistaken.assign(**{MEMORY: 2**28, "cpu_request_millicores": 100})
    assert set(read(both, WORKLOAD, [CPU, MEMORY], ["cpu_request_millicores"]).values) == {CPU, MEMORY}


def test_an_empty_frame_and_a_single_moment_are_too_little_to_read() -> None:
    with pytest.raises(NoData, match=f"no row of the DataFrame has a value in {CPU}"):
        read(frame().iloc[:0], WORKLOAD, [CPU])
    with pytest.raises(NotEnoughHistory, match="a single time"):
        read(frame().iloc[:1], WORKLOAD, [CPU])


@pytest.mark.parametrize(
    "times",
    [
        pd.to_datetime(["2026-11-02T01:00", "2026-11-02T01:05"]),
        ["2026-11-02T01:00:00Z", "2026-11-02T01:05:00Z"],
        pd.to_datetime(["2026-11-02T02:00", "2026-11-02T02:05"]).tz_localize("Europe/Berlin"),
        [START + 3600.0, START + 3900.0],
    ],
)
def test_a_time_without_a_zone_is_utc(times: Any) -> None:
    assert read(frame(time=times), WORKLOAD, [CPU]).grid == TimeGrid(START + 3600, 300, 2)


def test_the_newest_request_of_a_series_counts() -> None:
    usage = read(frame(cpu_request_millicores=[100, np.nan]), WORKLOAD, [CPU], ["cpu_request_millicores"])
    assert usage.amounts["cpu_request_millicores"].tolist() == [100]
    assert usage.names == (("default", "Deployment", "a"),)
