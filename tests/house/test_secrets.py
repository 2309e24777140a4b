"""No secret is in what Python prints of an object: errors, log records and tracebacks may hold any of them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.pretty import Pretty

from cotenant.admission.webhook_server.authority import Pair
from cotenant.base.cluster import Inventory
from cotenant.base.http.http_connection import Request
from cotenant.base.kube.auth import Access
from cotenant.base.kube.connection import ApiResponse
from cotenant.base.people import IdentitySource, Person
from cotenant.base.settings.base import Section
from cotenant.base.settings.catalogue import Setting, catalogue, sections
from cotenant.base.settings.sections import StoreSettings
from cotenant.base.usage.usage import TimeGrid
from cotenant.changes.access.settings import OidcSettings
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.gate import Visit
from cotenant.dashboard.access.oidc import ClaimedIdentity, LoginAttempt
from cotenant.dashboard.access.sessions import Session
from cotenant.pipeline.analysis import History
from cotenant.pipeline.shards.plan import WorkloadShard
from cotenant.pipeline.shards.work import ShardTask
from cotenant.profiler.settings import PrometheusSettings
from cotenant.settings import Settings
from tests.house.rooms import ROOT, SOURCES

SECRET = "hunter2"
URL = f"https://ada:{SECRET}@example.com/path"
SECRET_FIELD = re.compile(
    r"^    (\w*?(?:token|password|secret|verifier|nonce|headers|authorization|private_key|csrf)): "
    r"((?:[\w.]*\[)?(?:str|bytes)\b[^,\n]*(?:,[^\n]+)?)$(?<!,)",
    re.MULTILINE,
)
"""Fields of classes by the names of secrets; a name that goes on (`token_file`, `key_name`) is about one."""
PUBLIC = {
    ("base/kube/client.py", "token"),  # where a list goes on
    ("base/kube/incluster.py", "token"),  # a file's name
    ("base/http/http_connection.py", "headers"),  # a repr of its own, tested below
}


def _holding(setting: Setting) -> Any:
    """A value of the setting's type that carries the secret; None where no text fits."""
    domain = setting.domain
    if setting.container is dict:
        return {"X-Key": URL} if "text" in domain else None
    if setting.container is list:
        return [URL] if domain.startswith("list of text") else None
    return URL if domain == "text" else None


def _sections() -> Iterator[tuple[type[msgspec.Struct], dict[str, Any]]]:
    """Every group of settings, and its settings that take any text, each with the secret in it."""
    holding = {path: value for path, s in catalogue(Settings).items() if (value := _holding(s)) is not None}
    for path, kind in sections(Settings):
        yield kind, {p.rpartition(".")[2]: v for p, v in holding.items() if p.rpartition(".")[0] == path}


@pytest.mark.parametrize(("kind", "values"), list(_sections()), ids=lambda part: getattr(part, "__name__", ""))
def test_a_group_of_settings_shows_no_secret(kind: type[msgspec.Struct], values: dict[str, Any]) -> None:
    section = kind()
    for name, value in values.items():
        with suppress(ValueError):  # a check of its own refuses such a text
            section = msgspec.structs.replace(section, **{name: value})
    shown = io.StringIO()
    Console(file=shown, width=200).print(Pretty(section))
    assert issubclass(kind, Section)
    assert SECRET not in f"{section!r} {section} {shown.getvalue()}"


def test_settings_that_are_no_secret_are_shown() -> None:
    shown = repr(PrometheusSettings(url=URL, headers={"X-Key": SECRET}, username="ada"))
    assert "url='https://********@example.com/path'" in shown and "username='ada'" in shown
    assert "headers={'X-Key': '********'}" in shown


def test_the_error_about_a_lost_worker_names_the_shard_and_no_setting() -> None:
    settings = msgspec.structs.replace(Settings(), store=StoreSettings(URL))
    inventory = Inventory("prod", 0, (), (), ())
    shard = WorkloadShard(3, ("shop", "web"), None, inventory, frozenset(), (None, None), frozenset())
    task = ShardTask(URL, "prod", settings, shard, History(inventory, TimeGrid(0, 300, 12), {}, {}, None))
    assert (str(task), SECRET in repr(task)) == ("shard 3 from workload shop/web", False)


HOLDERS = [
    Session("ada", (), 1.0, id_token=SECRET, refresh_token=SECRET),
    ClaimedIdentity("ada", (), SECRET, 1.0, SECRET),
    LoginAttempt(f"https://idp/?state={SECRET}", SECRET, SECRET, SECRET),
    Person("ada", (), IdentitySource.OIDC, (), SECRET),
    Visit(Front("http", "h", "/", query=f"token={SECRET}"), {"authorization": SECRET}, SECRET, fresh=False),
    Pair(b"certificate", SECRET.encode()),
    Access("c", "https://api", lambda: SECRET, proxy=URL),
    ApiResponse(200, {"set-cookie": SECRET}, SECRET.encode()),
    Request("POST", "/", {b"authorization": SECRET.encode()}, SECRET.encode(), last=False, query=SECRET),
    OidcSettings(issuer=URL, client_id="cotenant"),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_an_object_with_a_secret_shows_none(holder: object) -> None:
    assert SECRET not in repr(holder)


def test_every_field_with_the_name_of_a_secret_is_left_out_of_the_repr() -> None:
    fields = [
        (str(path.relative_to(ROOT)), *match.groups())
        for path in SOURCES
        if "settings" not in path.relative_to(ROOT).parts
        for match in SECRET_FIELD.finditer(path.read_text())
    ]
    assert len(fields) >= 8
    assert [f for f in fields if "repr=False" not in f[2] and f[:2] not in PUBLIC] == []
