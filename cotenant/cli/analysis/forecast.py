"""`cotenant get forecast`: the forecast of the next 24 hours for the cluster, its nodes or a workload."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from cotenant.base.commands.call import ROWS, SCANS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.results import NamespaceOption, chosen_of_scan
from cotenant.base.commands.session import new_app, workload_addresses
from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import DeviceResource, MeasuredResource, Resource, measured_resource
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit
from cotenant.base.text import ask_for_closest, percent
from cotenant.base.usage.forecast import fine_path
from cotenant.base.usage.usage import HALF_HOUR_SECONDS

app = new_app()

QUANTILES: Final = (10, 50, 90, 95)
PATH_KINDS: Final[dict[MeasuredResource, Kind]] = {
    Resource.CPU: Kind.MILLICORES,
    Resource.MEMORY: Kind.BYTES,
    DeviceResource.GPU_CORE: Kind.INTEGER,
}


class ForecastResource(StrEnum):
    """The resources that have forecasts."""

    CPU = Resource.CPU.value
    MEMORY = Resource.MEMORY.value
    GPU_CORE = DeviceResource.GPU_CORE.value


class ForecastScope(StrEnum):
    """The kinds of objects whose forecasts can be listed."""

    CLUSTER = "cluster"
    NODE = "node"
    WORKLOAD = "workload"


@command(
    app,
    SCANS | ROWS,
    "cotenant get forecast  # cluster totals",
    "cotenant get forecast pay/Deployment/checkout  # half hour by half hour",
    "cotenant get forecast pay/Deployment/checkout --fine  # 5-minute values",
    "cotenant get forecast node/node-07 --resource memory",
    "cotenant get forecast --scope node --resource memory -o csv",
    "cotenant get forecast --scope workload -n feed",
    "cotenant get forecast --resource gpu-core  # what the cluster computes on GPUs",
)
def forecast(
    call: CommandCall,
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE/KIND/NAME",
            help="One workload, or a node as node/NAME.",
            autocompletion=workload_addresses,
        ),
    ] = None,
    scope: Annotated[ForecastScope, typer.Option("--scope", help="Objects to list.")] = ForecastScope.CLUSTER,
    resource: Annotated[
        ForecastResource,
        typer.Option("--resource", "-r", help="cpu, memory, or gpu-core (cluster only, in percent of a GPU)."),
    ] = ForecastResource.CPU,
    fine: Annotated[
        bool, typer.Option("--fine", help="Show quantiles by 5 minutes, not half hours, of one workload.")
    ] = False,
    namespace: NamespaceOption = None,
) -> None:
    """Show the forecast of the next 24 hours: peak, peak windows, quantiles, and the measured error."""
    from cotenant.recommender.model.views import FORECASTS

    if resource is ForecastResource.GPU_CORE and (workload or scope is not ForecastScope.CLUSTER):
        raise UsageError("gpu-core is forecast only for the cluster", fix="cotenant get forecast --resource gpu-core")
    if workload and (namespace or scope is not ForecastScope.CLUSTER):
        raise UsageError("--scope and --namespace do not apply to one workload or node", fix="Leave them out.")
    if fine and not workload:
        raise UsageError(
            "--fine needs the name of one workload", fix="cotenant get forecast NAMESPACE/KIND/NAME --fine"
        )
    if namespace and scope is not ForecastScope.WORKLOAD:
        raise UsageError(f"the forecast of a {scope} has no namespace", fix="Add --scope workload.")
    if workload and call.given["all_clusters"]:
        raise UsageError("a forecast of one object needs a single cluster", fix="Name the cluster: --cluster NAME.")
    stored = call.scans.read_table(FORECASTS)
    of_resource, measured = stored.take(stored.columns["resource"] == resource.value), measured_resource(resource.value)
    if not len(of_resource):
        fix = f"Scan again once {resource} usage was measured: cotenant scan."
        raise NoData(f"the last scan made no forecast of {resource}", fix=fix)
    if workload is None:
        of_scope = of_resource.take(of_resource.columns["scope"] == scope.value)
        rows = chosen_of_scan(call.scans, of_scope, namespace)
        # Peaks in the resource's unit.
        kind, unit = PATH_KINDS[measured], ", % of a GPU" if measured is DeviceResource.GPU_CORE else ""
        columns = (
            replace(c, kind=kind, title=c.title + unit) if c.unit is Unit.OF_RESOURCE else c
            for c in rows.schema.columns
        )
        call.print(Table(replace(rows.schema, columns=tuple(columns)), rows.columns))
        if not len(rows):
            message(f"no {scope} matches")
        return
    row = _row(of_resource, workload)
    call.print(path(row, measured, fine=fine))
    message(f"model {row['model']}: {SENTENCES[Reason(row['reason'])]}")
    if row["relative_wql"] is not None and row["coverage_95"] is not None:
        loss, coverage = row["relative_wql"], row["coverage_95"]
        message(
            f"measured on this series: {loss:.2f} x the error of repeating yesterday, "
            f"p95 covered {percent(coverage)} of half hours"
        )


def _row(table: Table, address: str) -> dict[str, Any]:
    """Return the row of NAMESPACE/KIND/NAME, NAMESPACE/NAME, NAME or node/NAME; NoData suggests similar names."""
    if address and "/" not in address:
        workloads = table.take(table.columns["scope"] == ForecastScope.WORKLOAD.value).columns
        refs = map(WorkloadRef, *(workloads[name].tolist() for name in ("namespace", "kind", "name")))
        address = str(WorkloadRef.find_named(address, refs))
    parts = address.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError(f"{address!r} is not NAMESPACE/KIND/NAME", fix="Write, for example, shop/Deployment/checkout.")
    scope = ForecastScope.NODE if parts[:-1] == [ForecastScope.NODE] else ForecastScope.WORKLOAD
    namespace = "" if scope is ForecastScope.NODE else parts[0]
    in_scope = (table.columns["scope"] == scope.value) & (table.columns["namespace"] == namespace)
    rows = list(table.take(in_scope).rows())
    for row in rows:
        if row["name"] == parts[-1] and parts[1:-1] in ([], [row["kind"]]):
            return row
    addresses = ("/".join((*filter(None, (namespace or scope, r["kind"])), r["name"])) for r in rows)
    near = ask_for_closest(parts[-1], addresses)
    raise NoData(f"no forecast for {address}", fix=near or f"cotenant get forecast --scope {scope} lists forecasts.")


def path(row: dict[str, Any], resource: MeasuredResource, *, fine: bool = False) -> Table:
    """Return a forecast's quantiles, one row per half hour, or per 5 minutes if `fine`; raise NoData if not stored."""
    kind = PATH_KINDS[resource]
    what = (
        "a 5-minute value" if fine else f"the half hour's {'highest value' if resource is Resource.MEMORY else 'mean'}"
    )
    schema = Schema(
        "path",
        (
            Column("time", "Time (UTC)", Kind.TIME, "Start of the 5 minutes." if fine else "Start of the half hour."),
            *(Column(f"q{q}", f"q{q}", kind, f"{q} % quantile of {what}.") for q in QUANTILES),
        ),
        ("time",),
    )
    names = [f"q{q}" for q in QUANTILES]
    paths = [fine_path(row[f"fine_{name}"], row["fine_profile"]).tolist() if fine else row[name] for name in names]
    if fine and row["q50"] and not paths[0]:
        raise NoData("the last run stored no quantiles of 5-minute values", fix="Run `cotenant scan` again.")
    step = len(row["q50"]) * HALF_HOUR_SECONDS // max(1, len(paths[0]))
    return Table.from_rows(
        schema,
        [
            {"time": row["start"] + index * step, **dict(zip(names, levels, strict=True))}
            for index, levels in enumerate(zip(*paths, strict=True))
        ],
    )
