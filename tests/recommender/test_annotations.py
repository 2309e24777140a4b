"""Annotations: read by their domain, ignored with a note outside it, before settings, before profiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cotenant.recommender.strategies.cotenant.annotations as module
from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.base.kubernetes.protocol import PREDICTED_USAGE_ANNOTATION, RUN_SECONDS_ANNOTATION
from cotenant.base.resource import GIB, Resource
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION, LATENCY_ANNOTATION, RESOURCES_ANNOTATION
from cotenant.enforcer.strategies.baseline import BASELINE_ANNOTATION
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant.annotations import PREFIX, RULES, parse
from cotenant.recommender.strategies.cotenant.policy import policy
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION

CPU, MEMORY = Resource.CPU, Resource.MEMORY
PAGE = Path(__file__).parents[2] / "docs" / "annotations.md"


def annotations_of(**wishes: str) -> dict[str, str]:
    return {f"{PREFIX}{name.replace('_', '-')}": text for name, text in wishes.items()}


def test_every_annotation_is_read_by_its_domain() -> None:
    wishes, notes = parse(
        annotations_of(
            profile="aggressive",
            cpu_fraction="0.99",
            cpu_margin="0",
            memory_margin=".5",
            min_cpu="250m",
            max_cpu="2",
            min_memory="1Gi",
            max_memory="4Gi",
            cpu_limit="unset",
            keep_qos_class="false",
            exclude_containers="istio-proxy, vault",
            skip=" true ",
        )
    )
    assert notes == ()
    assert wishes == {
        "profile": "aggressive",
        "cpu-fraction": 0.99,
        "cpu-margin": 0.0,
        "memory-margin": 0.5,
        "min-cpu": 250,
        "max-cpu": 2000,
        "min-memory": GIB,
        "max-memory": 4 * GIB,
        "cpu-limit": "unset",
        "keep-qos-class": False,
        "exclude-containers": frozenset({"istio-proxy", "vault"}),
        "skip": True,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("profile", "Balanced"),
        ("cpu-fraction", "0"),
        ("cpu-fraction", "95"),
        ("cpu-fraction", "nan"),
        ("cpu-fraction", "0x1"),
        ("cpu-margin", "-0.1"),
        ("cpu-margin", "15%"),
        ("memory-margin", "1e999"),
        ("min-cpu", "lots"),
        ("min-cpu", "0"),
        ("max-memory", "-1Gi"),
        ("max-memory", "1" * 2000),
        ("cpu-limit", "remove"),
        ("keep-qos-class", "yes"),
        ("exclude-containers", " , "),
        ("exclude-containers", "../etc"),
        ("skip", "1"),
        ("skip", "\u202etrue"),
    ],
)
def test_a_value_outside_its_domain_is_ignored_with_a_note_that_names_both(name: str, text: str) -> None:
    wishes, notes = parse(
        {f"{PREFIX}{name}": text, f"{PREFIX}cpu-limit": "unset"} if name != "cpu-limit" else {f"{PREFIX}{name}": text}
    )
    assert name not in wishes
    (note,) = notes
    assert f"{PREFIX}{name}" in note
    assert RULES[name].domain in note
    assert ascii(text)[:20] in note
    assert "\u202e" not in note
    assert len(note) < 250


def test_an_unknown_key_is_named_with_the_nearest_one() -> None:
    _, notes = parse({f"{PREFIX}max-mem": "1Gi", "other.io/max-memory": "1Gi", f"{PREFIX}node-group": "large"})
    assert len(notes) == 1
    assert "did you mean cotenant.dev/max-memory?" in notes[0]


@pytest.mark.parametrize(
    "key",
    [
        CHANGE_ANNOTATION, LATENCY_ANNOTATION, RESOURCES_ANNOTATION, RUN_SECONDS_ANNOTATION, PREDICTED_USAGE_ANNOTATION,
        RECORD_ANNOTATION, BASELINE_ANNOTATION, MISSED_ANNOTATION, f"{PREFIX}node-group",
    ],
)  # fmt: skip
def test_what_others_of_us_read_or_write_on_workloads_and_pods_is_not_called_unknown(key: str) -> None:
    assert parse({key: "any"}) == ({}, ())


def test_a_minimum_above_its_maximum_gives_way() -> None:
    _, notes = parse(annotations_of(min_cpu="2", max_cpu="1"))
    assert notes == ("annotation cotenant.dev/min-cpu is above cotenant.dev/max-cpu; the maximum is used",)


def test_an_annotation_goes_before_a_setting_and_a_setting_before_the_profile() -> None:
    plain = policy({}, CotenantSettings())
    assert (plain.profile, plain.cpu_fraction, plain.memory_margin_fraction) == ("balanced", 0.95, 0.15)
    assert plain.overrides == {CPU: (), MEMORY: ()}
    settings = CotenantSettings(cpu_fraction=0.9)
    by_setting = policy({}, settings)
    assert by_setting.cpu_fraction == 0.9
    assert by_setting.overrides[CPU] == ("cpu_fraction 0.9 (setting overrides profile balanced 0.95)",)
    both = policy(annotations_of(profile="conservative", cpu_fraction="0.5", max_memory="2Gi"), settings)
    assert (both.cpu_fraction, both.cpu_margin_fraction, both.memory_margin_fraction) == (0.5, 0.1, 0.3)
    assert both.overrides[CPU] == (
        "profile conservative (annotation cotenant.dev/profile overrides setting balanced)",
        "cpu_fraction 0.5 (annotation cotenant.dev/cpu-fraction overrides setting 0.9 and profile conservative 0.98)",
    )
    assert both.overrides[MEMORY][-1] == "maximum 2147483648 bytes (annotation cotenant.dev/max-memory)"


def test_the_page_and_the_module_name_every_annotation() -> None:
    page, doc = PAGE.read_text(), str(module.__doc__)
    assert [name for name in RULES if f"`{PREFIX}{name}`" not in page or f"`{PREFIX}{name}`" not in doc] == []


@given(
    st.dictionaries(
        st.sampled_from([f"{PREFIX}{name}" for name in RULES]) | st.text().map(lambda t: PREFIX + t) | st.text(),
        st.text() | st.sampled_from(["0.5", "1Gi", "true", "a,b", "9" * 400, "1e308", "-0", "١"]),
        max_size=8,
    )
)
def test_whatever_is_written_there_nothing_raises_and_numbers_stay_in_their_domain(texts: dict[str, str]) -> None:
    wishes = policy(texts, CotenantSettings())
    assert 0 < wishes.cpu_fraction <= 1
    assert 0 <= wishes.cpu_margin_fraction <= 10
    assert 0 <= wishes.memory_margin_fraction <= 10
    assert all(note.isprintable() for note in wishes.notes)
