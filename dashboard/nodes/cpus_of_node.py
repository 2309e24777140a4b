"""Which pods have the CPUs and devices of one node, as a panel of its page: a grid of cells, and a text. Pure."""

from __future__ import annotations

from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.base.allocation.cpu_ownership import (
    CpuState,
    NodeTopology,
    core_groups,
    legend,
    sign_of,
)
from cotenant.base.text import visible
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View

TITLE: Final = "CPUs and devices, and their owners"
ASK: Final = "node-cpus-ask"
BODY: Final = "node-cpus"
TONES: Final = ("blue", "teal", "violet", "orange", "yellow")
"""Colours of pods, over and over; the sign in the cell distinguishes those that share one. Red is only for danger."""
UNAVAILABLE: Final = "gray"


def panel(view: View, node: str) -> Component:
    """Return a panel with a button that reads the node's CPUs and devices from the cluster when it is pressed."""
    command = f"cotenant node topology {node}"
    if view.given.topologies is None:
        why = "A node's CPUs are read live from a cluster. Let the dashboard read one (--act), or use the command line:"
        return panels.panel(TITLE, panels.empty("This dashboard has no cluster access.", why=why, command=command))
    button = html.Button("Show them", id=ASK, className="button")
    note = "Sockets, NUMA nodes, cores and threads as the node's agent publishes them; read now, with your rights."
    return panels.panel(TITLE, html.Div(button, id=BODY, role="region", **{"aria-label": TITLE}), note=note)


def topology_drawing(topology: NodeTopology) -> Component:
    """Return a grid per NUMA node, the legend with the CPUs of each pod and state, and the devices."""
    entries = legend(topology.cpus)
    pods = [entry.label for entry in entries if entry.pod]
    tones = {label: TONES[number % len(TONES)] for number, label in enumerate(pods)}
    for entry in entries:
        if not entry.pod:
            tones[entry.label] = "free" if entry.state is CpuState.SHARED else UNAVAILABLE
    grids = []
    for group in core_groups(topology.cpus):
        cores = []
        for core in group.cores:
            cells = []
            for owner in core:
                whose = owner.pod or owner.state.value
                title = f"CPU {owner.cpu}, core {owner.core}: {visible(whose)}"
                cells.append(html.Span(sign_of(owner, entries), className=f"cpu tone-{tones[whose]}", title=title))
            cores.append(html.Span(cells, className="core"))
        label = f"{group.title}; the table below names the owners"
        grid = html.Div(cores, className="cores", role="img", **{"aria-label": label})
        grids.append(html.Figure([html.Figcaption(group.title, className="panel-note"), grid], className="cpu-figure"))
    signs = [html.Span(entry.sign, className=f"cpu tone-{tones[entry.label]}") for entry in entries]
    labels = [html.Span(visible(entry.label), className="whole") for entry in entries]
    rows = [[sign, label, entry.cpus] for sign, label, entry in zip(signs, labels, entries, strict=True)]
    legend_table = panels.facts(("Sign", "Whose", "CPUs"), rows, "Owners of the CPUs")
    notes = [html.P(visible(text), className="panel-note") for _, text in topology.notes]
    devices = []
    for device in topology.devices:
        users = ", ".join(f"{visible(pod)} {percent} %" for pod, percent in device.pods) or "nobody"
        devices.append([device.name, visible(device.id), visible(device.place), device.state, users])
    titles = ("Device", "Id", "Place", "State", "Whose")
    table = [html.H3("Devices"), panels.facts(titles, devices, "Devices")] if devices else []
    return html.Div([*grids, legend_table, *table, *notes])
