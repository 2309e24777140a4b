"""EDGE: bundles for a GitOps repository, as files or as a commit: reviewed, not applied, recorded in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cotenant.base.errors import NoData
from cotenant.changes.accept import Actions
from cotenant.changes.access.git_repository import GitRepository
from cotenant.changes.decide.gitops.bundle import PULL_REQUEST, bundle, summary
from cotenant.changes.decide.gitops.commit import decide_commit
from cotenant.changes.decide.review import Review
from cotenant.changes.model.service import BundleCommit, BundleForm, CommitBundle
from cotenant.recommender.settings import RecommenderSettings

BUNDLED: Final = "bundled"
"""Ledger event for a bundle; the subject is the bundle's key."""
COMMITTED: Final = "git"
"""The bundle form that a ledger row records for a commit."""


def export_bundle(
    actions: Actions, reviews: Sequence[Review], form: BundleForm, settings: RecommenderSettings, key: str
) -> dict[str, str]:
    """Return a bundle's files by path and record the bundle in the ledger; raise NoData if no file can be written."""
    files = bundle(reviews, form, settings.patches, settings.prices.currency)
    if set(files) == {PULL_REQUEST}:
        raise NoData("none of these changes can be written to files", fix="`cotenant recs show` explains each change.")
    names = [str(review.workload) for review in reviews]
    actions.journal.note([(BUNDLED, key, {"form": form.value, "workloads": names, "files": summary(files)})])
    return files


def commit_bundle(
    actions: Actions, reviews: Sequence[Review], request: CommitBundle, settings: RecommenderSettings, key: str
) -> BundleCommit:
    """Return the planned commit; if `request.write`, make it: the ledger records it before the branch is created.

    Raise UsageError if the branch exists; if `request.write`, raise NoData if no value can be placed in a file.
    """
    repository = GitRepository(Path(request.repository).expanduser())
    tree = repository.read_tree()
    repository.require_new_branch(request.branch)
    plan, texts = decide_commit(request, tree.commit, tree.files, reviews, settings)
    if not request.write:
        return plan
    if not texts:
        why = "; ".join(f"{out.workload}: {out.why}" for out in plan.refused)
        fix = plan.refused[0].fix if plan.refused else ""
        raise NoData(f"no file of the repository was found for the new values: {why}", fix=fix)
    commit = replace(plan, commit=repository.commit(tree, texts, plan.message))
    names = [str(workload) for workload in commit.workloads]
    row = {"form": COMMITTED, "workloads": names, "files": summary(texts)}
    actions.journal.note([(BUNDLED, key, {**row, "branch": commit.branch, "commit": commit.commit})])
    repository.make_branch(commit.branch, commit.commit)
    return commit
