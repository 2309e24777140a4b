"""Keys that became constants: ignored with a warning that names the constant, through every door."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cotenant.base.errors import SettingsError
from cotenant.base.settings.base import Section
from cotenant.base.settings.catalogue import catalogue, environment_name, section_of
from cotenant.base.settings.docs import schema
from cotenant.base.settings.document import parse
from cotenant.base.settings.former import FORMER, FORMER_SECTIONS, FormerSetting, former_setting
from cotenant.base.settings.load import IgnoredSetting, join, load
from cotenant.base.settings.warn import log_ignored_settings
from cotenant.python_api.settings import settings_of
from cotenant.settings import Settings
from tools import write_chart_schema
from tools.write_constants import constants_markdown, meaning_of

ROOT = Path(__file__).parents[2]
EVERY = sorted(FORMER)


def nested(key: str, value: Any) -> dict[str, Any]:
    """{"a": {"b": value}} for "a.b"."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def test_few_enough_settings_remain_and_each_says_when_it_is_changed() -> None:
    known = catalogue(Settings)
    assert len(known) <= 260
    assert not FORMER.keys() & known.keys()
    assert [path for path, setting in known.items() if not setting.when] == []


def test_every_former_setting_names_a_constant_whose_docstring_explains_it() -> None:
    assert [key for key in EVERY if not meaning_of(FORMER[key].constant).endswith(".")] == []


def test_fields_of_sections_without_metadata_are_constants_of_the_table() -> None:
    """A field that is no setting: what no file can set needs no description, domain or occasion."""

    def leaves(section: type[msgspec.Struct], prefix: str) -> set[str]:
        found: set[str] = set()
        for info in msgspec.structs.fields(section):
            inner = section_of(info.type)
            found |= leaves(inner, f"{prefix}{info.encode_name}.") if inner else {f"{prefix}{info.encode_name}"}
        return found

    assert leaves(Settings, "") - catalogue(Settings).keys() <= FORMER.keys()


@pytest.mark.slow
@pytest.mark.parametrize("key", EVERY)
def test_every_door_ignores_the_value_and_says_where_it_stands(key: str) -> None:
    name = environment_name(key)
    text = msgspec.yaml.encode(nested(key, "anything")).decode()
    last = f"settings.yaml line {len(key.split('.'))}"
    assert join(Settings(), parse(text, "settings.yaml"), {}, {}).ignored == (IgnoredSetting(FORMER[key], last),)
    assert join(Settings(), parse("", ""), {name: "anything"}, {}).ignored == (IgnoredSetting(FORMER[key], name),)
    by_flag = join(Settings(), parse("", ""), {}, {key: "anything"})
    assert by_flag.ignored == (IgnoredSetting(FORMER[key], f"flag {key}"),)
    assert by_flag.settings == Settings(), "nothing of it has an effect"
    warning = by_flag.ignored[0].warning
    assert key in warning and FORMER[key].constant in warning and "ignored" in warning


def test_the_section_of_a_cluster_is_a_door_too(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "forecasting: {prior_days: 3}\n"
        "clusters:\n"
        "  east:\n"
        "    plans:\n"
        "      interval_seconds: 5\n"
        "      enabled: false\n"
        "  west: {}\n"
    )
    east, west = (load(Settings(), file, {}, {}, name) for name in ("east", "west"))
    assert [(i.former.key, i.where) for i in east.ignored] == [
        ("forecasting.prior_days", f"{file} line 1"),
        ("plans.interval_seconds", f"{file} line 5"),
    ]
    assert [i.former.key for i in west.ignored] == ["forecasting.prior_days"], "what is of another cluster is not read"
    assert (east.settings.plans.enabled, west.settings.plans.enabled) == (False, True), "its neighbours still count"


