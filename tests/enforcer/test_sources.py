"""Pods and policy from files: found, read anew, refused, growing old."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.enforcer.sources.sources import NEVER, FileSources


class Watch:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Watch:
    return Watch()


def pods(path: Path, *names: str) -> None:
    items = [{"kind": "Pod", "metadata": {"name": n, "namespace": "x", "uid": f"u-{n}"}} for n in names]
    fresh = path.with_name("fresh")
    fresh.write_text(json.dumps({"kind": "List", "items": items}))
    fresh.replace(path)


def sources(folder: Path, clock: Watch) -> FileSources:
    return FileSources("n1", str(folder / "pods.json"), str(folder / "policy.yaml"), clock)


def test_without_its_files_nothing_is_known_and_the_reason_is_told(tmp_path: Path, clock: Watch) -> None:
    file_sources = sources(tmp_path, clock)
    inputs = file_sources.read()
    assert (inputs.pods, inputs.policy, inputs.policy_age_seconds, inputs.pods_age_seconds) == ((), None, NEVER, NEVER)
    assert len(inputs.notes) == 2 and all("No such file" in note for note in inputs.notes)
    assert not file_sources.wait(0)


def test_what_stands_there_is_fresh_as_long_as_it_stands_there(tmp_path: Path, clock: Watch) -> None:
    pods(tmp_path / "pods.json", "a")
    (tmp_path / "policy.yaml").write_text("resourceUsedThresholdWithBE: {enable: true}")
    file_sources = sources(tmp_path, clock)
    assert file_sources.wait(0)
    clock.now += 1000
    inputs = file_sources.read()
    assert ([pod.name for pod in inputs.pods], inputs.node.name, inputs.notes) == (["a"], "n1", ())
    assert (inputs.policy_age_seconds, inputs.pods_age_seconds) == (0.0, 0.0)
    (tmp_path / "policy.yaml").unlink()
    clock.now += 30
    inputs = file_sources.read()
    assert inputs.policy is not None and inputs.policy.thresholds.enable
    assert inputs.policy_age_seconds == 30.0


def test_a_changed_file_is_read_and_a_broken_one_leaves_what_was_before(tmp_path: Path, clock: Watch) -> None:
    pods(tmp_path / "pods.json", "a")
    (tmp_path / "policy.yaml").write_text("{}")
    file_sources = sources(tmp_path, clock)
    file_sources.read()
    pods(tmp_path / "pods.json", "a", "b")
    assert [pod.name for pod in file_sources.read().pods] == ["a", "b"]
    (tmp_path / "pods.json").write_bytes(b"\xff\xfe")
    inputs = file_sources.read()
    assert [pod.name for pod in inputs.pods] == ["a", "b"]
    assert "not UTF-8" in inputs.notes[0]
    pods(tmp_path / "pods.json", "c")
    assert [pod.name for pod in file_sources.read().pods] == ["c"] and file_sources.read().notes == ()
