"""Run every benchmark, or those named: `python -m bench [NAME...]`; then rewrite the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHES = {
    "__init__", "__main__", "dashboard_users", "guarded_hour", "live_cluster", "live_play", "manager_day",
    "neighbour_rows", "node_load", "recommendation_scores", "record", "replay_worlds", "report", "scan_data",
    "shortage_scores", "webhook_reviews",
}  # fmt: skip


def main(names: list[str]) -> int:
    found = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NOT_BENCHES)
    unknown = set(names) - set(found)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    failed = [n for n in names or found if subprocess.run([sys.executable, "-m", f"bench.{n}"], check=False).returncode]
    subprocess.run([sys.executable, "-m", "bench.report"], check=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