@given(st.sampled_from(EVERY), st.text(max_size=20), st.text("abz_", min_size=1, max_size=8))
def test_a_former_key_never_fails_and_an_unknown_one_beside_it_always_does(key: str, value: str, other: str) -> None:
    assert join(Settings(), parse("", ""), {}, {key: value}).settings == Settings()
    section = key.rpartition(".")[0]
    unknown = f"{section}.{other}x"
    if unknown not in FORMER and not any(path.startswith(unknown) for path in catalogue(Settings)):
        with pytest.raises(SettingsError, match="unknown setting"):
            join(Settings(), parse("", ""), {}, {unknown: value})


class Forecasts(Section, frozen=True):
    """A section of the same name under another root."""

    horizon: int = 1


class House(Section, frozen=True):
    """A root of settings that are not cotenant's."""

    forecasting: Forecasts = Forecasts()


def test_a_root_of_other_sections_has_no_former_settings() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting 'forecasting\.prior_days'"):
        join(House(), parse("", ""), {}, {"forecasting.prior_days": "3"})


def test_an_entry_of_a_former_map_or_a_section_of_constants_alone_is_former_too() -> None:
    assert (
        former_setting("recommender.cotenant.severity.ok_bytes.x") is FORMER["recommender.cotenant.severity.ok_bytes"]
    )
    assert former_setting("recommender.cotenant.severity") is None
    assert "recommender.cotenant.severity" in FORMER_SECTIONS
    assert former_setting("dashboard.port") is None


def test_the_warning_goes_to_the_log_with_constant_place_and_value() -> None:
    loaded = join(Settings(), parse("", ""), {"COTENANT_FORECASTING__PRIOR_DAYS": "3"}, {})
    with capture_logs() as lines:
        log_ignored_settings(loaded)
    (line,) = lines
    assert (line["log_level"], line["setting"]) == ("warning", "forecasting.prior_days")
    assert line["place"] == "COTENANT_FORECASTING__PRIOR_DAYS"
    assert line["constant"] == FORMER["forecasting.prior_days"].constant


def test_python_warns_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("kube: {page_size: 3}\n")
    with pytest.warns(UserWarning, match=r"settings\.yaml line 1: kube\.page_size is no setting any more"):
        assert settings_of(file) == Settings()


@pytest.mark.parametrize("which", ["file", "chart"])
def test_both_schemas_accept_every_former_key_and_refuse_an_unknown_one(which: str) -> None:
    """A chart's values are checked before the install: a former key there must not stop it."""
    document = schema(Settings) if which == "file" else write_chart_schema.schema()

    def accepts(settings: dict[str, Any]) -> bool:
        return bool(validator.is_valid(settings if which == "file" else {"settings": settings}))

    validator = jsonschema.Draft202012Validator(document)
    assert [key for key in EVERY if not accepts(nested(key, "anything"))] == []
    assert [key for key in EVERY if accepts(nested(f"{key}_", "anything"))] == []


def test_a_former_key_is_marked_deprecated_for_editors() -> None:
    prior_days = schema(Settings)["$defs"]["ForecastingSettings"]["properties"]["prior_days"]
    assert prior_days["deprecated"] is True
    assert FORMER["forecasting.prior_days"].constant in prior_days["description"]


def test_the_page_of_constants_is_what_is_generated() -> None:
    page = (ROOT / "docs" / "constants.md").read_text()
    assert page == constants_markdown(), "run: python -m tools.write_constants > docs/constants.md"


@pytest.mark.slow
def test_no_page_and_no_module_names_a_former_key_as_a_setting() -> None:
    command = ["git", "ls-files", "*.py", "*.md", "*.yaml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    own = ("CHANGELOG.md", "docs/constants.md", "base/settings/former.py", "tests/")
    names = [name for name in listed.stdout.split() if not name.startswith(own)]
    named = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, EVERY))})(?![\w.(=\[])")
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    assert len(texts) > 1000
    assert {name: found for name, text in texts.items() if (found := set(named.findall(text)))} == {}


def test_the_sentence_of_a_former_setting_is_the_same_everywhere() -> None:
    former = FormerSetting("a.b", "cotenant.a.B")
    assert former.warning in IgnoredSetting(former, "here").warning
