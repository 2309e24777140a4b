"""A file is replaced as a whole or not at all, and what a failure leaves is the old file alone."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.base.process.files import FILE_MODE, replace_atomically


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_bytes_and_a_stream_replace_the_file_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path, before = tmp_path / "note.json", os.umask(0o022)
    try:
        path.write_bytes(b"a longer old content")
        open_to_all = replace_atomically(path, b"new")
        assert contents(tmp_path) == {"note.json": b"new"}
        # 0o666 less the umask 0o022
        assert open_to_all.st_mode & 0o777 == 0o644 and open_to_all.st_ino == path.stat().st_ino
        private = replace_atomically(path, io.BytesIO(b"x" * 3_000_000), FILE_MODE, on_disk=False)
    finally:
        os.umask(before)
    assert (private.st_mode & 0o777, private.st_size) == (0o600, 3_000_000)
    assert contents(tmp_path) == {"note.json": b"x" * 3_000_000}


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()])
def test_what_fails_in_the_middle_leaves_the_old_file_and_no_draft(tmp_path: Path, error: BaseException) -> None:
    class Failing(io.BytesIO):
        """A stream that gives some bytes, then fails."""

        def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002
            if self.tell():
                raise error
            return super().read(4)

    path = tmp_path / "note.json"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        replace_atomically(path, Failing(b"new and longer"))
    assert contents(tmp_path) == {"note.json": b"old"}


def test_a_link_in_the_place_of_the_draft_is_not_written_through(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    (tmp_path / ".note.json.tmp").symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic links"):
        replace_atomically(tmp_path / "note.json", b"new")
    assert contents(tmp_path) == {"theirs": b"theirs"}


def test_a_file_of_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_atomically(tmp_path / "absent" / "note.json", b"new")
    assert contents(tmp_path) == {}


def test_commands_that_write_one_file_at_once_all_succeed_and_leave_a_whole_one(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cotenant.base.commands.files import save\n"
        "for _ in range(300): save(Path(sys.argv[1]), 'export.yaml', sys.argv[2] * 20_000)"
    )
    commands = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), letter]) for letter in "abc"]
    assert [command.wait(60) for command in commands] == [0, 0, 0]
    assert contents(tmp_path) in [{"export.yaml": letter * 20_000} for letter in (b"a", b"b", b"c")]
    assert (tmp_path / "export.yaml").stat().st_mode & 0o777 == 0o644
