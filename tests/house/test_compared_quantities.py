"""A quantity of several surfaces is compared on each of them, and one of a single surface is shown nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cotenant.recommender.model.clusters import CLUSTERS
from cotenant.scheduler_ext.reservations.commands.rows import RESERVATION_PLANS, SCORES
from cotenant_lab.quantities.registry import QUANTITIES, TABLES, Quantity, Surface, by_chapter, every_quantity
from tests.consistency import test_live_tables as live
from tests.consistency.settings import ONE_BY_ONE, SETTINGS, Setting
from tests.consistency.surfaces import READERS
from tests.house import test_sentence_numbers as sentences
from tests.house.rooms import ON_TREES, ROOT
from tools.write_quantities import UNLISTED

pytestmark = ON_TREES
TESTS = ROOT / "tests"
WORDS = frozenset({Surface.SENTENCE, Surface.CAPTION, Surface.CLI, Surface.REPORT, Surface.NOTE, Surface.TILE})
"""Surfaces of sentences: the numbers in them are listed, and computed in none of them."""
HEADLINE = "consistency/test_headline.py"
SAVINGS = f"{HEADLINE}::test_sentence_tile_list_and_bar_say_these_sums"
SUMMARIES = f"{HEADLINE}::test_report_note_summary_and_clusters_say_the_cluster_s_totals"
DOCUMENT = f"{HEADLINE}::test_rest_and_tools_answer_with_the_document_that_the_page_is_drawn_from"
PLANS = "dashboard/test_plan_surfaces.py"
LENT = f"{HEADLINE}::test_what_can_be_lent_now_is_the_sum_of_the_nodes_wherever_it_is_said"
DRAWERS = "consistency/test_drawers.py"
SIZE = "dashboard/test_cluster_size_page.py::test_the_page_rest_and_python_have_the_number_of_the_stored_answer"
ONE_SAVING = "dashboard/test_one_saving.py"
STATES = f"{PLANS}::test_a_phase_and_its_numbers_are_the_same_everywhere"
SCORED = f"{PLANS}::test_coverage_leads_and_the_hit_ratio_never_stands_for_it"
IN_OBJECT = f"{PLANS}::test_an_object_of_the_cluster_keeps_the_sign_and_the_coverage"
FORMS = "consistency/test_forms.py::test_a_data_frame_has_the_same_cells"
WORST = "test_the_page_says_what_the_risk_has_meant_in_the_words_of_the_analysis"
WORST_DAY = f"dashboard/test_batch_page.py::{WORST}"
CHARTS = "consistency/test_charts.py::test_charts_draw_what_the_store_holds_and_captions_name_what_is_drawn"
DRAWN = dict.fromkeys((Surface.CHART, Surface.CAPTION), CHARTS)
MAPS = "consistency/test_live_tables.py::test_the_maps_of_a_round_draw_its_nodes_and_their_captions_name_the_highest"
OF_SIZE = dict.fromkeys((Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP), SIZE)
ONE_ANSWER = "consistency/test_live_tables.py::test_the_size_of_a_cluster_is_one_answer_on_every_surface"
OF_MIX = dict.fromkeys((Surface.SENTENCE, Surface.CLI, Surface.REST, Surface.MCP), ONE_ANSWER)
EXPLAINED = "test_page_command_rest_and_tools_say_what_a_cpu_request_has_meant_and_how_much_was_measured"
OF_EXPLANATION = dict.fromkeys(
    (Surface.SENTENCE, Surface.DRAWER, Surface.CLI, Surface.REST, Surface.MCP), f"{DRAWERS}::{EXPLAINED}"
)
OF_NODE = {Surface.TILE: f"{DRAWERS}::test_the_page_of_a_node_says_the_row_of_the_node"}
OF_SCORES = dict.fromkeys((Surface.SENTENCE, Surface.CHART, Surface.TABLE, Surface.DRAWER), SCORED)
NAMED: Mapping[str, Mapping[Surface, str]] = {
    "savings_*": {
        **dict.fromkeys((Surface.TILE, Surface.SENTENCE, Surface.CAPTION), SAVINGS),
        **dict.fromkeys((Surface.REPORT, Surface.NOTE), SUMMARIES),
        Surface.CLI: f"{ONE_SAVING}::test_rest_exports_and_command_line_have_the_same_numbers",
        Surface.REVIEW: f"{ONE_SAVING}::test_the_bar_says_what_a_review_writes_and_what_it_leaves_out_and_why",
    },
    "cluster_lendable_now": dict.fromkeys((Surface.TILE, Surface.SENTENCE), LENT),
    "cluster_lendable_*": {**dict.fromkeys((Surface.REST, Surface.MCP), DOCUMENT), **DRAWN},
    "lendable_*": DRAWN,
    "highest_half_hour_ratio": dict.fromkeys((Surface.CHART, Surface.CAPTION), MAPS),
    "what_if_*": DRAWN,
    "portraits_*": DRAWN,
    "events_time": DRAWN,
    "node_history_*": DRAWN,
    "samples_present": DRAWN,
    **dict.fromkeys(
        ("coverage_series", "coverage_longest_gap_seconds", "coverage_newest", "coverage_by_day_day"), DRAWN
    ),
    "peak_median": {Surface.SENTENCE: CHARTS},
    "cluster_cpu_*": dict.fromkeys((Surface.TILE, Surface.CLI, Surface.REPORT), SUMMARIES),
    "cluster_memory_*": dict.fromkeys((Surface.TILE, Surface.CLI, Surface.REPORT), SUMMARIES),
    "recommendation_log_*": {Surface.DRAWER: f"{DRAWERS}::test_the_portrait_of_a_workload_says_its_row"},
    "nodes_that_could_leave_count": OF_SIZE,
    "leaving_beside_batch_count": OF_SIZE,
    "leaving_nodes_month": OF_SIZE,
    "fewest_nodes_count": OF_SIZE,
    "kept_by_bound_ratio": OF_SIZE,
    "cluster_size_nodes_now_count": OF_SIZE,
    **dict.fromkeys(("days_above_cpu_request", "minutes_above_cpu_request", "time_measured"), OF_EXPLANATION),
    "cheapest_mix_*": OF_MIX,
    "batch_alone_month": OF_MIX,
    "lendable_now": {
        Surface.DRAWER: f"{DRAWERS}::test_the_panels_of_a_node_say_each_amount_that_is_lent_with_its_terms"
    },
    **dict.fromkeys(("lendable_cpu_now", "lendable_memory_now", "nodes_cpu_usage", "nodes_memory_usage"), OF_NODE),
    "workloads_*": {Surface.TILE: f"{DRAWERS}::test_the_portrait_of_a_workload_says_its_row"},
    "reservation_plans_*": {Surface.DRAWER: STATES},
    "plan_scores_*": {Surface.DRAWER: SCORED},
    "plan_coverage": {**OF_SCORES, Surface.OBJECT: IN_OBJECT},
    "plan_hit_ratio": {**OF_SCORES, Surface.OBJECT: IN_OBJECT},
    "plan_available_before_start_seconds": {**OF_SCORES, Surface.OBJECT: IN_OBJECT},
    "plan_most_*": dict.fromkeys((Surface.TILE, Surface.OBJECT), IN_OBJECT),
    "plan_coverage_back_test": {Surface.DRAWER: f"{DRAWERS}::test_the_panel_of_a_plan_says_its_row"},
    "plan_hit_ratio_back_test": {
        Surface.DRAWER: f"{DRAWERS}::test_the_panel_of_a_plan_says_its_row",
        Surface.OBJECT: IN_OBJECT,
    },
    "plan_pods_*": dict.fromkeys((Surface.TABLE, Surface.DRAWER), STATES),
    "plan_reservations_used": dict.fromkeys((Surface.DRAWER, Surface.REST), STATES),
    "forecast_scores_*": dict.fromkeys((Surface.CLI, Surface.PYTHON), FORMS),
    "worst_day_*": {
        **dict.fromkeys((Surface.REST, Surface.MCP), DOCUMENT),
        Surface.SENTENCE: WORST_DAY,
        Surface.CLI: SUMMARIES,
    },
}
"""Key, or its beginning with a star -> by surface the test that compares it."""
OF_DOCUMENT = ("recommender.model.views.Overview.", "recommender.model.savings.", "recommender.model.views.Headline.")
"""Owners of what the overview's document holds, which REST and tools answer with."""


