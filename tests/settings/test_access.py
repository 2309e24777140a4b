"""Settings of access: what is safe by default, what cannot stand together, and the page has examples that hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import SettingsError
from cotenant.base.people import Role
from cotenant.base.settings.load import load
from cotenant.changes.access.settings import AccessMode, Unlisted
from cotenant.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access.md"
HEAD = "apiVersion: cotenant.dev/v1alpha1\nkind: Settings\n"


def test_by_default_nothing_is_done_and_strangers_are_refused() -> None:
    access = load(Settings(), None, {}, {}).settings.access
    assert (access.read_only, access.mode, access.anonymous) == (True, AccessMode.NONE, Unlisted.REFUSED)
    assert access.roles == [] and access.proxy.trusted == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"access.mode": "proxy"}, "needs the addresses of trusted proxies"),
        ({"access.mode": "proxy", "access.proxy.trusted": "10.0.0.1/8"}, "has host bits set"),
        (
            {"access.mode": "proxy", "access.proxy.trusted": "everybody"},
            "does not appear to be an IPv4 or IPv6 network",
        ),
        ({"access.mode": "oidc"}, "needs access.oidc.issuer and access.oidc.client_id"),
        ({"access.own_namespaces": "true", "access.anonymous": "viewer"}, "anybody could read everything"),
        ({"access.oidc.issuer": "http://login.example.com"}, "is not https"),
        ({"access.roles": "[{role: king, user: ada}]"}, "access.roles is"),
        ({"access.roles": "[{role: admin}]"}, "access.roles is"),
        ({"access.roles": "[{role: admin, user: ada, group: all}]"}, "access.roles is"),
        ({"access.public_url": "cotenant.example.com"}, "is not an http or https address"),
        ({"access.session_hours": "0"}, "> 0"),
    ],
)
def test_what_cannot_be_is_refused_in_words(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(Settings(), None, {}, flags)
    assert message in str(raised.value)


def test_roles_come_from_the_environment_too() -> None:
    env = {"COTENANT_ACCESS__ROLES": "[{role: owner, group: shop-team, namespaces: [shop]}]"}
    (rule,) = load(Settings(), None, env, {}).settings.access.roles
    assert (rule.role, rule.group, rule.namespaces) == (Role.OWNER, "shop-team", ["shop"])


@pytest.mark.parametrize("number", range(4))
def test_every_example_of_the_page_is_a_settings_file(number: int, tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "settings.yaml"
    file.write_text(HEAD + examples[number])
    settings = load(Settings(), file, {}, {}).settings
    assert len(examples) == 4 and not settings.access.read_only
    assert settings.access.mode is (AccessMode.NONE, AccessMode.NONE, AccessMode.PROXY, AccessMode.OIDC)[number]
