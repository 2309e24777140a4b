"""Settings of changes: where the ledger is, and the guardrails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from cotenant.base.settings.base import Section, SettingSections, setting
from cotenant.base.settings.sections import ManagerSettings


class GuardrailSettings(Section, frozen=True):
    """The checks that a change has to pass; each may be overridden by name, which the ledger records."""

    minimum_days: Annotated[
        float,
        setting(
            "History that a proposed value needs before it may be applied.",
            when="changes should need more history",
            unit="days",
            ge=0,
            le=90,
        ),
    ] = 7.0
    minimum_coverage: float = 0.9
    """Least share of the pods' time with samples. With fewer than nine samples in ten a peak may have been missed."""
    most_cpu_cut: Annotated[
        float,
        setting("Share of a CPU request that a step may cut.", when="steps should be smaller or larger", ge=0, le=1),
    ] = 0.3
    most_memory_cut: Annotated[
        float,
        setting("Share of a memory request that a step may cut.", when="steps should be smaller or larger", ge=0, le=1),
    ] = 0.2
    least_change: Annotated[
        float,
        setting(
            "Share by which a change must alter at least one request or limit to be worth a restart.",
            when="smaller changes are worth a restart, or only larger ones",
            ge=0,
            le=1,
        ),
    ] = 0.1
    cool_down_hours: Annotated[
        float,
        setting(
            "Shortest time between two changes of a workload if the second one lowers a value.",
            when="workloads should stay unchanged for longer",
            unit="hours",
            ge=0,
            le=720,
        ),
    ] = 24.0
    most_workloads: Annotated[
        int,
        setting("Most workloads changed at once.", when="more or fewer should change at once", ge=1, le=10_000),
    ] = 20
    most_requests_share: Annotated[
        float,
        setting(
            "Largest share of the cluster's CPU requests that may change at once.",
            when="more or fewer requests should change at once",
            ge=0,
            le=1,
        ),
    ] = 0.1
    protected_namespaces: Annotated[
        list[str], setting("Namespaces in which nothing is changed.", when="further namespaces must not be touched")
    ] = msgspec.field(default_factory=lambda: ["kube-system", "cotenant", "koordinator-system"])
    managed_by: Annotated[
        list[str],
        setting(
            "Label or annotation keys by which a workload belongs to a GitOps tool, which would undo the change.",
            when="another GitOps tool marks its workloads",
        ),
    ] = msgspec.field(
        default_factory=lambda: [
            "argocd.argoproj.io/instance",
            "argocd.argoproj.io/tracking-id",
            "kustomize.toolkit.fluxcd.io/name",
            "helm.toolkit.fluxcd.io/name",
        ]
    )


class ActionSettings(Section, frozen=True):
    """Settings of accepting, verifying and rolling back changes."""

    ledger: Annotated[
        str,
        setting(
            "File of the ledger, or s3://bucket/folder for several replicas (docs/storage.md); empty: ledger.db in "
            "$XDG_STATE_HOME/cotenant, or in ~/.local/state/cotenant.",
            when="several replicas write, or the file belongs on a volume",
        ),
    ] = ""
    anchor: Annotated[
        bool,
        setting(
            "Store the ledger's signed head in the cluster too, so that removed or rewritten rows are detected.",
            when="cotenant must not write to the cluster",
        ),
    ] = True
    soak_minutes: Annotated[
        float,
        setting(
            "Time after a change before its outcome is verified.",
            when="harm shows later, or sooner, in your workloads",
            unit="minutes",
            ge=0,
            le=10_080,
        ),
    ] = 30.0
    confirm_hours: Annotated[
        float,
        setting(
            "How long a change waits for its second person, if people log in.",
            when="the second person works in another shift",
            unit="hours",
            gt=0,
            le=720,
        ),
    ] = 24.0
    auto_rollback: Annotated[
        bool,
        setting(
            "The watcher (`cotenant recs watch`) rolls back harmful changes automatically.",
            when="harmful changes should be rolled back automatically",
        ),
    ] = msgspec.field(default=False, name="auto_revert")
    windows: Annotated[
        list[str],
        setting(
            "When changes may be made, written as `mon-fri 20:00-06:00 Europe/Berlin`, `sat+sun 00:00-24:00 UTC` or "
            "`daily 01:00-05:00 UTC`; none: at any time.",
            when="changes may be made at certain hours only",
        ),
    ] = msgspec.field(default_factory=list)
    windows_spare_memory: Annotated[
        bool,
        setting(
            "A change that only raises memory does not wait for a window.",
            when="raised memory must wait for a window too",
        ),
    ] = True
    resize_seconds: float = 30.0
    """Seconds to wait for the nodes' answers to an in-place resize. The kubelet answers within its sync period; after
    this time the change is reported as pending, not undone.
    """
    watch: Annotated[
        bool,
        setting(
            "A dashboard with `--act` also continues canaries and verifies changes, automatically.",
            when="another process verifies changes",
        ),
    ] = True
    watch_seconds: float = 60.0
    """Seconds between two runs of the watcher. Soak times are many times as long."""
    latency_query: Annotated[
        str,
        setting(
            "PromQL of a workload's p99 latency in seconds, one series, that is compared before and after a change; "
            "$namespace, $workload, $pods (a regular expression) and $window are filled in. The annotation "
            "cotenant.dev/latency-query of a workload takes precedence. Empty: latency is not compared.",
            when="you measure latency, and changes must not raise it",
        ),
    ] = ""
    most_latency_factor: Annotated[
        float,
        setting(
            "Highest latency after a change, as a multiple of the latency before; more counts as a regression.",
            when="your latency varies more, or must vary less",
            ge=1,
            le=100,
        ),
    ] = 1.2
    git_repository: Annotated[
        str,
        setting(
            "Folder of a Git repository on this machine in which pages and REST make commits; empty: no commits.",
            when="manifests are kept in Git, and people ask for changes in the dashboard",
        ),
    ] = ""
    guardrails: Annotated[GuardrailSettings, setting("Guardrails that a change has to pass.")] = GuardrailSettings()


def anchor_namespace(settings: SettingSections) -> str:
    """Return the namespace where the ledger's head is stored; "" if the setting turns that off."""
    return settings.section(ManagerSettings).namespace if settings.section(ActionSettings).anchor else ""


def ledger_location(settings: ActionSettings, environ: Mapping[str, str]) -> Path | str:
    """Return the ledger's location: the setting, else a file in the XDG base directory for state.

    A bucket's address stays a string. "~/" in the setting is the user's home, as in `store.url`.
    """
    home = Path(environ.get("HOME") or Path.home())
    if "://" in settings.ledger:
        return settings.ledger
    if settings.ledger:
        return home / settings.ledger.removeprefix("~/") if settings.ledger.startswith("~/") else Path(settings.ledger)
    base = Path(environ.get("XDG_STATE_HOME") or "")
    folder = base if base.is_absolute() else home / ".local" / "state"
    return folder / "cotenant" / "ledger.db"
