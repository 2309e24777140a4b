"""EDGE: a local Git repository, through the program `git`: read its last commit, commit to a new branch.

The person's checkout does not change: files are read from HEAD's tree, not from the folder, and the commit uses an
index of its own. HEAD, the index, uncommitted changes and stashes are not touched, no hook runs, nothing is pushed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.base.errors import CotenantError, UsageError

LONGEST_SECONDS: Final = 120.0
_FOREIGN: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")
"""Variables, set by a hook or an alias, that would make Git use another repository."""
_FILES: Final = ("100644", "100755")
"""Modes of plain files; a link or a submodule is not followed."""
_YAML: Final = (".yaml", ".yml", "Kustomization")


class GitRefusal(CotenantError):
    """Git refused the operation; the message quotes Git."""


@dataclass(frozen=True, slots=True)
class GitTree:
    """The YAML files of a commit: text and file mode by path."""

    commit: str
    files: Mapping[str, str]
    modes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GitRepository:
    """A Git repository, given by its folder: a working tree, a folder in one, or a bare repository."""

    folder: Path

    def read_tree(self) -> GitTree:
        """Return the YAML files of HEAD; raise UsageError if the folder is no repository or has no commit yet."""
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder} is not a folder", fix="Name the folder of a Git repository: --repo DIR.")
        try:
            commit = self._git("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}").decode().strip()
        except GitRefusal as error:
            fix = "Name the folder of a Git repository with a commit: --repo DIR."
            raise UsageError(f"{self.folder}: {error.message}", fix=fix) from error
        modes, blobs = dict[str, str](), dict[str, str]()
        for entry in self._git("ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "replace").split("\0"):
            head, _, path = entry.partition("\t")
            if head[:6] in _FILES and path.endswith(_YAML) and "\ufffd" not in path:
                modes[path], blobs[path] = head[:6], head.split(" ")[2]
        answer, files = self._git("cat-file", "--batch", text="".join(f"{b}\n" for b in blobs.values()).encode()), {}
        at = 0
        for path in blobs:
            line_end = answer.index(b"\n", at)
            size = int(answer[at:line_end].split(b" ")[2])
            at = line_end + size + 2
            try:
                files[path] = answer[line_end + 1 : line_end + 1 + size].decode("utf-8")
            except UnicodeDecodeError:
                continue  # no manifest
        return GitTree(commit, files, modes)

    def require_new_branch(self, branch: str) -> None:
        """Raise UsageError if the name is not allowed for a branch, or if the branch exists."""
        ref = f"refs/heads/{branch}"
        if branch.startswith("-") or "\0" in branch or not self._holds("check-ref-format", ref):
            raise UsageError(f"{branch!r} is not a valid branch name", fix="Use a name such as right-sizing/pay.")
        if self._holds("rev-parse", "--verify", "--quiet", "--end-of-options", ref):
            raise UsageError(
                f"the branch {branch} exists already, and a commit needs a new one",
                fix=f"Name another branch, or delete this one: git branch -D {branch}",
            )

    def commit(self, tree: GitTree, texts: Mapping[str, str], message: str) -> str:
        """Commit changed files on top of a tree, on no branch yet, signed if Git is configured so; return the id."""
        lines = ""
        for path, text in texts.items():
            blob = self._git("hash-object", "-w", "--no-filters", "--stdin", text=text.encode()).decode().strip()
            lines += f"{tree.modes[path]} {blob}\t{path}\0"
        with tempfile.TemporaryDirectory(prefix="cotenant-index-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._git("read-tree", tree.commit, more=index)
            self._git("update-index", "-z", "--index-info", text=lines.encode(), more=index)
            written = self._git("write-tree", more=index).decode().strip()
        signed = ["-S"] if self._holds("config", "--type=bool", "--get", "commit.gpgSign", says="true") else []
        commit_id = self._git("commit-tree", written, "-p", tree.commit, *signed, "-F", "-", text=message.encode())
        return commit_id.decode().strip()

    def make_branch(self, branch: str, commit: str) -> None:
        """Create a branch at a commit; raise GitRefusal if the branch exists already."""
        nothing = "0" * len(commit)
        self._git("update-ref", "-m", "cotenant: set workload resources", f"refs/heads/{branch}", commit, nothing)

    def _holds(self, *arguments: str, says: str = "") -> bool:
        try:
            answer = self._git(*arguments).decode().strip()
        except GitRefusal:
            return False
        return not says or answer == says

    def _git(self, *args: str, text: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
        """Run git in the folder and return its output; raise GitRefusal with Git's message if it fails."""
        clean = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        environment = {**clean, "LC_ALL": "C", **(more or {})}
        command = ["git", "-C", str(self.folder), *args]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program; each word is an option of ours or behind one
                command, input=text, capture_output=True, check=False, timeout=LONGEST_SECONDS, env=environment
            )
        except FileNotFoundError as error:
            raise UsageError("the program git is not installed here", fix="Install git beside cotenant.") from error
        except subprocess.TimeoutExpired as error:
            raise GitRefusal(f"git {args[0]} took longer than {LONGEST_SECONDS:g} s", fix="Run git by hand.") from error
        if done.returncode:
            stderr = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.returncode}"
            raise GitRefusal(f"git {args[0]}: {stderr}", fix="Run git by hand in that repository.")
        return done.stdout
