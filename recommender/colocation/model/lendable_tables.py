"""Columns of the table of what nodes used, and of what they could and can lend."""

from __future__ import annotations

from typing import Final

from cotenant.base.table import Column, Kind, Schema

_BY_FORMULA: Final = (
    ": the formula of RECLAIMABLE on the usage of then, with the node's settings, labels and annotations as they are "
    "now. Missing where the node was not measured, and where the policy uses a forecast, which is not stored."
)
_AT_MEDIAN: Final = ", while prod pods of the node use the median of their forecast and all else stays as it is now."
_AT_SURE: Final = ", while prod pods use no more than the 0.95 quantile of their forecast."

_CODES: Final = "`past-by-forecast`, `past-not-measured`; empty in older results."

NODE_HISTORY: Final = Schema(
    "node_history",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("resource", "Resource", Kind.TEXT, "cpu (millicores) or memory (bytes)."),
        Column("start", "Start", Kind.TIME, "Start of the first hour."),
        Column("total", "Total", Kind.LIST, "Usage of the whole node, hourly means."),
        Column("prod", "Prod", Kind.LIST, "Usage of prod pods and pods without a class, hourly means."),
        Column(
            "batch", "Batch", Kind.LIST, f"What batch could use at the end of each hour, the last one now{_BY_FORMULA}"
        ),
        Column(
            "mid",
            "Mid",
            Kind.LIST,
            "The same of mid; missing in past hours in which it used a forecast, which is not stored.",
        ),
        Column("batch_reason", "Batch why", Kind.TEXT, f"Code why hours of Batch are missing; ok: none is. {_CODES}"),
        Column("mid_reason", "Mid why", Kind.TEXT, f"The same of Mid. {_CODES}"),
        Column("ahead", "Ahead", Kind.TIME, "Start of the first of the half hours ahead."),
        Column("batch_likely", "Batch, median", Kind.LIST, f"What batch can use, half hour by half hour{_AT_MEDIAN}"),
        Column("batch_sure", "Batch, 95 % sure", Kind.LIST, f"The same{_AT_SURE}"),
        Column("mid_likely", "Mid, median", Kind.LIST, f"What mid can use, half hour by half hour{_AT_MEDIAN}"),
        Column("mid_sure", "Mid, 95 % sure", Kind.LIST, f"The same{_AT_SURE}"),
    ),
    ("node", "resource"),
)
