"""A proxy before a real Prometheus that is as strict as managed and multi-tenant servers are.

    with StrictServer(server.url, Rules(exact_names=True)) as strict:
        PrometheusSettings(url=strict.url)

Google's managed Prometheus and CloudWatch find series by a metric's whole name alone; OpenShift's tenancy port takes
GET alone and one namespace a request, which prom-label-proxy writes into every selector; CloudWatch cuts answers with a
warning; a proxy on the way limits the length of addresses.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

Fields = dict[str, list[str]]
CUT: Final = "results truncated due to limit"
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"([\w:]*)\{([^{}]*)\}")


@dataclass(frozen=True)
class Rules:
    """What the server refuses or does beyond Prometheus."""

    exact_names: bool = False
    """An error for a selector that does not name its metric by `=`."""
    pattern_status: int = 400
    """Status of that error."""
    lists_names: bool = True
    """Else 400 for /label/__name__/values."""
    refuses_post: int = 0
    """Status for POST; 0 takes it."""
    tenancy: bool = False
    """400 without the parameter `namespace` in the address; with it every selector is narrowed to that namespace, and
    400 for one of another namespace."""
    allowed: frozenset[str] = frozenset()
    """Namespaces that the caller may read, of a tenancy server; 403 for others."""
    needs_parameter: tuple[str, str] = ("", "")
    """400 where the address does not carry this parameter."""
    address_bytes: int = 0
    """414 for longer addresses; 0 has no limit."""
    too_long: tuple[int, bytes] = (414, b"<html><head><title>414 Request-URI Too Large</title></head></html>")
    most_series: int = 0
    """/series answers with at most so many, and a warning."""
    most_names: int = 0
    """Lists of names are cut after so many, with a warning."""
    series_seconds: int = 0
    """/series answers for the last so many seconds of a span alone, without a word, as Azure's workspaces do."""
    most_seconds: int = 0
    """Range queries of a longer span are refused with `too_long_span`."""
    too_long_span: str = ""
    most_results: int = 0
    """Range queries answer with at most so many series, and a warning, or with an error (`refuses_results`)."""
    refuses_results: bool = False
    warns: str = ""
    """A warning in every answer to a range query."""
    prefix: str = ""
    """Path before the API's own."""


def names_a_metric(expression: str) -> bool:
    """Whether every selector names its metric exactly."""
    bare = _STRING.sub(lambda m: '"' + re.sub(r"[{}]", "_", m[0][1:-1]) + '"', expression)
    selectors = _SELECTOR.findall(bare)
    patterns = re.search(r"__name__\s*(=~|!=|!~)", _STRING.sub('""', expression))
    return not patterns and all(name or re.search(r'__name__\s*="', inner) for name, inner in selectors)


def narrowed(expression: str, namespace: str) -> str:
    """The expression with the namespace in every selector, as prom-label-proxy writes it."""
    return re.sub(r"\{(?=[^}]*\})", f'{{namespace="{namespace}",', expression)


def conflict(expression: str, namespace: str) -> str:
    """What prom-label-proxy says, with OpenShift's --error-on-replace, of a selector of another namespace; "" of none.

    https://github.com/prometheus-community/prom-label-proxy, `PromQLEnforcer.EnforceMatchers`.
    """
    own = f'namespace="{namespace}"'
    others = (m[0] for m in re.finditer(r'(?<![\w])namespace(=~|!=|!~|=)"(?:[^"\\]|\\.)*"', expression) if m[0] != own)
    return next((f'label matcher value "{o}" conflicts with injected value "{own}"' for o in others), "")


