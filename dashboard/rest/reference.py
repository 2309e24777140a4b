"""The API's reference as one HTML page, from its own OpenAPI description. Pure.

It loads no scripts or other files, so that it works offline and under the dashboard's content security policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

METHODS: Final = ("get", "post", "put", "patch", "delete")
_PAGE: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>API - cotenant</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark }} body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto;
padding: 0 1rem }} code, pre {{ font: 13px/1.5 ui-monospace, monospace }}
summary {{ cursor: pointer; padding: .35rem 0 }}
pre {{ white-space: pre-wrap }} code, pre, td {{ overflow-wrap: anywhere }}
table {{ border-collapse: collapse }} th, td {{ text-align: left; vertical-align: top;
padding: .2rem .8rem .2rem 0; font-weight: normal }} details {{ border-bottom: 1px solid #8886 }}
</style></head><body><main><h1>API</h1><p>{about}</p>
<p>Machines read <a href="{openapi}">openapi.json</a>. A write needs the token of <code>GET api/v1/me</code> in the
header <code>X-CSRFToken</code> with the cookies of the same answer, or a bearer token of the login provider instead of
both.</p>
{parts}</main></body></html>"""


def page(spec: Mapping[str, Any], base: str) -> str:
    """Return an HTML page of all endpoints, each collapsed, from the OpenAPI description that FastAPI generates."""
    parts = "\n".join(_endpoints(spec))
    about = escape(str(spec.get("info", {}).get("description", "")))
    return _PAGE.format(about=about, openapi=escape(f"{base}openapi.json"), parts=parts)


def _endpoints(spec: Mapping[str, Any]) -> Iterator[str]:
    for path, item in spec.get("paths", {}).items():
        for method in METHODS:
            if method in item:
                # One endpoint as a folded HTML block.
                endpoint_method = method.upper()
                operation = item[method]
                summary = f"<code>{endpoint_method} {escape(path)}</code> {escape(str(operation.get('summary', '')))}"
                about = operation.get("description")
                description = f"<pre>{escape(str(about))}</pre>" if about else ""
                rows = ""
                for parameter in operation.get("parameters", ()):
                    where = "" if parameter.get("in") == "query" else f" ({parameter.get('in')})"
                    must = " <strong>needed</strong>" if parameter.get("required") else ""
                    doc = parameter.get("description") or parameter.get("schema", {}).get("description") or ""
                    name = f"<code>{escape(str(parameter.get('name', '')))}</code>{escape(where)}{must}"
                    rows += f'<tr><th scope="row">{name}</th><td>{escape(str(doc))}</td></tr>'
                table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
                body = "<p>Takes a JSON body: see openapi.json.</p>" if "requestBody" in operation else ""
                yield f"<details><summary>{summary}</summary>{description}{table}{body}</details>"
