"""The place of the ledger: the same one from every working directory, however the setting writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.base.settings.sections import StoreSettings, store_url
from cotenant.base.store.files import Folder
from cotenant.changes.model.settings import ActionSettings, ledger_location
from tests.support.command_line import cotenant


@pytest.mark.parametrize(
    ("written", "environment", "place"),
    [
        ("", {"HOME": "/people/u"}, "/people/u/.local/state/cotenant/ledger.db"),
        ("", {"HOME": "/people/u", "XDG_STATE_HOME": "/state"}, "/state/cotenant/ledger.db"),
        ("~/ledger.db", {"HOME": "/people/u"}, "/people/u/ledger.db"),
        ("/var/~/ledger.db", {"HOME": "/people/u"}, "/var/~/ledger.db"),
        ("s3://bucket/~/ledger", {"HOME": "/people/u"}, "s3://bucket/~/ledger"),
    ],
)
def test_the_ledger_lies_where_the_setting_says(written: str, environment: dict[str, str], place: str) -> None:
    assert str(ledger_location(ActionSettings(ledger=written), environment)) == place


def test_a_tilde_is_the_same_folder_for_ledger_and_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"HOME": str(tmp_path / "home")}
    monkeypatch.setenv("HOME", home["HOME"])
    store = Folder(store_url(StoreSettings(url="~/usage"), home)).path("x")
    assert Path(store).parent.parent == Path(ledger_location(ActionSettings(ledger="~/ledger.db"), home)).parent


def test_a_command_makes_no_folder_of_that_name_where_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    variables = {"HOME": str(tmp_path / "home"), "COTENANT_ACTIONS__LEDGER": "~/ledger.db"}
    done = cotenant("audit", "export", variables=variables)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "here").iterdir())
