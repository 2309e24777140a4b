"""`make audit`: known vulnerabilities of the locked dependencies; a package without an answer is a failure.

pip-audit by itself ends well when the service knows none of the packages, or leaves some out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN = 10
"""Names in a line about packages that were not asked about."""


@dataclass(frozen=True)
class DependencyAudit:
    """What is known: ids of vulnerabilities by package, packages without an answer with the reason, how many of all."""

    vulnerable: Mapping[str, Sequence[str]]
    unanswered: Mapping[str, str]
    packages: int

    @property
    def passed(self) -> bool:
        """Whether every package was asked about and none has a known vulnerability."""
        return self.packages > 0 and not self.vulnerable and not self.unanswered

    def lines(self) -> list[str]:
        """The result for a person."""
        if not self.packages:
            return ["audit failed: pip-audit names no package at all"]
        findings = [f"{name}: {', '.join(ids)}" for name, ids in self.vulnerable.items()]
        if self.unanswered:
            names, more = list(self.unanswered)[:SHOWN], len(self.unanswered) - SHOWN
            reasons = "; ".join(sorted(set(self.unanswered.values()))[:3])
            findings.append(
                f"audit failed: no answer about {len(self.unanswered)} of {self.packages} packages "
                f"({', '.join(names)}{f' and {more} more' if more > 0 else ''}): {reasons}"
            )
        if self.vulnerable:
            findings.append(
                f"audit failed: {len(self.vulnerable)} of {self.packages} packages have known vulnerabilities"
            )
        return findings or [f"no known vulnerabilities in {self.packages} packages; each was asked about"]


def judged(document: Mapping[str, Any]) -> DependencyAudit:
    """What pip-audit's JSON says."""
    packages = document.get("dependencies", [])
    return DependencyAudit(
        {p["name"]: [v["id"] for v in p["vulns"]] for p in packages if p.get("vulns")},
        {p["name"]: _short(p["skip_reason"]) for p in packages if p.get("skip_reason")},
        len(packages),
    )


def _short(reason: str) -> str:
    """Without the package's own name, so that equal reasons are one."""
    return reason.split(":", maxsplit=1)[0].strip()


def main(locks: Sequence[str]) -> int:
    """Audit requirement files with hashes, each by itself, as they pin what differs; the highest of the exit codes."""
    if not locks:
        print("audit failed: no lock is named")
        return 2
    return max([_audited(lock) for lock in locks])


def _audited(lock: str) -> int:
    """Audit one requirement file and print the result; its exit code."""
    command = [str(Path(sys.executable).parent / "pip-audit"), "--require-hashes", "--disable-pip", "-f", "json"]
    command += ["--progress-spinner", "off", "-r", lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        audit = judged(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"{lock}: audit failed: the service could not be asked (pip-audit ended with {done.returncode}): {last}")
        return 2
    print("\n".join(f"{lock}: {line}" for line in audit.lines()))
    return 0 if audit.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
