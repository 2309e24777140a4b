"""`cotenant serve mcp`: the REST API's read endpoints as tools for language models, over standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from cotenant.base.commands.results import ClusterOption, StoreOption, open_scans
from cotenant.base.commands.session import examples, new_app, session_of

if TYPE_CHECKING:
    from fastapi import FastAPI
    from mcp.server.lowlevel import Server

    from cotenant.dashboard.server.clusters import ClusterApps

app = new_app()
MOST_CHARACTERS: Final = 200_000
"""Longest answer: about 50,000 tokens."""
_ORIGIN: Final = "http://127.0.0.1"
"""Where the API stands for its client in the same process, a name that it answers to; nothing listens."""


@app.command(
    epilog=examples(
        "cotenant serve mcp                    # what a client of the Model Context Protocol starts",
        "cotenant serve mcp --cluster prod-1",
    )
)
def mcp(ctx: typer.Context, cluster: ClusterOption = None, store: StoreOption = None) -> None:
    """Answer a language model's questions about the last scan's results, read-only, until its client disconnects.

    If the store holds several clusters and none is named, all are served, and each call names its cluster.
    """
    import asyncio
    import logging

    import msgspec

    from cotenant.changes.access.settings import AccessSettings
    from cotenant.dashboard.commands.dashboard import ServedCluster, application

    settings = session_of(ctx).read({"store.url": store}).settings
    alone = msgspec.structs.replace(settings, access=AccessSettings())  # no port: whoever starts it may read the store
    stores = open_scans(settings, cluster, all_clusters=cluster is None).stores
    api = application([ServedCluster(store, alone, {}) for store in stores])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # its line for each call says nothing that the client lacks
    asyncio.run(_serve(server_of(api)))


def server_of(api: FastAPI | ClusterApps) -> Server[dict[str, object]]:
    """Return an MCP server with the API's read endpoints as tools; a refused call is a result with `isError`."""
    import httpx2
    from mcp import types
    from mcp.server.lowlevel import Server

    from cotenant.base.errors import UsageError
    from cotenant.base.version import __version__
    from cotenant.dashboard.rest.tools import INSTRUCTIONS, tools_of

    tools = {tool.name: tool for tool in tools_of(api.openapi())}
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url=_ORIGIN)

    def result(text: str, *, is_error: bool) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)

    async def offer(_context: object, _parameters: object) -> types.ListToolsResult:
        read_only = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.summary,
                    description=f"{tool.summary}.\n\n{tool.description}".strip(),
                    input_schema=tool.input_schema,
                    annotations=read_only,
                )
                for tool in tools.values()
            ]
        )

    async def call(_context: object, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(parameters.name)
        if tool is None:
            return result(f"there is no tool {parameters.name}; the tools are {', '.join(tools)}", is_error=True)
        try:
            response = await client.get(tool.address(parameters.arguments or {}))
        except UsageError as error:
            return result(f"{error.message}. {error.fix}".strip(), is_error=True)
        if len(response.text) > MOST_CHARACTERS:
            many = f"the answer has {len(response.text):,} characters, more than {MOST_CHARACTERS:,}"
            return result(f"{many}: ask for fewer rows or columns.", is_error=True)
        return result(response.text, is_error=response.status_code >= 400)

    return Server("cotenant", version=__version__, instructions=INSTRUCTIONS, on_list_tools=offer, on_call_tool=call)


async def _serve(server: Server[dict[str, object]]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (requests, responses):
        await server.run(requests, responses, server.create_initialization_options())
