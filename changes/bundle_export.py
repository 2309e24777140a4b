"""EDGE: writes a bundle for a GitOps repository: reviewed against the cluster, not applied, noted in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cotenant.base.errors import NoData
from cotenant.changes.accept import Actions
from cotenant.changes.decide.gitops.bundle import PULL_REQUEST, ReviewedWorkload, bundle, summary
from cotenant.changes.decide.review import Review
from cotenant.changes.model.service import BundleForm
from cotenant.recommender.settings import RecommenderSettings

BUNDLED: Final = "bundled"
"""Event of the ledger; its subject is the bundle's key."""


def export_bundle(
    actions: Actions, reviews: Sequence[Review], form: BundleForm, settings: RecommenderSettings, key: str
) -> dict[str, str]:
    """Text by path; NoData when nothing of it can be written. The row in the ledger names the workloads and files."""
    reviewed = [ReviewedWorkload(r.workload, r.recommendations, r.guardrails, r.error) for r in reviews]
    files = bundle(reviewed, form, settings.patches, settings.prices.currency)
    if set(files) == {PULL_REQUEST}:
        raise NoData("nothing of this can be written to files", fix="`cotenant recs show` says why, one by one.")
    names = [str(review.workload) for review in reviews]
    actions.journal.note([(BUNDLED, key, {"form": form.value, "workloads": names, "files": summary(files)})])
    return files
