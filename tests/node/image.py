"""Tiny images made from a static busybox, as `docker save` would write them: no registry, no network."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
PAUSE_IMAGE = "localhost/pause:1"
IMAGE = "localhost/busybox:1"
_APPLETS = ("sh", "sleep", "yes", "cat", "true", "echo", "head", "seq", "dd")
_FOLDERS = ("bin", "tmp", "proc", "sys", "dev", "etc")


def write_images(target: Path) -> None:
    """Write both images into one archive."""
    _write(target, _layer({}), {PAUSE_IMAGE: ["/bin/sleep", "infinity"], IMAGE: ["/bin/sh"]})


def write_image(target: Path, tag: str, scripts: Mapping[str, str]) -> None:
    """Write one image whose busybox has more commands: scripts by name. Libraries are those of a mounted /usr."""
    _write(target, _layer(scripts), {tag: ["/bin/sh"]})


def _write(target: Path, layer: bytes, commands: Mapping[str, list[str]]) -> None:
    digest = hashlib.sha256(layer).hexdigest()
    manifest = []
    with tarfile.open(target, "w") as archive:
        _add(archive, f"{digest}/layer.tar", layer)
        for tag, command in commands.items():
            config = _config(command, digest)
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(archive, name, config)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _config(command: list[str], layer_digest: str) -> bytes:
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{}],
        }
    ).encode()


def _layer(scripts: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        archive.add(BUSYBOX, "bin/busybox")
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
        for name, text in scripts.items():
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.mode, entry.size = 0o755, len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name in ("lib", "lib64") if scripts else ():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
