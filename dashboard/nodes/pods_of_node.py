"""The pods of one node as a panel of its page: requests and present usage, the largest first. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final
from urllib.parse import urlencode

from dash import dcc
from dash.development.base_component import Component

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.tables import filters, queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.carried import workload_address
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.sources.workload_story import Row
from cotenant.recommender.model.views import PODS

SHOWN: Final = 120
"""Most rows on the node's own page; the list has them all."""
TITLE: Final = "Pods on this node now"
HEADS: Final = (
    "Pod", "Workload", "QoS", "Class", "CPU requested", "CPU used", "Memory requested", "Memory used", "Since"
)  # fmt: skip


def of_node(snapshot: Snapshot, node: str) -> list[Row]:
    """Return the rows of PODS on the node, the largest user of CPU first."""
    here = Query((FilterCondition("node", (filters.literal(node),)),), sort=(("cpu_usage", True),))
    return list(queries.page(snapshot.tables[PODS.name], here).rows())


def panel(snapshot: Snapshot, node: str, base: str) -> Component:
    """Return the table of pods, with a link to the list of pods."""
    rows = of_node(snapshot, node)
    if not rows:
        why = "These results are older than the list of pods, or no pod runs here."
        return panels.panel(TITLE, panels.empty("No pod is listed on this node.", why=why, command="cotenant scan"))
    more = f"; the {SHOWN} largest of {len(rows):,}" if len(rows) > SHOWN else ""
    counts = Counter(str(row["priority"]) or "no class" for row in rows)
    classes = ", ".join(f"{count:,} {word}" for word, count in counts.most_common())
    note = f"Requests of the whole pod and its present usage; {classes}{more}."
    address = f"{base}pods?{urlencode({'node': filters.literal(node)})}"
    link = dcc.Link("Filter and export", href=address, className="quiet-link", id="to-pods")
    cells = []
    for row in rows[:SHOWN]:
        ref = WorkloadRef(str(row["namespace"]), str(row["kind"]), str(row["workload"]))
        href = workload_address(base, ref, urlencode({"node": filters.literal(node)}), "pods")
        full_name = f"{visible(ref.namespace)}/{visible(ref.name)}"
        class_names = [str(row[k]) for k in ("qos", "priority")]
        cells.append([
            visible(str(row["pod"])),
            dcc.Link(full_name, href=href, title="All about this workload"),
            *(panels.chip(name, name.lower()) if name else display.MISSING for name in class_names),
            *(panels.amount(row[f"{r}_{what}"], r) for r in Resource for what in ("request", "usage")),
            panels.moment(row["start"]) if row["start"] else display.MISSING,
        ])  # fmt: skip
    framed = panels.facts(HEADS, cells, f"Pods on {visible(node)}", tall=True, kind="pods")
    return panels.panel(TITLE, framed, aside=link, note=note, id_="node-pods")
