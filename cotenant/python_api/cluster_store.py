"""EDGE: one cluster's stored history and results as DataFrames, and the functions that open them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from cotenant.base.errors import NoData, UsageError
from cotenant.base.process.clock import SystemClock
from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import folder_url, store_url
from cotenant.base.store import Store
from cotenant.base.store.store import open_cluster_store, stored_clusters
from cotenant.base.text import ask_for_closest
from cotenant.pipeline import day_margins, known_siblings, stored_history
from cotenant.pipeline import tables as result_tables
from cotenant.pipeline.browse import LADDER
from cotenant.pipeline.containers import Before, assess
from cotenant.python_api.arguments import matching_rows, require_text, resource_of, settings_of, with_strategy
from cotenant.python_api.stored_usage import PER, SUMMED, StoredUsage
from cotenant.python_api.tables import as_frame
from cotenant.recommender.model import views
from cotenant.recommender.stored_recommendations import Explanations
from cotenant.scheduler_ext.cluster_size.model import RequestLevel
from cotenant.scheduler_ext.cluster_size.report import FIX, NEVER, REPORT, SizeReport, level_document, tables_of
from cotenant.settings import Settings

LISTS: Final = {"hour_of_week": "heat", "histogram_bounds": "bounds", "histogram_weights": "weights"}
"""Column of a DataFrame -> column of the stored table."""


def open_store(
    place: str | Path | None = None, cluster: str | None = None, *, settings: str | Path | None = None
) -> ClusterStore:
    """Open what `cotenant scan`, `cotenant demo` or the manager stored.

    `place` is a folder, or an fsspec URL such as "s3://bucket/cotenant"; None means `store.url` of the settings, else
    the user's data folder. `cluster` is required if the store has several. `settings` is a settings file, also with S3
    endpoints and prices; None means $COTENANT_CONFIG, else ~/.config/cotenant/settings.yaml.

    Raises NoData if nothing is stored there or no cluster has that name, UsageError if a cluster has to be named
    (`open_clusters` opens all), StoreError if the store cannot be read.
    """
    own = settings_of(settings, {"store.url": place_url(place)} if place is not None else None, cluster)
    return ClusterStore(open_cluster_store(store_url(own.store, os.environ), cluster), own)


def open_clusters(place: str | Path | None = None, *, settings: str | Path | None = None) -> Clusters:
    """Open all clusters of a store, to compare them; `place` and `settings` as in `open_store`."""
    own = settings_of(settings, {"store.url": place_url(place)} if place is not None else None)
    names = stored_clusters(store_url(own.store, os.environ))
    return Clusters({name: open_store(place, name, settings=settings) for name in names})


class ClusterStore:
    """History and results of one cluster. Every method reads the store and returns a new DataFrame.

    `where` is a filter as on pages, in REST and on the command line (docs/filters.md), such as
    "namespace=shop&severity=critical&sort=-cpu_delta_total". Results are those of the last scan; NoData says what to
    run if there are none.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        """Store the arguments; nothing is read yet. Use `open_store` instead."""
        self._store, self._settings = store, settings

    def __repr__(self) -> str:
        return f"<cotenant.ClusterStore of cluster {self.cluster}>"

    @property
    def cluster(self) -> str:
        """The name of the cluster whose results are stored."""
        return self._store.cluster

    def workloads(self, where: str = "") -> pd.DataFrame:
        """Return one row per workload: class, requests and usage of all its pods, pattern, next peak, OOM kills."""
        return as_frame(matching_rows(self._store.relation(views.WORKLOADS), where))

    def recommendations(self, where: str = "") -> pd.DataFrame:
        """Return one row per container: requests and limits of one pod, now and proposed, reasons, savings, back-test.

        The rows and numbers are those of `cotenant recs list --all -o json`, ordered by name, with snoozed and
        dismissed recommendations. With `where` "sort=-severity&sort=-saving_month" they have that command's order.
        """
        return as_frame(matching_rows(self._store.relation(views.RECOMMENDATIONS), where))

    def recommend(self, *, strategy: str | None = None, where: str = "") -> pd.DataFrame:
        """Run a strategy on the stored history; return the columns of `recommendations`. Nothing is stored.

        `strategy` is "cotenant", "krr-simple", "krr-simple-limit", "vpa" or a plug-in; None means that of the settings.
        Autoscalers, quotas, classes and OOM kills count as in a scan; percentiles are of the stored 5-minute values.
        """
        own = with_strategy(self._settings, strategy)
        margins = day_margins.read(self._store, own, SystemClock().now_seconds())
        history = stored_history.load(self._store, own)
        before = Before(margins, known_siblings.read(self._store, own, history.inventory))
        recommended = assess(history, own, before=before).recommendations
        table = result_tables.recommendations(recommended, own.actions.guardrails, history.inventory.workloads)
        return as_frame(matching_rows(table, where))

    def explanations(self, workload: str, *, resource: str = "cpu") -> pd.DataFrame:
        """Return one row per container and field that explains a workload's recommendations.

        Columns besides the names: now, amount (of one pod, with unit; missing if not set or not proposed), action,
        reason and its sentence, formula, and `inputs`, a dict of the formula's inputs. `workload` is such as
        "shop/Deployment/cart" or "shop/cart". Raises NoData, with a similar name, if there is no such workload.
        """
        require_text("workload", workload, "Write namespace/Kind/name; .workloads() lists all names.")
        of_resource = resource_of(resource)
        recommended = Explanations(self._store).of_workload(workload)
        values = [(r.container, v) for r in recommended for v in r.values if v.resource is of_resource]
        texts = {
            "namespace": [container.workload.namespace for container, _ in values],
            "kind": [container.workload.kind for container, _ in values],
            "workload": [container.workload.name for container, _ in values],
            "container": [container.container for container, _ in values],
            "resource": [v.resource.value for _, v in values],
            "field": [v.field.value for _, v in values],
        }
        amounts = {"now": [v.now for _, v in values], "amount": [v.amount for _, v in values]}
        why = {
            "action": [v.action.value for _, v in values],
            "reason": [v.reason.value for _, v in values],
            "sentence": [SENTENCES[v.reason] for _, v in values],
            "formula": [v.formula for _, v in values],
        }
        return pd.DataFrame(
            {
                **{name: pd.Series(cells, dtype="str") for name, cells in texts.items()},
                **{f"{name}_{of_resource.unit}": pd.array(cells, dtype="Int64") for name, cells in amounts.items()},
                **{name: pd.Series(cells, dtype="str") for name, cells in why.items()},
                "inputs": pd.Series([dict(v.inputs) for _, v in values], dtype="object"),
            }
        )

    def nodes(self, where: str = "") -> pd.DataFrame:
        """Return one row per node: allocatable, requests, usage, capacity for batch and mid (`cotenant get nodes`)."""
        return as_frame(matching_rows(self._store.relation(views.NODES), where))

    def reclaimable(self, where: str = "", *, resource: str = "cpu") -> pd.DataFrame:
        """Return one row per node and band (batch, mid): the lendable amount of a resource, and its formula's terms."""
        return as_frame(matching_rows(self._store.relation(views.RECLAIMABLE), where), resource_of(resource))

    def findings(self, where: str = "") -> pd.DataFrame:
        """Return the findings that are not recommendations, the most severe first (`cotenant get findings`)."""
        return as_frame(matching_rows(self._store.relation(views.FINDINGS), where))

    def forecasts(self, where: str = "", *, resource: str = "cpu") -> pd.DataFrame:
        """Return one row per cluster, node and workload: peak of the next 24 hours, windows, model, error, quantiles.

        `where` is such as "scope=workload" or "workload=checkout"; `forecast_paths` returns the quantiles by half hour.
        """
        return as_frame(matching_rows(self._store.relation(views.FORECASTS), where), resource_of(resource))

    def portraits(self, where: str = "", *, resource: str = "cpu") -> pd.DataFrame:
        """Return one row per workload: the distribution of its usage, and its weekly profile.

        Columns: pattern; p50, p90, p95, p98, p99 and maximum of the whole workload with unit; `hour_of_week`, 168 means
        with unit, Monday 0 h UTC first; `histogram_bounds` (lower, with unit) and `histogram_weights` (sum to 1).
        """
        pinned, of_resource = self._store.pinned(), resource_of(resource)
        workloads = matching_rows(pinned.relation(views.WORKLOADS), where)
        keys = [(row["namespace"], row["kind"], row["workload"]) for row in workloads.rows()]
        rows: dict[tuple[str, ...], Mapping[str, Any]] = {}
        for namespace in dict.fromkeys(key[0] for key in keys):
            stored = pinned.read_table(views.portraits_of(namespace), {"resource": of_resource.value})
            rows |= {(r["namespace"], r["kind"], r["workload"]): r for r in stored.rows()}
        names = [*(f"p{100 * level:g}" for level in LADDER), "maximum"]
        no_ladder = [None] * len(names)
        ladder = np.array([rows[key]["ladder"] if key in rows else no_ladder for key in keys], dtype=np.float64)
        frame = as_frame(workloads)[["namespace", "kind", "workload", "pattern"]].copy()
        for index, name in enumerate(names):
            frame[f"{name}_{of_resource.unit}"] = ladder.reshape(len(keys), len(names))[:, index]
        for name, source in LISTS.items():
            cells = [np.array(rows[key][source] if key in rows else (), dtype=np.float64) for key in keys]
            column = name if source == "weights" else f"{name}_{of_resource.unit}"
            frame[column] = pd.Series(cells, dtype="object")
        return frame

    def cluster_size(self, *, requests: str = "ready", rows: str = "nodes") -> pd.DataFrame:
        """Return one row per node: whether it could be removed, and what prevents that.

        `requests` selects the pods' requests: present ("now"), after ready changes ("ready"), or "all-steps". `rows`
        selects the table: "moves" has one row per pod that would move, "steps" the dated steps, "obstacles" what keeps
        autoscalers from acting, "mix" machine types, "bills" the costs before and after. `attrs` has the totals:
        `sentence`, `summary`, `lower_bound_nodes`. Raises NoData if `cotenant size` has not run or has no answer.
        """
        report = self._store.read_document(REPORT, SizeReport)
        if report is None:
            raise NoData(NEVER, fix=FIX)
        levels = [level.option for level in RequestLevel]
        if requests not in levels:
            raise UsageError(f"requests={requests!r} is not known", fix=f"Write one of {', '.join(levels)}.")
        level = RequestLevel.of(requests)
        tables = tables_of(report, report.at(level))
        if not tables:
            raise NoData(f"there is no result for requests={level.option!r}: {report.at(level).reason}", fix=FIX)
        if rows not in tables:
            raise UsageError(f"rows={rows!r} is not a table", fix=f"Write one of {', '.join(tables)}.")
        frame = as_frame(tables[rows])
        document = level_document(report, level)
        frame.attrs |= {key: document[key] for key in ("sentence", "summary", "lower_bound_nodes")}
        return frame

    def usage(
        self,
        workload: str | None = None,
        *,
        resource: str | None = None,
        per: str = "workload",
        where: str = "",
        since: str | float | datetime | None = None,
        until: str | float | datetime | None = None,
    ) -> pd.DataFrame:
        """Return usage in long form, one row per series and 5 minutes, as input of `forecast` and `recommend`.

        `workload` is such as "shop/checkout"; `where` filters workloads by ns, kind, workload, qos and priority.
        `resource` is "cpu", "memory", or None for both. With `per="workload"` the pods are summed; with
        `per="container"` there are columns pod and container, throttled time, and requests and limits of one pod.
        `since` and `until` are times (UTC unless they have a zone); without them the last `profiler.window_days` are
        used, as in a scan.

        Columns: time (start of the slot, UTC), names as categories, `cpu_usage_millicores` (mean of the slot),
        `memory_working_set_bytes` (highest of the slot; NaN if not measured), and the present requests: of all running
        pods of a workload, or of one container. Slots without any sample have no row. Raises NoData if nothing matches;
        warns if the last scan could not read everything.
        """
        if per not in PER:
            raise UsageError(f"per={per!r} is none", fix="Write 'workload' or 'container'.")
        resources = tuple(Resource) if resource is None else (resource_of(resource),)
        history = StoredUsage.of(self._store, self._settings, since, until)
        chosen = history.chosen(workload, where)
        return history.by_workload(chosen, resources) if per == "workload" else history.by_container(chosen, resources)

    def node_usage(
        self,
        *,
        resource: str = "cpu",
        of: str = "all",
        since: str | float | datetime | None = None,
        until: str | float | datetime | None = None,
    ) -> pd.DataFrame:
        """Return usage of nodes in long form, one row per node and 5 minutes, as input of `reclaim_decisions`.

        Columns: time, node, `cpu_usage_millicores` or `memory_working_set_bytes`, and `cpu_allocatable_millicores` or
        `memory_allocatable_bytes`. `of` is "all" for the usage that the node reports, or "prod" for the sum of its pods
        of class prod or without class, whose peaks decide what is lent. `since` and `until` are as for `usage`; since=0
        returns all that is stored.
        """
        if of not in SUMMED:
            raise UsageError(f"of={of!r} is none", fix="Write 'all' or 'prod'.")
        history = StoredUsage.of(self._store, self._settings, since, until)
        return history.by_node(resource_of(resource), only_prod=of == "prod")


