"""A model's client starts `cotenant serve mcp`, lists its tools and calls them: reads of the REST API, no more."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from posixpath import normpath
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from cotenant.base.errors import UsageError
from cotenant.dashboard.rest.tools import ApiTool, tools_of
from tests.support import command_line
from tests.support import dashboard as support
from tests.support.clusters import copies
from tests.support.dashboard import Results
from tools.write_reference import openapi

COMMAND = "from cotenant.cli.main import run; run()"
Conversation = Callable[[ClientSession], Awaitable[Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return support.results(tmp_path_factory.mktemp("results"), spec=support.WEEK)


def converse(url: str, talk: Conversation) -> Any:
    """What a real client gets from the real command over its standard input and output; url: of the store."""
    server = StdioServerParameters(
        command=sys.executable, args=["-c", COMMAND, "serve", "mcp", "--store", url], env=dict(os.environ)
    )

    async def session() -> Any:
        async with stdio_client(server) as (answers, requests), ClientSession(answers, requests) as client:
            await client.initialize()
            return await talk(client)

    with ThreadPoolExecutor(1) as other_thread:  # a test of browsers in this process leaves its event loop running
        return other_thread.submit(asyncio.run, asyncio.wait_for(session(), 120)).result()


@pytest.mark.slow
def test_a_client_asks_what_it_would_ask_the_rest_api(results: Results) -> None:
    async def talk(client: ClientSession) -> Any:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        rows = json.loads(text(await client.call_tool("recommendations", {"sort": ["-cpu_delta_total"], "limit": 3})))
        first = rows["rows"][0]
        container = {key: first[key] for key in ("namespace", "kind", "workload", "container")}
        return (
            tools,
            json.loads(text(await client.call_tool("overview"))),
            rows,
            json.loads(text(await client.call_tool("explain", container))),
            json.loads(text(await client.call_tool("nodes", {}))),
            await client.call_tool("explain", {"namespace": "shop"}),
            await client.call_tool("nodes", {"limit": 501}),
            await client.call_tool("nodes", {"colour": "red"}),
            await client.call_tool("node_history", {"node": "no such?node"}),
            await client.call_tool("node_history", {"node": ".."}),
            await client.call_tool("workload", {"namespace": "..", "kind": "..", "name": "health"}),
            await client.call_tool("nodes", {"q": ["a" * 100_000]}),
            await client.call_tool("accept", {}),
        )

    tools, overview, rows, explanation, nodes, *refused = converse(results.store.url, talk)
    # every read of results; the back-test is a page; nothing of the endpoints that change something
    assert {"overview", "explain", "recommendations", "findings", "reclaimable", "forecast", "fit"} <= tools.keys()
    assert not {"backtest", "accept", "changes", "ledger"} & tools.keys()
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    assert tools["explain"].input_schema["required"] == ["namespace", "kind", "workload", "container"]
    assert "format" not in tools["nodes"].input_schema["properties"]
    assert overview["cluster"] == results.store.cluster
    assert {"cpu", "memory"} == overview["worst_days"].keys() and len(overview["worst_day_sentences"]) == 2
    assert len(rows["rows"]) == 3 < rows["total"]
    assert explanation["container"]["container"] == rows["rows"][0]["container"]
    assert nodes["total"] == support.WEEK.nodes
    assert all(refusal.is_error for refusal in refused)
    assert [text(refusal) for refusal in refused] == [
        "explain needs kind, workload, container.",
        "limit 501 is not in 0 to 500 rows. Use offset for the rows after the first 500, or narrow the filters.",
        "nodes takes no argument colour. It takes " + ", ".join(tools["nodes"].input_schema["properties"]) + ".",
        '{"error":"NoData","message":"no history of a node named no such?node","fix":""}',
        "node '..' is not a valid name. Write the name as in the tables.",
        "namespace '..' is not a valid name. Write the name as in the tables.",
        # 100,000 after /api/v1/nodes?limit=50&q=
        "the arguments of nodes take 100,025 characters, at most 32,768. Request fewer items at a time.",
        f"there is no tool accept; the tools are {', '.join(tools)}",
    ]


@pytest.mark.slow
def test_of_several_clusters_each_call_names_its_own(tmp_path: Path) -> None:
    url = copies(tmp_path, "east", "west")[0].url

    async def talk(client: ClientSession) -> Any:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return (
            tools,
            json.loads(text(await client.call_tool("clusters"))),
            *[json.loads(text(await client.call_tool("nodes", {"cluster": name}))) for name in ("east", "west")],
            json.loads(text(await client.call_tool("overview", {"cluster": "west"}))),
            await client.call_tool("nodes", {}),
            await client.call_tool("nodes", {"cluster": "north"}),
        )

    tools, clusters, east, west, overview, nameless, unknown = converse(url, talk)
    assert {"clusters", "overview", "explain", "recommendations", "findings", "nodes"} <= tools.keys()
    assert tools["nodes"].input_schema["required"] == ["cluster"]
    assert tools["nodes"].input_schema["properties"]["cluster"]["enum"] == ["east", "west"]
    assert [row["cluster"] for row in clusters["rows"]] == ["east", "west"]
    # `copies` gives the second overview one node more than the first, so that they are told apart by more than a name
    assert [east["cluster"], west["cluster"], overview["cluster"]] == ["east", "west", "west"]
    assert overview["nodes"] == clusters["rows"][0]["nodes"] + 1
    assert text(nameless) == "nodes needs cluster (east, west)."
    assert (unknown.is_error, "there is no cluster 'north'" in text(unknown)) == (True, True)


ODD = [
    "", ".", "..", "../..", "/", "//", "a/../b", "%2e%2e", "%00", "\x00", "\n", "\r\nX: y", "?", "#", "&a=b", "\ud800",
    "\u202e", "a" * 30_000, "a" * 100_000, "null", -1, 1e400, None, True, [], {}, ["..", ".."], {"..": ".."},
    ";x", "..;/x", "\\..\\..", "x/../../y", "%252e%252e%252f", "\x7f", "a\tb", "\u2028", 10**400, float("nan"),
    [[".."]], {"a": {"b": "/"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def tools() -> tuple[ApiTool, ...]:
    return tools_of(openapi())


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{str(odd)[:8]!a} of {len(str(odd))}")
def test_no_value_of_an_argument_leads_to_another_path_of_the_api(tools: tuple[ApiTool, ...], odd: Any) -> None:
    call_count = 0
    for tool in tools:
        for name in tool.parameters:
            plain = {key: "x" for key, parameter in tool.parameters.items() if parameter.get("required")}
            try:
                path, _, query = tool.address({**plain, name: odd}).partition("?")
            except UsageError as error:
                assert error.message, (tool.name, name)
                continue
            # Written as a path that a client resolves, it has the tool's own parts, and each argument is one of them.
            assert normpath(path) == path and path.count("/") == tool.path.count("/"), (tool.name, name, path)
            own = re.sub(r"\\{\w+\\}", "[^/?#]+", re.escape(tool.path))
            assert re.fullmatch(own, path) and "#" not in path + query, (tool.name, name, path)
            call_count += 1
    assert call_count or odd in ("\ud800", "a" * 100_000)


def text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


def test_without_results_it_ends_with_the_fix(tmp_path: Path) -> None:
    done = command_line.cotenant("serve", "mcp", "--store", tmp_path.as_uri())
    assert (done.returncode, done.stdout) == (1, "")  # standard output belongs to the protocol
    assert "Run cotenant scan" in done.stderr
