"""The settings' page and schema are what their declarations say, and every setting is explained."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.settings.catalogue import MASK, catalogue, mask_secrets, sections
from cotenant.base.settings.docs import schema, settings_markdown
from cotenant.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text() == settings_markdown(Settings), "run: cotenant config docs > docs/settings.md"


def test_every_setting_has_a_doc_a_domain_and_a_default() -> None:
    settings = catalogue(Settings)
    assert [path for path, setting in settings.items() if not setting.doc.endswith(".")] == [], "a sentence ends so"
    assert [path for path, setting in settings.items() if not setting.domain] == []
    assert [path for path, setting in settings.items() if setting.default is msgspec.NODEFAULT] == []


@pytest.mark.parametrize("path", ["descheduler.mode", "extender.prediction.on"])
def test_a_setting_about_thresholds_and_forecasts_says_which_peak_they_are_compared_with(path: str) -> None:
    # the page of a node shows a peak of 5-minute values: no threshold is compared with that one
    doc = catalogue(Settings)[path].doc
    assert "half hour" in doc and "5-minute peak on a node's page is another quantity" in doc


def test_a_unit_in_a_name_is_the_unit_declared() -> None:
    units = ("seconds", "minutes", "hours", "days", "bytes", "millicores")
    settings_by_path = {
        path: setting for path, setting in catalogue(Settings).items() if path.endswith(tuple(f"_{u}" for u in units))
    }
    assert len(settings_by_path) > 30
    assert {
        path: setting.unit for path, setting in settings_by_path.items() if not path.endswith(f"_{setting.unit}")
    } == {}


def test_no_setting_is_a_secret_by_itself() -> None:
    secret_words = {"password", "token", "secret", "key", "credentials"}
    texts = [path for path, setting in catalogue(Settings).items() if setting.domain != "true or false"]
    assert not [path for path in texts if path.rpartition(".")[2].rpartition("_")[2] in secret_words]


def test_every_section_says_what_it_is_for() -> None:
    assert all((section.__doc__ or "").strip() for _, section in sections(Settings))


def test_environment_names_are_unique_and_lead_back_to_the_path() -> None:
    settings = catalogue(Settings)
    assert len({s.env for s in settings.values()}) == len(settings)
    assert settings["dashboard.port"].env == "COTENANT_DASHBOARD__PORT"


def _validator(document: dict[str, Any]) -> Any:
    """A validator of a JSON schema; its package is imported here because that takes seconds of every collection."""
    import jsonschema  # type: ignore[import-untyped]

    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def test_the_schema_is_valid_and_accepts_the_defaults() -> None:
    defaults: dict[str, Any] = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "Settings"}
    for path, setting in catalogue(Settings).items():
        *parents, name = path.split(".")
        reduce(lambda tree, key: tree.setdefault(key, {}), parents, defaults)[name] = msgspec.to_builtins(
            setting.default
        )
    assert list(_validator(schema(Settings)).iter_errors(defaults)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [{"dashbord": {}}, {"dashboard": {"prt": 1}}, {"dashboard": {"port": 70000}}, {"kind": "Pod"}]
)
def test_the_schema_refuses_what_loading_refuses(wrong: dict[str, object]) -> None:
    assert not _validator(schema(Settings)).is_valid(wrong)


def test_the_schema_carries_units() -> None:
    assert schema(Settings)["$defs"]["DashboardSettings"]["properties"]["red_after_seconds"]["x-unit"] == "seconds"


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("a.bearer_token_file", "/run/token", "/run/token"),
        ("a.headers", {"X-Key": "s3cret"}, {"X-Key": MASK}),
        ("a.url", "https://me:s3cret@host:1/p?q=@x", f"https://{MASK}@host:1/p?q=@x"),
        ("a.url", "https://host/p@q", "https://host/p@q"),
        ("a.url", "https://h/?namespace=a&api_key=s3cret&b=1", f"https://h/?namespace=a&api_key={MASK}&b=1"),
        ("a.port", 80, 80),
    ],
)
def test_secrets_are_hidden_and_the_rest_is_not(path: str, value: object, shown: object) -> None:
    assert mask_secrets(path, value) == shown
