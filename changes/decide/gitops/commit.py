"""What a commit with the proposed values of workloads contains: files, message, workloads left out. Pure."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.gitops.built_objects import read_manifests
from cotenant.changes.decide.gitops.bundle import file_list, pull_request_lines
from cotenant.changes.decide.gitops.placement import MAPPING, FileEdits, place, place_rules
from cotenant.changes.decide.gitops.yaml_edit import apply_edits
from cotenant.changes.decide.review import Review
from cotenant.changes.decide.rule import GuardrailOutcome
from cotenant.changes.model.service import BundleCommit, BundleForm, CommitBundle, UnplacedWorkload
from cotenant.recommender.settings import RecommenderSettings

_HEADING: Final = re.compile(r"^#+ (.*)$")
_IN_FILES: Final = "the files already have all new values, but the cluster does not have them yet"


def decide_commit(
    order: CommitBundle, base: str, files: Mapping[str, str], reviewed: Sequence[Review], settings: RecommenderSettings
) -> tuple[BundleCommit, Mapping[str, str]]:
    """Return the commit on top of `base`, and its changed files by path; `files` are the YAML texts at `base`."""
    manifests = read_manifests(files)
    if MAPPING in manifests.unread:
        raise UsageError(f"{MAPPING} is not valid YAML", fix="Correct the file: it maps workloads to files.")
    rules = place_rules(manifests.documents.get(MAPPING, ()))
    edits: dict[WorkloadRef, FileEdits] = {}
    refused: list[UnplacedWorkload] = []
    for review in reviewed:
        try:
            if review.error or not review.recommendations:
                raise UsageError(review.error or "nothing is proposed")
            placed = place(manifests, rules, review.recommendations, settings.patches)
            if not placed:
                raise UsageError(_IN_FILES)
            edits[review.workload] = placed
        except UsageError as error:
            refused.append(UnplacedWorkload(review.workload, error.message, error.fix))
    for workload, why in _collisions(edits).items():
        del edits[workload]
        refused.append(UnplacedWorkload(workload, why, f"Name a place for each workload in {MAPPING}."))
    texts = {
        path: apply_edits(files[path], [edit for placed in edits.values() for edit in placed.get(path, ())])
        for path in sorted({path for placed in edits.values() for path in placed})
    }
    whys = {out.workload: out.why for out in refused}
    rows = [
        replace(o, recommendations=(), error=whys[o.workload])
        if o.workload in whys
        else replace(o, guardrails=tuple(rule for rule in o.guardrails if rule.outcome is not GuardrailOutcome.PASS))
        for o in reviewed
    ]
    changed, currency = f"Changed: {file_list(list(texts))}", settings.prices.currency
    lines = pull_request_lines(rows, BundleForm.KUSTOMIZE, changed, currency)
    # Git takes lines that begin with "#" for comments when somebody edits the message; its title stands bare.
    headings = [_HEADING.sub(r"**\1**", line) for line in lines]
    message = "\n".join([headings[0].strip("*"), *headings[1:]]) + "\n"
    diff = "".join(line for path, text in texts.items() for line in unified_diff(path, files[path], text))
    return BundleCommit(order.branch, base, message, diff, tuple(texts), tuple(edits), tuple(refused)), texts


def unified_diff(path: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines of one file's unified diff in Git's form."""
    old, new = ([f"{line}\n" for line in text.split("\n")] for text in (before, after))
    for lines in (old, new):  # behind the last line end there is no line
        if lines[-1] == "\n":
            lines.pop()
        else:
            lines[-1] = f"{lines[-1]}\\ No newline at end of file\n"
    yield from difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")


def _collisions(edits: Mapping[WorkloadRef, FileEdits]) -> dict[WorkloadRef, str]:
    """Return the workloads whose edits hit the same place of a file, each with the reason; none of them owns it."""
    spans: dict[str, list[tuple[int, int, WorkloadRef]]] = defaultdict(list)
    for workload, workload_edits in edits.items():
        for path, own in workload_edits.items():
            spans[path] += [(edit.start, edit.end, workload) for edit in own]
    colliding: dict[WorkloadRef, str] = {}
    for path, taken in spans.items():
        ordered = sorted(taken)
        for (start, end, first), (begin, _, second) in pairwise(ordered):
            if first != second and (begin < end or begin == start):
                colliding[first] = f"{path} has one value for this workload and {second}"
                colliding[second] = f"{path} has one value for this workload and {first}"
    return colliding
