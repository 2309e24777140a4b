"""`cotenant get forecast`: the next 24 hours of the cluster, its nodes or a workload."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer

from cotenant.apps.cli.analysis.results import ClusterOption, NamespaceOption, StoreOption, open_store
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.completion import workload_addresses
from cotenant.apps.cli.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.core.model.errors import NoData, UsageError
from cotenant.core.model.reasons import SENTENCES, Reason
from cotenant.core.model.resource import DeviceResource, MeasuredResource, Resource, measured_resource
from cotenant.core.model.table import Column, Kind, Schema, Table
from cotenant.core.model.usage.forecast import fine_path

if TYPE_CHECKING:
    from cotenant.core.settings.root import Settings

app = new_app()

HALF_HOUR_SECONDS: Final = 1800
QUANTILES: Final = (10, 50, 90, 95)
PATH_KINDS: Final[dict[MeasuredResource, Kind]] = {
    Resource.CPU: Kind.MILLICORES,
    Resource.MEMORY: Kind.BYTES,
    DeviceResource.GPU_CORE: Kind.INTEGER,
}


class ForecastResource(StrEnum):
    """What there are forecasts of."""

    CPU = Resource.CPU.value
    MEMORY = Resource.MEMORY.value
    GPU_CORE = DeviceResource.GPU_CORE.value


class ForecastScope(StrEnum):
    """Whose forecasts to list."""

    CLUSTER = "cluster"
    NODE = "node"
    WORKLOAD = "workload"


@app.command(
    epilog=examples(
        "cotenant get forecast  # cluster totals",
        "cotenant get forecast pay/Deployment/checkout  # half hour by half hour",
        "cotenant get forecast pay/Deployment/checkout --fine  # 5-minute values",
        "cotenant get forecast --scope node --resource memory -o csv",
        "cotenant get forecast --scope workload -n feed",
        "cotenant get forecast --resource gpu-core  # what the cluster computes on GPUs",
    )
)
def forecast(
    ctx: typer.Context,
    workload: Annotated[
        str | None,
        typer.Argument(metavar="[NAMESPACE/KIND/NAME]", help="One workload's path.", autocompletion=workload_addresses),
    ] = None,
    scope: Annotated[ForecastScope, typer.Option("--scope", help="Whose forecasts to list.")] = ForecastScope.CLUSTER,
    resource: Annotated[
        ForecastResource,
        typer.Option("--resource", "-r", help="cpu, memory, or of the cluster gpu-core: percent of one GPU."),
    ] = ForecastResource.CPU,
    fine: Annotated[
        bool, typer.Option("--fine", help="Quantiles of single 5-minute values of the workload, not of half hours.")
    ] = False,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show the forecast of the next 24 hours: peak, windows, quantiles, and how wrong it was measured to be."""
    stored = _stored(session_of(ctx).load({"store.url": store}).settings, cluster)
    of_resource, measured = stored.take(stored.columns["resource"] == resource.value), measured_resource(resource.value)
    if workload is None:
        mask = of_resource.columns["scope"] == scope.value
        if namespace:
            mask &= np.isin(of_resource.columns["namespace"].astype(str), namespace)
        print_table(_in_unit(of_resource.take(mask), measured), output, headers=not no_headers)
        return
    row = _row(of_resource, workload)
    print_table(path(row, measured, fine=fine), output, headers=not no_headers)
    _say(row)


def _stored(settings: Settings, cluster: str | None) -> Table:
    from cotenant.core.model.views import FORECASTS

    return open_store(settings, cluster).read_table(FORECASTS)


def _in_unit(table: Table, resource: MeasuredResource) -> Table:
    """The same rows, peaks shown in the resource's unit."""
    kind = PATH_KINDS[resource]
    columns = (replace(c, kind=kind) if c.kind is Kind.INTEGER else c for c in table.schema.columns)
    return Table(replace(table.schema, columns=tuple(columns)), table.columns)


def _row(table: Table, workload: str) -> dict[str, Any]:
    parts = workload.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError(f"{workload!r} is not NAMESPACE/KIND/NAME", fix="Write it as in shop/Deployment/checkout.")
    for row in table.rows():
        if (row["namespace"], row["name"]) == (parts[0], parts[-1]) and parts[1:-1] in ([], [row["kind"]]):
            return row
    raise NoData(f"no forecast for {workload}", fix="cotenant get forecast --scope workload lists all of them.")


def path(row: dict[str, Any], resource: MeasuredResource, *, fine: bool = False) -> Table:
    """One row per half hour, or per 5-minute value; NoData where the results have no such quantiles."""
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
            {"time": row["start"] + place * step, **dict(zip(names, levels, strict=True))}
            for place, levels in enumerate(zip(*paths, strict=True))
        ],
    )


def _say(row: dict[str, Any]) -> None:
    """What the numbers rest on, for people."""
    message(f"model {row['model']}: {SENTENCES[Reason(row['reason'])]}")
    if row["relative_wql"] is not None and row["coverage_95"] is not None:
        loss, coverage = row["relative_wql"], row["coverage_95"]
        message(
            f"measured on this series: loss {loss:.2f} x the seasonal naive's, q95 covered {coverage:.0%} of half hours"
        )