@dataclass(slots=True)
class StrictServer:
    """Started on entry on a free loopback port, stopped on exit."""

    target: str
    rules: Rules
    url: str = ""
    requests: list[tuple[str, str, Fields]] = field(default_factory=list)
    """(method, path, parameters of address and body) of every request."""
    refused: list[str] = field(default_factory=list)
    """Why requests were refused."""
    tokens: list[str] = field(default_factory=list)
    """Authorization of every request."""
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> StrictServer:
        owner = self

        class Handler(_Handler):
            strict = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{self.rules.prefix}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def refusal(self, method: str, target: str, fields: Fields) -> tuple[int, bytes] | None:
        """Status and body where the request is refused."""
        rules, parts = self.rules, urlsplit(target)
        if rules.address_bytes and len(target) > rules.address_bytes:
            return rules.too_long
        if method == "POST" and rules.refuses_post:
            return rules.refuses_post, b"no"
        in_address = parse_qs(parts.query, keep_blank_values=True)
        name, value = rules.needs_parameter
        if name and in_address.get(name) != [value]:
            return 400, _error(f"parameter {name} is missing")
        if rules.most_seconds and parts.path.endswith("/query_range") and _seconds(fields) > rules.most_seconds:
            return 422, _error(rules.too_long_span)
        return self._of_tenant(in_address, fields) if rules.tenancy else self._of_names(parts.path, fields)

    def _of_tenant(self, in_address: Fields, fields: Fields) -> tuple[int, bytes] | None:
        if "namespace" not in in_address:
            return 400, _error('The "namespace" query parameter must be provided.')
        namespace = in_address["namespace"][0]
        if namespace not in self.rules.allowed:
            return 403, b"Forbidden"
        expressions = (*fields.get("query", ()), *fields.get("match[]", ()))
        problem = next(filter(None, (conflict(text, namespace) for text in expressions)), "")
        return (400, _error(problem)) if problem else None

    def _of_names(self, path: str, fields: Fields) -> tuple[int, bytes] | None:
        if path.endswith("/label/__name__/values") and not self.rules.lists_names:
            return 400, _error("label values are not listed")
        expressions = (*fields.get("query", ()), *fields.get("match[]", ()))
        if self.rules.exact_names and not all(map(names_a_metric, expressions)):
            return self.rules.pattern_status, _error(
                "convert vector selector failed: =~ is an unsupported matchtype for the __name__ label"
            )
        return None

    def rewritten(self, path: str, fields: Fields) -> Fields:
        """The parameters as the server behind gets them."""
        most = self.rules.series_seconds
        if most and path.endswith("/series") and _seconds(fields) > most:
            return {**fields, "start": [str(float(fields["end"][0]) - most)]}
        if not self.rules.tenancy:
            return fields
        namespace = fields.pop("namespace")[0]
        out = dict(fields)
        for key in ("query", "match[]"):
            if key in fields:
                out[key] = [narrowed(text, namespace) for text in fields[key]]
        if "/label" in path and "match[]" not in out:
            out["match[]"] = [f'{{namespace="{namespace}"}}']
        return out

    def cut(self, path: str, body: bytes) -> bytes:
        """The answer as the rules leave it."""
        series, names = path.endswith("/series"), "/label/" in path
        most = self.rules.most_series if series else self.rules.most_names if names else 0
        envelope: dict[str, Any] = json.loads(body)
        if "/query" in path and self.rules.most_results and len(envelope["data"]["result"]) > self.rules.most_results:
            if self.rules.refuses_results:
                return _error(f"the query exceeds the limit of {self.rules.most_results} series")
            envelope["data"]["result"] = envelope["data"]["result"][: self.rules.most_results]
            envelope["warnings"] = [CUT]
        if most and len(envelope.get("data") or ()) > most:
            envelope["data"], envelope["warnings"] = envelope["data"][:most], [CUT]
        if self.rules.warns and "/query" in path:
            envelope["warnings"] = [self.rules.warns]
        return json.dumps(envelope).encode()


def _seconds(fields: Fields) -> float:
    return float(fields["end"][0]) - float(fields["start"][0])


def _error(message: str) -> bytes:
    return json.dumps({"status": "error", "errorType": "bad_data", "error": message}).encode()


class _Handler(BaseHTTPRequestHandler):
    strict: StrictServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._handle("")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _handle(self, form: str) -> None:
        parts = urlsplit(self.path)
        params = parse_qs(parts.query, keep_blank_values=True)
        for key, values in parse_qs(form).items():
            params[key] = [*params.get(key, ()), *values]
        path = parts.path.removeprefix(self.strict.rules.prefix)
        self.strict.requests.append((self.command, path, dict(params)))
        self.strict.tokens.append(self.headers.get("Authorization", ""))
        refused = self.strict.refusal(self.command, self.path, params)
        if refused:
            self.strict.refused.append(refused[1].decode())
            self._send(*refused)
            return
        fields = urlencode(self.strict.rewritten(path, params), doseq=True)
        try:
            with urllib.request.urlopen(f"{self.strict.target}{path}?{fields}", timeout=120) as response:
                content = self.strict.cut(path, response.read())
                self._send(422 if b'"status": "error"' in content[:40] else 200, content)
        except urllib.error.HTTPError as error:
            self._send(error.code, error.read())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
