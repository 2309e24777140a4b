"""Joining defaults, file, environment and flags: precedence, conversion, and mistakes that name themselves."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import SettingsError
from cotenant.base.settings.base import NotNegative, Section, setting
from cotenant.base.settings.catalogue import catalogue
from cotenant.base.settings.document import parse
from cotenant.base.settings.load import Loaded, SettingOrigin, SettingSource, join, load, value_at
from cotenant.settings import Settings


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


class Stove(Section, frozen=True):
    """A group inside a room."""

    burners: Annotated[int, setting("Burners.", ge=1, le=8)] = 4
    headers: Annotated[dict[str, str], setting("Headers.")] = msgspec.field(default_factory=dict)


class Kitchen(Section, frozen=True):
    """A room with every kind of setting."""

    degrees: Annotated[float, setting("Heat.", unit="degrees", ge=0, le=300)] = 20.0
    clean: Annotated[bool, setting("Clean.")] = False
    shade: Annotated[Shade, setting("Shade.")] = Shade.LIGHT
    mode: Annotated[Literal["off", "on"], setting("Mode.")] = "on"
    cap: Annotated[NotNegative | None, setting("Cap.")] = None
    guests: Annotated[tuple[str, ...], setting("Guests.")] = ()
    shelves: Annotated[list[int], setting("Shelves.")] = msgspec.field(default_factory=list)
    slope: Annotated[float, setting("Slope.")] = 0.0
    low: Annotated[int, setting("Low.")] = 0
    high: Annotated[int, setting("High.")] = 10
    stove: Annotated[Stove, setting("The stove.")] = Stove(burners=2)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class House(Section, frozen=True):
    """The root."""

    kitchen: Kitchen = msgspec.field(default_factory=Kitchen)


def joined(text: str = "", env: dict[str, str] | None = None, flags: dict[str, Any] | None = None) -> Loaded[House]:
    return join(House(), parse(text, "s.yaml"), env or {}, flags or {})


def test_later_sources_win_and_each_value_knows_who_set_it() -> None:
    text = "kitchen:\n  degrees: 100\n  low: 1\n  high: 5\n"
    env = {"COTENANT_KITCHEN__DEGREES": "200", "COTENANT_KITCHEN__LOW": "2", "HOME": "/root"}
    loaded = joined(text, env, {"kitchen.degrees": "300"})
    assert (loaded.settings.kitchen.degrees, loaded.settings.kitchen.low, loaded.settings.kitchen.high) == (300.0, 2, 5)
    assert loaded.origins["kitchen.degrees"] == SettingOrigin(SettingSource.FLAG, "flag kitchen.degrees")
    assert loaded.origins["kitchen.low"] == SettingOrigin(SettingSource.ENV, "COTENANT_KITCHEN__LOW")
    assert loaded.origins["kitchen.high"] == SettingOrigin(SettingSource.FILE, "s.yaml line 4")
    assert loaded.origins["kitchen.clean"] == SettingOrigin(SettingSource.DEFAULT)


def test_text_becomes_the_declared_type_from_every_source() -> None:
    text = "kitchen:\n  clean: true\n  mode: off\n  guests: [ann, bob]\n  shelves: [1, 2]\n  cap:\n"
    env = {"COTENANT_KITCHEN__SHADE": "dark", "COTENANT_KITCHEN__STOVE__BURNERS": "8"}
    kitchen = joined(text, env, {"kitchen.degrees": 37}).settings.kitchen
    assert kitchen == Kitchen(
        degrees=37.0,
        clean=True,
        shade=Shade.DARK,
        mode="off",
        guests=("ann", "bob"),
        shelves=[1, 2],
        stove=Stove(burners=8),
    )


@pytest.mark.parametrize("written", ["ann,bob", "ann, bob", "[ann, bob]", '["ann", "bob"]'])
def test_a_list_in_a_variable_is_written_with_commas_or_brackets(written: str) -> None:
    assert joined(env={"COTENANT_KITCHEN__GUESTS": written}).settings.kitchen.guests == ("ann", "bob")


def test_an_empty_variable_is_an_empty_list() -> None:
    assert joined("kitchen: {guests: [a]}", {"COTENANT_KITCHEN__GUESTS": ""}).settings.kitchen.guests == ()


def test_a_flag_adds_one_entry_to_a_map() -> None:
    text = "kitchen: {stove: {headers: {A: '1', B: '2'}}}"
    loaded = joined(text, {}, {"kitchen.stove.headers.B": "3", "kitchen.stove.headers.X.y": "4"})
    assert loaded.settings.kitchen.stove.headers == {"A": "1", "B": "3", "X.y": "4"}


def test_a_map_in_a_variable_is_flow_yaml() -> None:
    headers = joined(env={"COTENANT_KITCHEN__STOVE__HEADERS": "{A: '1', B: two}"}).settings.kitchen.stove.headers
    assert headers == {"A": "1", "B": "two"}


def test_a_group_keeps_the_defaults_its_room_gave_it() -> None:
    """The room's stove has 2 burners, not the class's 4; setting another key of it leaves the 2."""
    stove = joined("kitchen: {stove: {headers: {A: b}}}").settings.kitchen.stove
    assert stove == Stove(burners=2, headers={"A": "b"})
    assert catalogue(House)["kitchen.stove.burners"].default == 2


def test_an_unset_group_in_a_file_changes_nothing() -> None:
    assert joined("kitchen:\n  stove:\n").settings == House()


@pytest.mark.parametrize(
    ("text", "env", "flags", "message"),
    [
        ("kitchn: {}", {}, {}, "s.yaml line 1: unknown setting 'kitchn'; did you mean 'kitchen'"),
        (
            "kitchen:\n  degres: 1",
            {},
            {},
            "s.yaml line 2: unknown setting 'kitchen.degres'; did you mean 'kitchen.degrees'",
        ),
        ("", {"COTENANT_KITCHEN__DEGRES": "1"}, {}, "did you mean 'COTENANT_KITCHEN__DEGREES'"),
        ("", {}, {"kitchen.stove.burner": "1"}, "a flag: unknown setting .*did you mean 'kitchen.stove.burners'"),
        ("", {}, {"zzzz": "1"}, "a flag: unknown setting 'zzzz'$"),
        ("kitchen.low: 3", {}, {}, "s.yaml line 1: the key 'kitchen.low' has a dot"),
        ("kitchen: 3", {}, {}, "s.yaml line 1: kitchen is a group of settings"),
        ("kitchen: {stove: [1]}", {}, {}, "kitchen.stove is a group of settings"),
    ],
)
def test_an_unknown_key_names_its_place_and_the_nearest_key(
    text: str, env: dict[str, str], flags: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        joined(text, env, flags)


@pytest.mark.parametrize(
    ("path", "value", "domain"),
    [
        ("kitchen.degrees", "301", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.degrees", "nan", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.degrees", "inf", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.degrees", "1_0", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.degrees", "１２", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.degrees", "", "number, >= 0, <= 300 (degrees)"),
        ("kitchen.cap", "-1", "whole number or null, >= 0"),
        ("kitchen.low", "1.5", "whole number"),
        ("kitchen.low", "9" * 5000, "whole number"),
        ("kitchen.clean", "yes", "true or false"),
        ("kitchen.shade", "grey", "one of light, dark"),
        ("kitchen.mode", "auto", "one of off, on"),
        ("kitchen.shelves", "1,x", "list of whole number"),
        ("kitchen.stove.headers", "a=b", "map of text to text"),
        ("kitchen.guests", "[a]\nextra: 1", "list of text"),
    ],
)
def test_a_value_outside_its_domain_names_place_setting_value_and_domain(path: str, value: str, domain: str) -> None:
    for source in ("env", "flag"):
        env = {catalogue(House)[path].env: value} if source == "env" else {}
        with pytest.raises(SettingsError) as caught:
            joined(env=env, flags={path: value} if source == "flag" else {})
        place = catalogue(House)[path].env if source == "env" else f"flag {path}"
        shown = repr(value) if len(value) < 70 else "'9999"
        assert caught.value.message.startswith(f"{place}: {path} is {shown}")
        ending = caught.value.message.partition(", it must be ")[2]
        assert ending == domain or ending.startswith(f"{domain}: Expected")  # the latter of a list or map
        assert caught.value.exit_code == 2


def test_an_infinite_number_is_refused_even_without_limits() -> None:
    for text in ("inf", "-inf", "nan", "1e999"):
        with pytest.raises(SettingsError, match=r"kitchen.slope is .*, it must be number"):
            joined(flags={"kitchen.slope": text})


@pytest.mark.parametrize("price", ["nan", "1e999", "-0.01"])
def test_a_number_in_a_map_is_held_to_its_domain_too(price: str) -> None:
    path = "recommender.prices.core_hour_by_node_label"
    assert value_at(load(Settings(), None, {}, {path: "{pool=gpu: 0.5}"}).settings, path) == {"pool=gpu": 0.5}
    with pytest.raises(SettingsError, match=f"{path} is .*, it must be map of text to number"):
        load(Settings(), None, {}, {path: f"{{pool=gpu: {price}}}"})


def test_an_api_server_gets_our_token_over_tls_only_and_the_refusal_says_so() -> None:
    path = "reservations.api_servers"
    assert value_at(load(Settings(), None, {}, {path: "[https://10.0.0.5:6443]"}).settings, path) == [
        "https://10.0.0.5:6443"
    ]
    with pytest.raises(
        SettingsError, match=f"{path} is .*http://10.0.0.5.*, it must be list of text, matching `.https"
    ):
        load(Settings(), None, {}, {path: "[http://10.0.0.5:6443]"})


@pytest.mark.parametrize(
    ("path", "written", "why"),
    [
        (
            "forecasting.events",
            "[{name: sale, first_day: 2026-11-27, last_day: 2026-11-20}]",
            "event 'sale' ends on 2026-11-20, before 2026-11-27 - at `$[0]`",
        ),
        ("forecasting.events", "[{name: a, first_day: 2026-11-27, last-day: x}]", "unknown field `last-day`"),
        (
            "access.roles",
            "[{role: admin, user: jane}, {role: admin}]",
            "must name either a group or a user - at `$[1]`",
        ),
        ("access.roles", "[{role: boss, user: jane}]", "Invalid enum value 'boss' - at `$[0].role`"),
        ("recommender.cotenant.cpu_steps_millicores", "[100, 500m]", "Expected `int`, got `str` - at `$[1]`"),
    ],
)
def test_a_list_says_which_of_its_members_is_wrong_and_why(path: str, written: str, why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        join(Settings(), parse("", ""), {}, {path: written})
    assert f"flag {path}: {path} is " in caught.value.message
    assert why in caught.value.message


def test_values_that_do_not_fit_together_name_their_places() -> None:
    with pytest.raises(SettingsError, match=r"COTENANT_KITCHEN__HIGH, s.yaml line 1: .*low 7 is above high 3"):
        joined("kitchen: {low: 7}", {"COTENANT_KITCHEN__HIGH": "3"})


def test_a_wrong_header_map_does_not_show_its_values() -> None:
    with pytest.raises(SettingsError) as caught:
        joined("kitchen: {stove: {headers: {Authorization: [s3cret]}}}")
    assert "s3cret" not in caught.value.message
    assert "Authorization" in caught.value.message


def test_variables_without_a_double_underscore_are_no_settings() -> None:
    """Kubernetes sets COTENANT_DASHBOARD_SERVICE_HOST for a Service of that name."""
    env = {"COTENANT_CONFIG": "x", "COTENANT_DASHBOARD_SERVICE_HOST": "10.0.0.1", "OTHER__KEY": "1"}
    assert joined(env=env).settings == House()


_paths = st.sampled_from(sorted(catalogue(Settings)))


@pytest.mark.slow
@given(
    st.dictionaries(_paths, st.text(max_size=30), max_size=3), st.dictionaries(_paths, st.text(max_size=30), max_size=3)
)
def test_any_text_for_any_setting_is_a_value_or_a_settings_error(env: dict[str, str], flags: dict[str, str]) -> None:
    settings = catalogue(Settings)
    try:
        loaded = join(Settings(), parse("", ""), {settings[p].env: v for p, v in env.items()}, flags)
    except SettingsError as error:
        assert any(path in error.message for path in (*env, *flags)) or "fit together" in error.message
    else:
        assert {p for p, o in loaded.origins.items() if o.source is not SettingSource.DEFAULT} == {*env, *flags}


def test_every_default_lies_in_its_own_domain() -> None:
    for path, entry in catalogue(Settings).items():
        assert msgspec.convert(msgspec.to_builtins(entry.default), entry.type, strict=False) == entry.default, path
        assert value_at(Settings(), path) == entry.default, path


def test_a_file_is_read_and_a_missing_or_foreign_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("dashboard:\n  port: 8051\n")
    loaded = load(Settings(), file, {}, {})
    assert loaded.settings.dashboard.port == 8051
    assert loaded.origins["dashboard.port"].where == f"{file} line 2"
    with pytest.raises(SettingsError, match=r"missing\.yaml does not exist"):
        load(Settings(), tmp_path / "missing.yaml", {}, {})
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load(Settings(), tmp_path, {}, {})
    file.write_bytes(b"dashboard: \xff")
    with pytest.raises(SettingsError, match="is not UTF-8: byte 11"):
        load(Settings(), file, {}, {})
    file.write_bytes(b"#" * 10_000_000)
    with pytest.raises(SettingsError, match="larger than"):
        load(Settings(), file, {}, {})
