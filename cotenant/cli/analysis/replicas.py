"""`cotenant get replicas`: the floor that a forecast gives an autoscaler, so that pods are there before the peak."""

from __future__ import annotations

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table, print_totals
from cotenant.base.commands.results import (
    AllClustersOption,
    ClusterOption,
    FilterOption,
    NamespaceOption,
    StoreOption,
    chosen_of_scan,
    load_for_reading,
    open_scans,
)
from cotenant.base.commands.session import examples, new_app

app = new_app()


@app.command(
    epilog=examples(
        "cotenant get replicas",
        "cotenant get replicas -n shop -o wide",
        "cotenant get replicas --filter workload=checkout -o json  # with the minimum of each half hour",
    )
)
def replicas(
    ctx: typer.Context,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show how many replicas workloads with an autoscaler, or with many replicas, will need in the next 24 hours.

    An autoscaler answers to what it measures, late by a pod's start. As its minReplicas the floor is there in time; a
    ReservationPlan with realisation ReplicaFloor or an AutopilotPolicy with replicaFloorFactor sets it and takes it
    back.
    """
    from cotenant.recommender.model.views import REPLICAS
    from cotenant.recommender.replicas import replica_totals

    scans = open_scans(load_for_reading(ctx, store, all_clusters), cluster, all_clusters)
    table = scans.read_table(REPLICAS)
    rows = chosen_of_scan(scans, table, namespace, query)
    print_table(rows, output, headers=not no_headers)
    if not len(rows):
        what = "an autoscaler on CPU or memory, or six replicas and more"
        message(f"none of {len(table)} workloads with {what} matches" if len(table) else f"no workload has {what}")
        return
    for row in rows.rows():
        if row["most"] and row["needed"] and row["needed"] > row["most"]:
            name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
            message(f"{name}: maxReplicas {row['most']} is below the {row['needed']} that the forecast needs")
    print_totals(replica_totals(rows), output)
