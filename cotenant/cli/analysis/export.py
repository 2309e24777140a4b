"""EDGE: writes the recommendations of a scan: as rows, patches, files for other tools, or a report.

Rows and a report go to stdout; files go to stdout one after the other, or to a folder. Changes that cannot be written
as a patch are listed on stderr, with the reason.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotenant.base import measures
from cotenant.base.commands.files import save, save_all
from cotenant.base.commands.output import Format, message, print_table
from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.base.table import Schema, Table
    from cotenant.changes.decide.gitops.manifests import File
    from cotenant.recommender.model.recommendation import Recommendation
    from cotenant.settings import Settings

REPORT_NAME: Final = "report.html"
_NAMED: Final = 3
"""Refused containers named in a message; more are counted."""


class ScanFormat(StrEnum):
    """The output format of recommendations; `patch` prints kubectl patch lines."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    PATCH = "patch"
    KUSTOMIZE = "kustomize"
    HELM = "helm"
    SSA = "ssa"
    HTML = "html"

    @property
    def is_files(self) -> bool:
        """True if the format consists of files that may be written to a folder."""
        return self in (ScanFormat.KUSTOMIZE, ScanFormat.HELM, ScanFormat.SSA, ScanFormat.HTML)


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of recommendations that a scan shows, with the store and the settings that they come from."""

    store: Store
    settings: Settings
    rows: Table

    def recommendations(self, *, whole_workloads: bool = False) -> list[Recommendation]:
        """Return the rows' recommendations in order; with `whole_workloads` also of the workloads' other containers."""
        refs = [
            ContainerRef(WorkloadRef(row["namespace"], row["kind"], row["workload"]), row["container"])
            for row in self.rows.rows()
        ]
        namespaces = {ref.workload.namespace for ref in refs}
        from cotenant.recommender.stored_recommendations import Explanations

        explanations = Explanations(self.store)
        by_ref = {r.container: r for n in sorted(namespaces) for r in explanations.of_namespace(n)}
        if not whole_workloads:
            return [by_ref[ref] for ref in refs if ref in by_ref]
        workloads = {ref.workload for ref in refs}
        return [r for ref, r in by_ref.items() if ref.workload in workloads]

    def table(self, schema: Schema) -> Table | None:
        """Return another stored table of the same run; None if the run stored none."""
        try:
            return self.store.read_table(schema)
        except NoData:
            return None


def check(output: ScanFormat, folder: Path | None) -> None:
    """Raise UsageError if a folder is given for a format that writes no files."""
    if folder is not None and not output.is_files:
        files = ", ".join(f for f in ScanFormat if f.is_files)
        raise UsageError(f"--output-dir needs a file format, not -o {output}", fix=f"Use -o {files}, or `> FILE`.")


def write(results: Results, output: ScanFormat, folder: Path | None, *, headers: bool) -> None:
    """Write the rows of recommendations to stdout, or to `folder`, in the chosen format."""
    if output is ScanFormat.PATCH:
        write_patches(results.recommendations())
    elif output is ScanFormat.HTML:
        from cotenant.cli.report.scan_report import ReportContents, page
        from cotenant.recommender.model.views import FINDINGS, WORKLOADS, Overview

        quality = results.store.read_quality()
        contents = ReportContents(
            overview=results.store.read_document("overview", Overview),
            rows=results.rows,
            recommendations={r.container: r for r in results.recommendations()},
            workloads=results.table(WORKLOADS),
            findings=results.table(FINDINGS),
            quality=quality[-1] if quality else None,
            currency=results.settings.recommender.prices.currency,
        )
        text = page(contents)
        if folder is None:
            sys.stdout.write(text)
        else:
            save(folder, REPORT_NAME, text)
            message(f"written: {folder / REPORT_NAME}")
    elif output is ScanFormat.KUSTOMIZE:
        write_components(results.recommendations(), folder)
    elif output.is_files:
        from cotenant.changes.decide.gitops.manifests import helm, server_side_apply

        recommendations = results.recommendations()
        _print_refused_changes(recommendations, applied=output is not ScanFormat.HELM)
        if output is ScanFormat.HELM:
            manifests = list(helm(recommendations, results.settings.recommender.patches))
        else:
            chosen = {r.container for r in recommendations}
            manifests = list(server_side_apply(results.recommendations(whole_workloads=True), chosen))
        _files(manifests, folder)
    else:
        print_table(results.rows, Format(output.value), headers=headers)


def write_patches(recommendations: list[Recommendation]) -> None:
    """Print one `kubectl patch` line per workload."""
    from cotenant.changes.decide.patches import by_workload, kubectl_command

    _print_refused_changes(recommendations)
    lines = (line for own in by_workload(recommendations).values() if (line := kubectl_command(*own)))
    sys.stdout.writelines(f"{line}\n" for line in lines)


def write_components(recommendations: list[Recommendation], folder: Path | None) -> None:
    """Write the recommendations as Kustomize components to stdout or to a folder."""
    from cotenant.changes.decide.gitops.manifests import kustomize

    _print_refused_changes(recommendations)
    _files(list(kustomize(recommendations)), folder)


def _files(files: list[File], folder: Path | None) -> None:
    from cotenant.changes.decide.gitops.manifests import as_yaml

    if folder is None:
        sys.stdout.write("".join(f"---\n# {file.path}\n{as_yaml(file)}" for file in files))
        return
    save_all(folder, {file.path: as_yaml(file) for file in files})


def _print_refused_changes(recommendations: Iterable[Recommendation], *, applied: bool = False) -> None:
    """Print to stderr which changes cannot be written, and why; `applied`: by server-side apply."""
    from cotenant.changes.decide.patches import applied_refusal, file_refusal, resources

    refused: dict[str, list[str]] = defaultdict(list)
    refusal_of = applied_refusal if applied else file_refusal
    for recommendation in recommendations:
        if resources(recommendation) and (why := refusal_of(recommendation)):
            refused[why].append(str(recommendation.container))
    for why, names in refused.items():
        more = f" and {measures.left_out_count(len(names), _NAMED)} more" if len(names) > _NAMED else ""
        message(f"note: no patch for {', '.join(names[:_NAMED])}{more}: {why}")
