"""`cotenant recs list`: what stands first, in which words, and what a terminal of 80 columns shows of it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from rich.cells import cell_len

from cotenant.base.commands.cells import row_cells, split_parts, title
from cotenant.base.commands.fitting import fit_columns
from cotenant.base.identity import WorkloadRef
from cotenant.base.severity import Severity
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.changes.commands.recs_table import compact, in_words, sort_of
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.support.command_line import cotenant
from tests.support.dashboard import WEEK, results


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK).store


def rows(store: Store, *arguments: str) -> list[dict[str, Any]]:
    done = cotenant("recs", "list", *arguments, "-o", "json", "--store", store.url)
    assert done.returncode == 0, done.stderr
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def test_the_worst_stand_first_and_of_one_severity_what_saves_most(store: Store) -> None:
    listed = [(Severity(row["severity"]).rank, row["saving_month"] or 0) for row in rows(store)]
    assert listed == sorted(listed, reverse=True)
    assert len({rank for rank, _ in listed}) > 1, "the scan has more than one severity, else any order passes"


def test_a_filter_with_an_order_of_its_own_keeps_it_and_sort_comes_before_it(store: Store) -> None:
    by_name = [row["workload"] for row in rows(store, "--filter", "sort=workload")]
    assert by_name == sorted(by_name)
    by_container = [(row["container"], row["workload"]) for row in rows(
        store, "--sort", "container", "--filter", "sort=workload"
    )]  # fmt: skip
    assert by_container == sorted(by_container)


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("severity", "sort=-severity"),
        ("saving_month", "sort=-saving_month"),
        ("saving", "sort=-saving_month"),  # saving_step begins so, too, and is not in sight
        ("-cpu_delta_total", "sort=-cpu_delta_total"),
        ("+cpu_delta_total", "sort=cpu_delta_total"),
        ("workload", "sort=workload"),
        ("-workload", "sort=-workload"),
    ],
)
def test_numbers_and_severity_fall_and_names_rise_unless_a_sign_says_otherwise(word: str, part: str) -> None:
    assert sort_of(word, RECOMMENDATIONS) == part


def test_an_unknown_column_is_refused_with_the_nearest_one(store: Store) -> None:
    done = cotenant("recs", "list", "--sort", "savings_mont", "--store", store.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot sort by 'savings_mont'" in done.stderr and "Did you mean saving_month?" in done.stderr


def test_top_shows_the_first_rows_and_the_totals_stay_those_of_all(store: Store) -> None:
    every = rows(store)
    assert rows(store, "--top", "3") == every[:3]
    text = cotenant("recs", "list", "--top", "3", "--store", store.url).stderr
    assert f"the first 3 of {len(every)} containers; saving after all steps: " in text
    assert cotenant("recs", "list", "--top", "0", "--store", store.url).returncode == 2


def test_what_is_ready_is_said_in_words_to_people_and_in_codes_to_programs(store: Store) -> None:
    row = {"namespace": "shop", "kind": "Deployment", "workload": "web", "container": "app"}
    codes = [
        ("first-step", 3),
        ("first-step", None),
        ("whole", 1),
        ("second-person", None),
        ("blocked", None),
        ("", None),
    ]
    table = Table.from_rows(RECOMMENDATIONS, [{**row, "ready": code, "steps": steps} for code, steps in codes])
    assert in_words(table).columns["ready"].tolist() == [
        "in 3 steps", "first step", "in 1 step", "needs a second person", "blocked", "",
    ]  # fmt: skip
    shown = cotenant("recs", "list", "--store", store.url).stdout
    assert "no change" in shown and "nothing" not in shown
    as_csv = csv.DictReader(io.StringIO(cotenant("recs", "list", "-o", "csv", "--store", store.url).stdout))
    assert {row["ready"] for row in as_csv} == set(store.read_table(RECOMMENDATIONS).columns["ready"])


def test_a_workload_is_explained_by_its_name_alone(store: Store) -> None:
    names = store.read_table(RECOMMENDATIONS).columns["workload"].tolist()
    name = next(name for name in names if names.count(name) == 1)
    alone = cotenant("explain", name, "--store", store.url)
    (row,) = [row for row in store.read_table(RECOMMENDATIONS).rows() if row["workload"] == name]
    by_full_name = cotenant("explain", f"{row['namespace']}/{row['kind']}/{name}", "--store", store.url)
    assert (alone.returncode, alone.stdout) == (0, by_full_name.stdout)
    assert (
        f"Did you mean {row['namespace']}/{row['kind']}/{name}?"
        in cotenant("get", "forecast", f"{name}x", "--store", store.url).stderr
    )


def test_eighty_columns_hold_severity_ready_saving_and_both_requests_of_every_row(store: Store) -> None:
    table = in_words(store.read_table(RECOMMENDATIONS))
    short = compact(table)
    columns = list(short.schema.columns)
    cells = split_parts(columns, [row_cells(columns, row) for row in short.rows()])
    fitted = fit_columns(columns, short.schema.identity, [title(c) for c in columns], cells, 80)
    assert [columns[place].name for place in fitted.places] == [
        "severity", "workload", "ready", "saving_month", "requests",
    ]  # fmt: skip
    widths = [sum(max(cell_len(cell) for cell in cut) for cut in zip(*fitted.lines, strict=True)) + 2 * 4]
    assert widths[0] <= 80
    # every cell stands whole: joined over its lines, a column of the fitted table is the column of the rows
    for at, place in enumerate(fitted.places):
        shown = "".join(line[at].strip() for line in fitted.lines)
        assert shown.replace(" ", "") == "".join(row[place].strip() for row in cells).replace(" ", "")


def test_a_request_stands_there_as_it_is_and_as_it_would_be() -> None:
    ref = WorkloadRef("shop", "Deployment", "web")
    row = {"namespace": ref.namespace, "kind": ref.kind, "workload": ref.name, "container": "app", "ready": "whole"}
    amounts = {"cpu_request_now": 500, "cpu_request": 250, "memory_request": 2**30}
    (shown,) = compact(in_words(Table.from_rows(RECOMMENDATIONS, [{**row, **amounts}]))).rows()
    assert (shown["workload"], shown["ready"]) == ("shop/web; app", "in 1 step")
    # 500 and 250 millicores in cores; 2^30 bytes are 1 GiB, and no memory request is set now
    assert shown["requests"] == "0.500 → 0.250 cores; – → 1.000 GiB"
