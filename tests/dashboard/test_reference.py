"""The API's reference page: every endpoint, as text, without scripts or anything from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cotenant.dashboard.access.headers import inline
from cotenant.dashboard.rest import reference
from tests.support import access as support
from tests.support.access import Browser


@pytest.mark.slow
def test_every_endpoint_of_the_description_is_on_the_page(tmp_path: Path) -> None:
    with support.dashboard(tmp_path, support.by_proxy("127.0.0.1/32"), "/co/") as url:
        browser = Browser(url, **{"X-Forwarded-User": "ann"})
        spec, page = browser.get("/co/openapi.json").json(), browser.get("/co/docs", page=True)
    acts = {p: item[m] for p, item in spec["paths"].items() for m in ("post", "put") if m in item}
    plans = {p: a for p, a in acts.items() if "/reservations" in p}
    taken = {p: a["requestBody"]["content"]["application/json"]["schema"] for p, a in plans.items()}
    assert len(plans) >= 7 and all(schema.get("properties") for schema in taken.values())
    assert set(taken["/co/api/v1/reservations/{namespace}/{name}/skip"]["properties"]) == {"start", "reason"}
    matches = re.findall(r"<summary><code>(\w+) ([^<]+)</code>", page.text)
    assert matches == [(m.upper(), p) for p, item in spec["paths"].items() for m in reference.METHODS if m in item]
    assert ("GET", "/co/api/v1/workloads") in matches and ("POST", "/co/auth/logout") in matches
    assert inline(page.text) == [] and 'src="' not in page.text and 'href="http' not in page.text


def test_what_a_description_holds_stays_text() -> None:
    nasty = "<script>alert(1)</script>"
    parameter = {"name": nasty, "in": "query", "description": nasty, "required": True}
    endpoint = {"summary": nasty, "description": nasty, "parameters": [parameter], "requestBody": {}}
    page = reference.page({"info": {"description": nasty}, "paths": {f"/{nasty}": {"post": endpoint}}}, "/")
    assert nasty not in page and page.count("&lt;script&gt;") == 6
