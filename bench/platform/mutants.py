"""Mutants of the modules that guard safety: how many faults that cosmic-ray plants there make a test fail.

    make mutants                                              # installs cosmic-ray into build/mutation
    .venv/bin/python -m bench.platform.mutants [--sample 25] [--seed 1] [--only NAME]

A sample of each module's mutants is drawn from the seed; each runs against that module's unit tests alone, in a copy of
the last commit. A mutant survives when all of them pass. Survivors go to build/mutants.diff, to be read one by one.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.record import ROOT, Row, above, record

GUARDING: Final[Mapping[str, str]] = {
    "changes/decide/guardrails.py": "changes/test_guardrails.py changes/test_steps.py changes/test_room.py "
    "changes/test_gpu_shares.py changes/test_choosing_methods.py recommender/test_heaps.py",
    "changes/change_ledger.py": "changes/test_lifecycle.py changes/test_known.py changes/test_watching.py "
    "changes/test_accepting.py changes/test_seconding.py changes/test_gone.py changes/test_acceptance_model.py",
    "base/ledger/ledger.py": "base/test_ledger.py changes/test_anchoring.py faults/test_ledger_on_a_bad_disk.py",
    "base/allocation/allocator.py": "base/allocation/test_allocation_ledger.py "
    "scheduler_ext/extender/test_allocation.py",
    "base/allocation/cpu_annotations.py": "base/allocation/test_cpu_annotations.py "
    "scheduler_ext/extender/test_cpus.py scheduler_ext/extender/test_allocation.py",
    "base/allocation/cpu_allocator.py": "scheduler_ext/extender/test_cpus.py scheduler_ext/extender/test_allocation.py "
    "scheduler_ext/extender/test_cpu_interleavings.py scheduler_ext/extender/test_hardware_model.py",
    "base/allocation/cpu_accumulator.py": "base/allocation/test_cpu_accumulator.py base/allocation/test_cpu_order.py "
    "scheduler_ext/extender/test_cpus.py",
    "base/allocation/device_allocator.py": "base/allocation/test_device_allocator.py "
    "base/allocation/test_joint_devices.py scheduler_ext/extender/test_devices.py",
    "base/allocation/device_placement.py": "base/allocation/test_devices.py base/allocation/test_joint_devices.py "
    "scheduler_ext/extender/test_devices.py",
    "scheduler_ext/reservations/guard.py": "scheduler_ext/reservations/test_decide.py "
    "scheduler_ext/reservations/test_gates.py scheduler_ext/reservations/test_writing.py "
    "scheduler_ext/queues/test_pod_gates.py scheduler_ext/queues/test_native_gangs.py",
    "scheduler_ext/reservations/swap.py": "scheduler_ext/reservations/test_decide.py "
    "scheduler_ext/reservations/test_writing.py scheduler_ext/reservations/test_disturbed.py "
    "scheduler_ext/reservations/test_explorer.py",
    "scheduler_ext/extender/guard.py": "scheduler_ext/extender/test_guard.py scheduler_ext/extender/test_server.py",
    "scheduler_ext/queues/quota_admission.py": "scheduler_ext/queues/test_quota_admission.py "
    "scheduler_ext/queues/test_quota_sequences.py scheduler_ext/queues/test_quota_model.py",
    "scheduler_ext/queues/quota_account.py": "scheduler_ext/queues/test_quota_admission.py "
    "scheduler_ext/queues/test_quota_sequences.py scheduler_ext/queues/test_revoke.py "
    "scheduler_ext/queues/test_preempt.py",
    "scheduler_ext/queues/runtime_quota.py": "scheduler_ext/queues/test_runtime_quota.py "
    "scheduler_ext/queues/test_quota_sequences.py",
    "enforcer/decide/settle.py": "enforcer/test_settle.py enforcer/test_kubelet_values.py "
    "enforcer/test_every_container.py enforcer/test_unchanged.py enforcer/test_resizes_beside_the_agent.py "
    "enforcer/test_pod_matrix.py",
    "enforcer/apply/apply.py": "enforcer/test_apply_v1.py enforcer/test_refused_writes_v1.py enforcer/test_trees.py "
    "enforcer/test_watchdog.py enforcer/test_agent_faults.py",
    "enforcer/apply/journal.py": "enforcer/test_journal.py enforcer/test_apply_v1.py enforcer/test_trees.py "
    "enforcer/test_agent_handover.py",
    "recommender/colocation/formulas.py": "recommender/test_colocation_formulas.py "
    "recommender/test_lendable_over_time.py",
}
"""Each module with the tests, under `tests`, that pin what it does; models last, because they take longest."""
EQUIVALENT: Final = ("_Is_Eq", "_IsNot_NotEq", "_Eq_Is", "_NotEq_IsNot")
"""Operators that change nothing a test may count on: identity against equality, of `None` and of interned values."""
UNSEEN: Final = ("frozen", "slots")
"""Arguments of classes that change no result: they show in what cannot be written."""
FLOOR_PERCENT: Final = 85.0
LONGEST_SECONDS: Final = 600.0
"""Limit of a module's tests without a mutant."""


@dataclass(frozen=True, slots=True)
class Mutants:
    """How the sampled mutants of a module ended. possible: all that cosmic-ray knows there; survivors: their diffs."""

    module: str
    possible: int
    killed: int
    survivors: tuple[str, ...]

    @property
    def tried(self) -> int:
        """Sampled mutants."""
        return self.killed + len(self.survivors)


