"""Options that the commands of `cotenant recs` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cotenant.base.commands.session import workload_addresses
from cotenant.changes.model.service import BundleForm, Method

WORKLOADS: Any = typer.Argument(
    metavar="NAMESPACE/KIND/NAME...", help="The kind may be left out.", autocompletion=workload_addresses
)
Workloads = Annotated[list[str], WORKLOADS]
Second = Annotated[
    str, typer.Option("--approved-by", metavar="NAME", help="Who confirms changes to LSE or LSR pods; not verified.")
]
MethodOption = Annotated[
    Method,
    typer.Option(
        "--method", help="template: replace the pods; in-place: resize running pods; annotate: change only new pods."
    ),
]
BundleBranch = Annotated[
    str,
    typer.Option("--branch", metavar="NAME", help="Change the manifests of a Git repository on this new branch."),
]
BundleRepository = Annotated[
    Path, typer.Option("--repo", metavar="DIR", help="Folder of the Git repository for --branch.")
]
BUNDLE_FOLDER: Any = typer.Option("--output-dir", "-o", metavar="DIR", help="Folder to write the bundle's files to.")
BundleFolder = Annotated[Path, BUNDLE_FOLDER]
BundleFormat = Annotated[BundleForm, typer.Option("--form", help="Deployment tool that the bundle's files are for.")]
Canary = Annotated[
    float,
    typer.Option(
        "--canary", metavar="SHARE", min=0.0, max=1.0, help="First share of workloads; `recs watch` changes the rest."
    ),
]
GpuShares = Annotated[
    bool, typer.Option("--gpu-shares", help="Apply the GPU shares that findings propose, instead of CPU and memory.")
]
