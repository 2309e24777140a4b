"""Take one file of an npm package by exact version and integrity: the small plotly bundle, or axe-core for the tests.

    python tools/fetch_plotly.py [LOCK.json ...]      default: dashboard/plotly.lock.json

A lock names package, version and integrity (sha512) of the archive, the file inside with its own, and where it goes.
`npm pack` fetches, with the caller's own npm configuration; both digests are checked. A file that is there already and
unchanged stays.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "dashboard" / "plotly.lock.json"
SECONDS = 120


def fetch(lock: Path) -> Path:
    """Make the lock's target hold the locked file; raises OSError, ValueError or CalledProcessError with the cause."""
    package_lock = json.loads(lock.read_text())
    target: Path = (lock.resolve().parent / package_lock["target"]).resolve()
    if target.is_file() and integrity(target.read_bytes()) == package_lock["file_integrity"]:
        return target
    archive = pack(f"{package_lock['package']}@{package_lock['version']}")
    content = member(checked(archive, package_lock["integrity"]), package_lock["file"])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(checked(content, package_lock["file_integrity"]))
    return target


def pack(package: str) -> bytes:
    """The package's archive."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder, package]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
        return next(Path(folder).glob("*.tgz")).read_bytes()


def integrity(content: bytes) -> str:
    """Digest as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def checked(content: bytes, expected: str) -> bytes:
    """The same bytes; ValueError when their digest is not the wanted one."""
    if integrity(content) != expected:
        raise ValueError(f"integrity is {integrity(content)}, the lock says {expected}")
    return content


def member(archive: bytes, name: str) -> bytes:
    """One file of a package's archive; ValueError when it has none of that name."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        entry = next((m for m in tar if m.isfile() and m.name == f"package/{name}"), None)
        stream = tar.extractfile(entry) if entry else None
        if stream is None:
            raise ValueError(f"the archive has no file {name}")
        return stream.read()


def main() -> int:
    """Fetch every lock named on the command line; 1 when one could not be had."""
    for lock in [Path(a) for a in sys.argv[1:]] or [DEFAULT]:
        try:
            print(fetch(lock).name)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{lock.name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