class UnknownCluster(NoData, KeyError):
    """Raised if the store has no cluster of a requested name; the message lists its clusters. Also a KeyError."""

    def __str__(self) -> str:
        return self.message


class Clusters(Mapping[str, ClusterStore]):
    """Clusters of one store by name: `clusters["prod-1"].usage()` reads one, `frame` queries all of them.

    An unknown name raises UnknownCluster, which is NoData and a KeyError.
    """

    def __init__(self, stores: Mapping[str, ClusterStore]) -> None:
        """Store the arguments. Use `open_clusters` instead."""
        self._stores = dict(stores)

    def __repr__(self) -> str:
        return f"<cotenant.Clusters {', '.join(self)}>"

    def __getitem__(self, name: str) -> ClusterStore:
        if name in self._stores:
            return self._stores[name]
        names = ", ".join(self) or "none"
        fix = ask_for_closest(str(name), self) or "Use one of the stored names; cotenant scan stores other clusters."
        raise UnknownCluster(f"the store holds no cluster {name!r}; it holds {names}", fix=fix)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def frame(self, question: Callable[[ClusterStore], pd.DataFrame]) -> pd.DataFrame:
        """Return what `question` returns for each cluster as one DataFrame, with a first column `cluster`.

        `question` is a function such as `lambda one: one.recommendations("severity=critical")`. A cluster without
        results is left out with a warning; raises NoData if no cluster has results.
        """
        frames: list[pd.DataFrame] = []
        missing: list[NoData] = []
        for name, store in self._stores.items():
            try:
                frame = question(store)
            except NoData as error:
                missing.append(error)
                warnings.warn(f"cluster {name} is left out of the table: {error.message}", stacklevel=2)
                continue
            frame.insert(0, "cluster", pd.Series([name] * len(frame), index=frame.index, dtype="str"))
            frames.append(frame)
        if not frames and missing:
            raise missing[0]
        return pd.concat(frames, ignore_index=True)


def place_url(place: str | Path) -> str:
    """Return the fsspec URL of a folder; a URL is returned unchanged."""
    text = str(place)
    return text if "://" in text else folder_url(Path(text).expanduser())
