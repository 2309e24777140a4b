"""The heads of several ledgers in one cluster: each its own, and none overwritten that tells of missing rows."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cotenant.base.errors import ClusterConflict
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.change_ledger import ANCHOR, anchor, read_anchored_heads, unkept
from cotenant.cli.main import root
from tests.cluster.control_plane import ControlPlane


@pytest.fixture
def client(control_plane: ControlPlane, person: Path) -> KubeClient:
    return control_plane.client(person)


def grown(path: Path, rows: int) -> Ledger:
    """A ledger with so many rows more."""
    ledger = Ledger(path)
    ledger.append(1000.0, "ann", [("accepted", f"c{n}", {}) for n in range(rows)])
    return ledger


def cut(path: Path, after: int) -> Ledger:
    """The same without the rows after that one."""
    db = sqlite3.connect(path)
    db.executescript(f"DROP TRIGGER no_delete; DELETE FROM entries WHERE seq > {after}")
    db.close()
    return Ledger(path)


def verify(person: Path, namespace: str, ledger: Path | str, *options: str) -> Result:
    sets = {"actions.ledger": ledger, "manager.namespace": namespace}
    flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return CliRunner().invoke(root, [*flags, "audit", "verify", *options, "--kubeconfig", str(person)])


def test_a_head_that_may_not_be_read_is_not_called_compared(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Who has no right to it gets another exit code than who has compared."""
    grown(tmp_path / "l.db", 2).close()
    nobody = control_plane.user("nobody")
    refused = verify(nobody, namespace, tmp_path / "l.db")
    assert refused.exit_code == 4, refused.output
    assert "2 rows of ledger" in refused.stdout and "matches the head" not in refused.stdout
    text = " ".join(refused.stderr.split())
    assert "the ledger's head in the cluster could not be read: cannot get configmaps" in text
    assert f"Grant the right in a Role of namespace {namespace}" in text and "--offline" in text


def test_two_ledgers_keep_their_heads_beside_each_other(client: KubeClient, namespace: str, tmp_path: Path) -> None:
    first_ledger, two = grown(tmp_path / "one.db", 3), grown(tmp_path / "two.db", 1)
    for ledger in (first_ledger, two):
        anchor(client, ledger, namespace)
    first_ledger.append(1001.0, "ann", [("applied", "c0", {})])
    anchor(client, first_ledger, namespace)
    for ledger, other, seq in ((first_ledger, two, 4), (two, first_ledger, 1)):
        heads = read_anchored_heads(client, ledger, namespace)
        assert heads.head is not None and heads.head.seq == seq and heads.others == (other.id,)
        assert ledger.verify(heads.head).wrong_seq is None


def test_a_head_whose_row_is_gone_is_not_overwritten_by_what_comes_after(
    client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    anchor(client, grown(tmp_path / "l.db", 5), namespace)
    shorter = cut(tmp_path / "l.db", 3)
    for rows in (1, 4):  # row 4 again, then past the head's own number: rewritten rows, whole in themselves
        shorter.append(1001.0, "eve", [("accepted", "forged", {})] * rows)
        with pytest.raises(ClusterConflict, match=f"has row 5 of ledger {shorter.id}"):
            anchor(client, shorter, namespace)
    assert shorter.verify().wrong_seq is None
    assert shorter.verify(read_anchored_heads(client, shorter, namespace).head).wrong_seq == 5


def test_a_file_made_anew_beside_its_key_is_still_the_same_ledger(
    client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    old = grown(tmp_path / "l.db", 2)
    anchor(client, old, namespace)
    old.close()
    (tmp_path / "l.db").unlink()
    new = grown(tmp_path / "l.db", 1)
    assert new.id == old.id
    assert new.verify(read_anchored_heads(client, new, namespace).head).why.startswith("ledger rows 2 to 2 are missing")


def test_a_ledger_without_its_key_is_another_and_the_old_one_is_named(
    client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    old = grown(tmp_path / "l.db", 2)
    anchor(client, old, namespace)
    new = grown(tmp_path / "other.db", 1)
    heads = read_anchored_heads(client, new, namespace)
    assert heads.head is None and new.id != old.id
    assert unkept(new, heads) == f"The cluster stores no head of this ledger ({new.id}), but heads of others: {old.id}."


def test_verify_says_which_ledger_it_was_and_which_others_the_cluster_knows(
    person: Path, client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    ledger, two = grown(tmp_path / "one.db", 3), grown(tmp_path / "two.db", 1)
    anchor(client, ledger, namespace)
    assert f"3 rows of ledger {ledger.id} are unchanged, and row 3" in verify(person, namespace, ledger.path).output
    result = verify(person, namespace, two.path)
    assert result.exit_code == 0 and f"({two.id}), but heads of others: {ledger.id}" in " ".join(result.output.split())
    shutil.copy(tmp_path / "one.key", tmp_path / "copy.key")
    wrong = verify(person, namespace, grown(tmp_path / "copy.db", 1).path)
    assert (wrong.exit_code, f"WRONG at row 2 of ledger {ledger.id}" in wrong.output) == (3, True)


def test_an_entry_that_is_no_head_is_said(
    control_plane: ControlPlane, person: Path, namespace: str, tmp_path: Path
) -> None:
    ledger = grown(tmp_path / "l.db", 1)
    body = {"metadata": {"name": ANCHOR}, "data": {ledger.id: "{}"}}
    control_plane.api().create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    result = verify(person, namespace, ledger.path)
    assert f"holds no head of ledger {ledger.id}" in " ".join(result.output.split())


@pytest.mark.parametrize("rows_left", [0, 1, 2, 3])
def test_what_was_cut_off_is_not_called_written_without_the_clusters_head(
    person: Path, namespace: str, tmp_path: Path, rows_left: int
) -> None:
    """All of three rows, some, or none were cut off: no chain shows it, so that no answer may deny it."""
    path = tmp_path / "l.db"
    grown(path, 3).close()
    ledger = cut(path, rows_left)
    ledger.close()
    for options in (("--offline",), ()):  # the cluster keeps no head of it either
        outcome = verify(person, namespace, path, *options)
        text = " ".join(outcome.stdout.split())
        assert outcome.exit_code == 0 and "unchanged" not in text
        assert text.endswith("cannot be checked without the head that the cluster stores"), text
        assert ("whether later rows were removed" in text) == (rows_left > 0)
        assert (f"ledger {ledger.id} has no rows; whether rows were removed" in text) == (rows_left == 0)