def try_module(tree: Path, module: str, program: Path, sample: int, seed: int) -> Mutants:
    """Plant a sample of a module's mutants, one at a time, in a tree of sources, and run the module's tests on each.

    Raises RuntimeError where the tests fail without a mutant. Tests that outlast five times their time have noticed.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--reruns", "0", "-p", "no:cacheprovider"]
    command += ["-m", "not cluster and not soak", *(f"tests/{name}" for name in GUARDING[module].split())]
    settings, session = tree / "mutants.toml", tree / "mutants.sqlite"
    _write_settings(settings, module, shlex.join(command), LONGEST_SECONDS)
    start = time.monotonic()
    _cosmic_ray(program, tree, "baseline", settings.name)
    _write_settings(settings, module, shlex.join(command), 30 + 5 * (time.monotonic() - start))
    session.unlink(missing_ok=True)
    _cosmic_ray(program, tree, "init", settings.name, session.name)
    possible = keep_sample(session, (tree / module).read_text(), sample, Random(f"{module} {seed}"))
    _cosmic_ray(program, tree, "exec", settings.name, session.name)
    results = list(_results(_cosmic_ray(program, tree, "dump", session.name)))
    survivors = tuple(result["diff"] for result in results if result["test_outcome"] == "survived")
    return Mutants(module, possible, len(results) - len(survivors), survivors)


def _write_settings(path: Path, module: str, command: str, timeout_seconds: float) -> None:
    path.write_text(
        f"[cosmic-ray]\nmodule-path = {json.dumps(module)}\nexcluded-modules = []\n"
        f"timeout = {timeout_seconds:.0f}\ntest-command = {json.dumps(command)}\n"
        '[cosmic-ray.distributor]\nname = "local"\n'
    )


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "CI": "true", "COTENANT_TEST_WITHOUT_PROGRAMS": "1"}


def _cosmic_ray(program: Path, tree: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [str(program), *arguments], cwd=tree, env=_environment(tree), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"cosmic-ray {' '.join(arguments)}: {ran.stderr[-2000:]}")
    return ran.stdout


def keep_sample(session: Path, source: str, sample: int, draw: Random) -> int:
    """Leave a sample of a session's mutants in it, none that changes nothing; how many there were to draw from."""
    spans = list(unread_spans(ast.parse(source)))
    with closing(sqlite3.connect(session)) as connection, connection:
        rows = connection.execute(
            "SELECT job_id, operator_name, start_pos_row, start_pos_col FROM mutation_specs"
            " ORDER BY operator_name, occurrence, start_pos_row, start_pos_col"
        )
        jobs = [
            job
            for job, operator, line, column in rows
            if not operator.endswith(EQUIVALENT) and not any(first <= (line, column) < last for first, last in spans)
        ]
        sampled_jobs = set(draw.sample(jobs, min(sample, len(jobs))))
        for table in ("mutation_specs", "work_items"):
            marks = ",".join("?" * len(sampled_jobs))
            connection.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({marks})", sorted(sampled_jobs))
    return len(jobs)


def unread_spans(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """First and last (line, column) of annotations, which nothing evaluates, and of `UNSEEN` arguments."""
    for node in ast.walk(tree):
        unread_nodes = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        keywords = node.keywords if isinstance(node, ast.Call | ast.ClassDef) else []
        unread_nodes += [keyword.value for keyword in keywords if keyword.arg in UNSEEN]
        for part in unread_nodes:
            if isinstance(part, ast.expr):
                last = (part.end_lineno or part.lineno, part.end_col_offset or part.col_offset)
                yield (part.lineno, part.col_offset), last


def _results(dump: str) -> Iterator[dict[str, Any]]:
    for line in dump.splitlines():
        _, result = json.loads(line)
        if result is None or result["test_outcome"] not in ("killed", "survived"):
            raise RuntimeError(f"a mutant was not tried to its end: {line[:1000]}")
        yield result


def rows(tried: list[Mutants]) -> list[Row]:
    """One row for all and one per module, in percent of the mutants that were tried."""
    killed, count = sum(of.killed for of in tried), sum(of.tried for of in tried)
    table_rows = [
        Row("mutants tried", count, "mutants", note=f"of {sum(of.possible for of in tried)} in {len(tried)} modules"),
        above("mutants that a test notices", round(100 * killed / count, 1), "%", FLOOR_PERCENT),
    ]
    for of in tried:
        note = f"{of.killed} of {of.tried}, drawn from {of.possible}"
        table_rows.append(Row(of.module, round(100 * of.killed / of.tried, 1), "%", note=note))
    return table_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=25, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="modules whose path has this in it")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "mutation" / "bin" / "cosmic-ray")
    options = parser.parse_args()
    if not options.program.exists():
        parser.error(f"no cosmic-ray at {options.program}: `make mutants` installs it")
    (ROOT / "build").mkdir(exist_ok=True)
    chosen = [module for module in GUARDING if options.only in module]
    tried: list[Mutants] = []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        for module in chosen:
            tried.append(try_module(Path(folder), module, options.program, options.sample, options.seed))
            print(f"{module}: {tried[-1].killed} of {tried[-1].tried} noticed", file=sys.stderr, flush=True)
            survivors = "\n".join(f"# {of.module}\n{diff}" for of in tried for diff in of.survivors)
            (ROOT / "build" / "mutants.diff").write_text(survivors)
    measured = rows(tried)
    command = f"make mutants ARGS='--sample {options.sample} --seed {options.seed}'"
    record("mutants", command, measured, is_kept=not options.only)
    return int(any(row.met is False for row in measured))


if __name__ == "__main__":
    sys.exit(main())