def compared_tables() -> dict[Surface, set[str]]:
    """Surface -> the tables whose cells the consistency suite compares on it."""
    tables_by_surface = {surface: set(tables) for surface, (_, tables) in READERS.items()}
    for table in live.LIVE:
        tables_by_surface[Surface.REST].add(table.schema.name)
        tables_by_surface[Surface.EXPORT] |= (
            {table.schema.name} if Surface.EXPORT in live.surfaces_of(table.schema) else set()
        )
        tables_by_surface[Surface.CLI] |= {table.schema.name} if table.words else set()
        tables_by_surface[Surface.MCP] |= {table.schema.name} if table.tool[0] else set()
    of_page = {page_table.schema.name for page_table in live.PAGE_TABLES}
    tables_by_surface[Surface.TABLE] |= {
        *of_page,
        *(live_table.schema.name for live_table in live.LISTED),
        CLUSTERS.name,
    }
    of_size = {schema.name for schema in live.SIZE_PARTS.values()}
    tables_by_surface[Surface.DRAWER] = {live.LADDERS.name, live.RUNGS.name, *(of_size & of_page)}
    for surface in (Surface.REST, Surface.CLI, Surface.MCP, Surface.PYTHON):
        tables_by_surface[surface] |= {schema.name for schema in live.SIZE_PARTS.values()}
    for name in (CLUSTERS.name, live.RUNGS.name, RESERVATION_PLANS.name, SCORES.name):
        tables_by_surface[Surface.CLI].add(name)
        tables_by_surface[Surface.REST].add(name)
    return tables_by_surface


