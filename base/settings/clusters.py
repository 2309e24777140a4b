"""Several clusters in one settings file. Pure.

The settings below `clusters.NAME` replace the file's common settings for that cluster:

    profiler: {prometheus: {url: https://thanos.example}}
    clusters:
      prod-1: {profiler: {prometheus: {labels: {cluster: prod-1}}}, kube: {context: prod-1}}
      prod-2: {profiler: {prometheus: {labels: {cluster: prod-2}}}, kube: {context: prod-2}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cotenant.base.errors import SettingsError, UsageError
from cotenant.base.identity import FOLDER_NAME_FIX, fits_folder
from cotenant.base.settings.document import Tree

CLUSTERS: Final = "clusters"
"""Key of a settings file."""
SHARED: Final = ("store", "dashboard", "access", "telemetry")
"""Sections that hold for all clusters alike: one store, one dashboard and its people, one log."""


def split_clusters(tree: Tree) -> tuple[Tree, Mapping[str, Tree]]:
    """Split a settings file into its common settings and those of each cluster, by name in the order of the file.

    Raise SettingsError, with the line, if `clusters` is not a mapping, or a cluster sets a section common to all
    clusters.
    """
    declared = tree.children.get(CLUSTERS)
    others = Tree(tree.file, {key: value for key, value in tree.children.items() if key != CLUSTERS}, tree.lines)
    if declared is None:
        return others, {}
    if not isinstance(declared, Tree):
        raise SettingsError(
            f"{tree.file} line {tree.lines[CLUSTERS]}: clusters is not a mapping of names to settings",
            fix="Write `clusters:` and, indented, a line `NAME:` for each cluster.",
        )
    return others, {name: _cluster_settings(name, declared) for name in declared.children}


def _cluster_settings(name: str, declared: Tree) -> Tree:
    own = declared.children[name]
    if not fits_folder(name):
        raise SettingsError(
            f"{declared.file} line {declared.lines[name]}: the cluster name {name!r} is not valid as a folder's name",
            fix=FOLDER_NAME_FIX,
        )
    if own is None:
        return Tree(declared.file, {}, {})
    if not isinstance(own, Tree):
        raise SettingsError(
            f"{declared.file} line {declared.lines[name]}: clusters.{name} is not a mapping of sections",
            fix="Write `profiler:` or `kube:` below the cluster's name, as at the top of the file.",
        )
    for section in own.children:
        if section in (*SHARED, CLUSTERS):
            raise SettingsError(
                f"{own.file} line {own.lines[section]}: clusters.{name}.{section} cannot be set for one cluster",
                fix=f"Move `{section}` to the top of the file, where it applies to all clusters.",
            )
    return own


def select_cluster(name: str | None, declared: Sequence[str], *, or_all: bool = False) -> str:
    """Return cluster `name`, or the only declared one if `name` is None; raise UsageError if there is no such cluster.

    With `or_all`, the error also suggests --all-clusters, which the command then must have.
    """
    if name in declared:
        return str(name)
    names = ", ".join(declared)
    if name is not None or not declared:
        raise UsageError(
            "the settings declare no cluster" + (f" {name!r}" if name is not None else ""),
            fix=f"Name one of {names}, or declare {name} below `clusters:`."
            if names
            else "Declare the cluster below `clusters:`.",
        )
    if len(declared) > 1:
        raise UsageError(
            f"the settings declare several clusters: {names}",
            fix=f"Name one: --cluster NAME{', or all: --all-clusters' if or_all else ''}.",
        )
    return declared[0]


def ledger_of(name: str, place: Path | str) -> str:
    """Return the path of one cluster's ledger: the common path with its name, "ledger.db" -> "ledger-prod-1.db".

    Each cluster has its own ledger, because a change of shop/Deployment/web in one cluster did not happen in another.
    """
    folder, slash, file = str(place).rpartition("/")
    stem, dot, suffix = file.partition(".")
    return f"{folder}{slash}{stem}-{name}{dot}{suffix}"
