"""`cotenant run` as people and pods call it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import cotenant
from tests.support.fleet import filled, values_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

QUICK = ("--set", "forecasting.booster_rows=0", "--set", "forecasting.origins=1", "--set", "forecasting.history_days=2")


def call(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    fixed = ("--resource", "cpu", "--series-per-shard", "60", "--workers", "1")
    return cotenant("run", "--store", url, "--cluster", "big", *QUICK, *fixed, *words)


def test_parts_are_joined_at_the_end_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    filled(url, values_of(120, 3))
    first = call(url, "--shard", "0/2", "-o", "json")
    assert json.loads(first.stdout)["missing"] == 1, first.stderr
    early = call(url, "--merge")
    assert early.returncode == 1
    assert "1 of 2 shards are not computed yet" in early.stderr
    last = call(url, "--shard", "1/2")
    assert "cotenant run --merge" in last.stderr
    merged = call(url, "--merge")
    assert merged.returncode == 0
    assert "120 series in 2 shards" in merged.stderr
    assert (tmp_path / "big" / "results" / "fleet-cpu.parquet").is_file()


@pytest.mark.parametrize(
    ("words", "said"), [(("--hour", "--merge"), "exclude"), (("--shard", "2/2"), "no part 2 of 2")]
)
def test_words_that_cannot_be_are_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = call(tmp_path.as_uri(), *words)
    assert (done.returncode, said in done.stderr) == (2, True)
