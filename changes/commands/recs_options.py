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
    str, typer.Option("--approved-by", metavar="NAME", help="The second person, for classes LSE and LSR; not checked.")
]
MethodOption = Annotated[
    Method,
    typer.Option(
        "--method", help="template: new pods; in-place: running pods resized; annotate: only pods that come later."
    ),
]
BundleBranch = Annotated[
    str,
    typer.Option("--branch", metavar="NAME", help="Change the manifests of a Git repository, on a new branch of it."),
]
BundleRepository = Annotated[
    Path, typer.Option("--repo", metavar="DIR", help="Folder of the Git repository that --branch is made in.")
]
BUNDLE_FOLDER: Any = typer.Option("--output-dir", "-o", metavar="DIR", help="Where the files are written.")
BundleFolder = Annotated[Path, BUNDLE_FOLDER]
BundleFormat = Annotated[BundleForm, typer.Option("--form", help="What the files are for.")]
Canary = Annotated[
    float,
    typer.Option(
        "--canary", metavar="SHARE", min=0.0, max=1.0, help="Share that goes first; `recs watch` does the rest."
    ),
]
GpuShares = Annotated[
    bool, typer.Option("--gpu-shares", help="Apply the GPU shares that findings propose, instead of CPU and memory.")
]