def named_tests(key: str) -> Mapping[Surface, str]:
    """The tests that compare a quantity by name."""
    tests_by_surface: dict[Surface, str] = {}
    for pattern, tests in NAMED.items():
        if pattern == key or (pattern.endswith("*") and key.startswith(pattern[:-1])):
            tests_by_surface |= tests
    return tests_by_surface


def uncompared(quantity: Quantity, tables: Mapping[Surface, set[str]]) -> Iterator[Surface]:
    """The surfaces of a quantity on which nothing compares it."""
    own = {column.partition(".")[0] for column in quantity.columns}
    for surface in quantity.surfaces:
        by_sentences = surface in WORDS and quantity.key in sentences.LISTED["quantities"]
        if own & tables.get(surface, set()) or surface in named_tests(quantity.key) or by_sentences:
            continue
        of_document = surface in (Surface.REST, Surface.MCP) and any(name in quantity.function for name in OF_DOCUMENT)
        if not of_document:
            yield surface


def test_every_quantity_of_several_surfaces_is_compared_on_each() -> None:
    tables = compared_tables()
    several = [quantity for quantity in every_quantity() if len(quantity.surfaces) > 1]
    missing = {
        quantity.key: texts for quantity in several if (texts := [s.value for s in uncompared(quantity, tables)])
    }
    assert missing == {}, "compare it in tests/consistency, or name the test that does"


