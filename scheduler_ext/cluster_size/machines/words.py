"""Mixes, bills and batch work in sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.base.amount_text import cores, gib, money
from cotenant.base.text import agree, counted
from cotenant.scheduler_ext.cluster_size.machines.batch_work import BatchAlone
from cotenant.scheduler_ext.cluster_size.machines.bills import Bill
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix


def mix_sentence(mix: Mix | None, currency: str) -> str:
    """Describe the cheapest mix that was found, and how far it may be from the best possible; "" without a list."""
    if mix is None:
        return ""
    if mix.reason or mix.price_month is None:
        return f"No mix of machine types: {mix.reason}{f'; first {mix.pod}' if mix.pod else ''}"
    kept = f", of which {agree(len(mix.kept), 'stays', 'stay')}" if mix.kept else ""
    bound = f"; the least possible is not known: {mix.bound_reason}" if mix.bound_reason else ""
    if mix.price_by_bound is not None:
        bound = f", {mix.price_by_bound:.2f} x the least possible ({money(mix.bound_month, currency)})"
    price = money(mix.price_month, currency)
    missing = f" ({mix.unpriced:,} of them without a price)" if mix.unpriced else ""
    return f"Cheapest mix found: {counted(mix.nodes, 'node')}{kept}{missing}, {price} a month{bound}"


def bill_sentence(bills: Sequence[Bill], currency: str) -> str:
    """Return the four bills in one sentence; "" where there is no mix among them."""
    known = [f"{bill.name} {money(bill.price_month, currency)}" for bill in bills if bill.price_month is not None]
    return f"A month: {', '.join(known)}" if any(bill.bound_month is not None for bill in bills) and known else ""


def batch_sentence(batch: BatchAlone, currency: str) -> str:
    """Describe what the batch work would cost on nodes of its own; "" where there is none."""
    if not batch.pods:
        return ""
    who = agree(batch.pods, "pod that requests", "pods that request")
    amounts = f"{cores(batch.millicores)} cores, {gib(batch.memory_bytes)}"
    start = f"Batch work, counted apart: {who} {amounts}"
    if batch.mix is None or batch.price_month is None:
        return f"{start}; no price of nodes of its own: {batch.mix.reason if batch.mix else ''}"
    where = f"on {counted(batch.mix.nodes, 'node')} of its own"
    return f"{start}; {where}, it would cost {money(batch.price_month, currency)} a month"
