"""`cotenant node cri-proxy`: a proxy between the kubelet and a container runtime that has no NRI."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings

app = new_app()


@app.command(
    epilog=examples(
        "cotenant node cri-proxy  # then set the kubelet's containerRuntimeEndpoint to unix:///run/cotenant/cri.sock",
        "cotenant node cri-proxy --upstream /run/crio/crio.sock --policy /etc/cotenant/node-slo.yaml",
    )
)
def cri_proxy(
    ctx: typer.Context,
    socket: Annotated[str | None, typer.Option(metavar="PATH", help="Socket for the kubelet's calls.")] = None,
    upstream: Annotated[str | None, typer.Option(metavar="PATH", help="The runtime's own CRI socket.")] = None,
    hook_dir: Annotated[
        str | None, typer.Option("--hook-dir", metavar="DIR", help="Folder that registers hook servers; empty = none.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="FILE", help="NodeSLO as YAML or JSON; default: built-in.")
    ] = None,
) -> None:
    """Pass every call of the kubelet on to the runtime, and give new containers of batch pods their limits.

    If the runtime has NRI (containerd 2), prefer the node agent's NRI plugin, which does the same: the kubelet does not
    depend on it. The proxy serves until it is interrupted.
    """
    import asyncio

    flags = {
        "runtime.cri_socket": socket,
        "runtime.cri_upstream": upstream,
        "runtime.cri_hook_dir": hook_dir,
        "enforcer.policy_file": policy,
    }
    settings = session_of(ctx).load(flags).settings
    from cotenant.enforcer.runtime.cri_proxy import PolicyDecision, serve

    agent = settings.section(EnforcerSettings)
    decide = PolicyDecision(agent.policy_file, agent.cgroup_root)
    if not asyncio.run(serve(settings.section(RuntimeSettings), decide)):
        raise typer.Exit(1)