def test_each_test_that_compares_a_quantity_by_name_is_there() -> None:
    used = {path for tests in NAMED.values() for path in tests.values()} | {DOCUMENT}
    parts = [path.partition("::") for path in sorted(used)]
    lost = [name for file, _, name in parts if f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")]
    assert lost == []
    keys = [quantity.key for quantity in every_quantity()]
    unknown = [key for key in NAMED if not any(k == key or (key[-1] == "*" and k.startswith(key[:-1])) for k in keys)]
    assert unknown == [], "no such quantity"


WAYS = frozenset(
    {
        *(f"recommender.reclaimable.cpu_policy={name}" for name in ("usage", "maxUsageRequest", "forecast")),
        "recommender.reclaimable.memory_policy=request",
        *(f"recommender.reclaimable.{cap}" for cap in ("batch_cpu_percent=5", "batch_memory_percent=4",
                                                       "mid_cpu_percent=3")),
        *("recommender.prices.currency=EUR", "recommender.strategy=vpa", "marks_nodes", "ns", "range", "reads"),
        *("zone", "cluster"),
    }
)  # fmt: skip
"""Policies, caps, prices, a peer's strategy, labels and annotations of nodes, chosen namespaces, a time range, a reader
of few namespaces, another zone, a second cluster."""


def ways_of(setting: Setting) -> set[str]:
    """Everything in which a setting of the suite differs from the defaults."""
    attributes = ("marks_nodes", "reads", "zone", "cluster")
    other = {name for name in attributes if getattr(setting, name) != getattr(SETTINGS[0], name)}
    texts = {part.partition("=")[0] for part in setting.search.split("&") if part}
    return {*other, *texts, *(f"{path}={value}" for path, value in leaves(setting.document))}


def leaves(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in document.items():
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{above}{key}.")
        else:
            yield f"{above}{key}", inner


def test_the_suite_runs_under_each_way_to_differ_with_others_and_alone() -> None:
    assert ways_of(SETTINGS[0]) == set()
    for settings in (SETTINGS, ONE_BY_ONE):
        assert set().union(*map(ways_of, settings)) >= WAYS
    assert all("." in way or len(ways_of(setting)) == 1 for setting in ONE_BY_ONE for way in ways_of(setting))


def surfaces_of_module(name: str) -> frozenset[Surface]:
    """Where people read the sentences of a module."""
    if Path(name).stem in sentences.WORDS_OF_ROOMS:
        return frozenset({Surface.SENTENCE, Surface.CLI})
    if name.startswith("dashboard/") and "commands" not in name:
        return frozenset({Surface.SENTENCE})
    if "/report/" in name or name.endswith("/simulation_report.py"):
        return frozenset({Surface.REPORT})
    return frozenset({Surface.NOTE if Path(name).stem == "notice" else Surface.CLI})


@pytest.mark.slow
@pytest.mark.parametrize("key", [quantity.key for title in UNLISTED for quantity in by_chapter()[title]])
def test_sentences_contain_a_quantity_where_the_dictionary_says_it_and_nowhere_else(key: str) -> None:
    """So that a quantity of one surface is proven to have no other one."""
    modules = [sentences.formatted()[number] for number in sentences.LISTED["quantities"].get(key, ())]
    surfaces = frozenset(QUANTITIES[key].surfaces) - {Surface.REST, Surface.MCP}
    assert surfaces == frozenset().union(*map(surfaces_of_module, modules))


def test_a_table_of_one_surface_is_made_where_that_surface_is() -> None:
    """Its schema and the function of its rows are used by commands, or by charts, and by no other kind of module."""
    alone = {table_subject.schema.name: table_subject for table_subject in TABLES if len(table_subject.surfaces) == 1}
    assert {surface for table_subject in alone.values() for surface in table_subject.surfaces} <= {
        Surface.CLI,
        Surface.CHART,
    }
    for name, (path, tree) in sentences.sources().items():
        shows = {Surface.REST, Surface.TABLE} if name.startswith("dashboard/") else set()
        shows |= {Surface.PYTHON} if name.startswith("cotenant/python_api/") else set()
        if not shows or path.parts[-2] == "commands":
            continue
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        uses = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
        for subject in alone.values():
            if subject.surfaces == (Surface.CLI,):
                assert subject.function not in uses, f"{name} shows {subject.schema.name} too: say so in the dictionary"
