"""A private containerd with runc for tests: own root, state, sockets and cgroups; nothing is left behind.

Debian's (1.6, no NRI) by default, or one built from its Go module (2.4, NRI on). Pods run on the host's
network, from images made here. Only root can do this: `impossible()` says what is missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc

from tests.cluster import binaries
from tests.cluster.process import Server
from tests.node.cri import RUNTIME, Cri
from tests.node.image import BUSYBOX, PAUSE_IMAGE, write_images

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = (CGROUPS / "cgroup.controllers").exists()
"""cgroup v2 alone: only in a guest."""
SHIM_SOCKETS = "/run/containerd/s/"
SECONDS = 60.0
_CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{folder}/runc"
"""
_NRI = """[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri-plugins"
  plugin_config_path = "{folder}/nri-conf"
"""
_PLUGIN = """#!/bin/sh
echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"], "interfaces": [], "ips": []}'
"""
"""Pods are on the host's network; containerd asks for the plugin all the same when it takes a half-made one away."""
_LOOPBACK = '{"cniVersion":"0.4.0","name":"lo","plugins":[{"type":"loopback"}]}'


def _hierarchy(controller: str) -> Path:
    return CGROUPS if UNIFIED else CGROUPS / controller


def impossible(with_nri: bool = False) -> str:
    """Why no container can run here; "" when one can."""
    if os.geteuid() != 0:
        return "containers need root"
    if not (CGROUPS / "cpu").is_dir() and not UNIFIED:
        return "this machine has neither cgroup v1 nor v2 alone"
    needed = ["runc", str(BUSYBOX), *([] if with_nri else ["containerd", "ctr"])]
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (make system)"
    if b"/ld-" in BUSYBOX.read_bytes()[:4096]:  # an ELF file names its interpreter near its head
        return f"{BUSYBOX} is not static (Debian package busybox-static)"
    return ""


class Containerd:
    """`with Containerd() as runtime`: serving on `socket`, and on `nri_socket` when built with NRI."""

    def __init__(self, with_nri: bool = False) -> None:
        # Short: a unix socket's name may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="ctd-"))
        self.with_nri = with_nri
        self.base = f"cotenant-{uuid.uuid4().hex[:8]}"
        """The cgroup, in every hierarchy, that its pods are below."""
        self.socket = self.folder / "containerd.sock"
        self.nri_socket = self.folder / "nri.sock"
        programs = {n: binaries.find(n) for n in binaries.CONTAINERD} if with_nri else {}
        self._ctr = str(programs.get("ctr") or shutil.which("ctr") or "ctr")
        self._programs = programs
        self.server = Server("containerd", self._command(), self.folder / "containerd.log")
        self._clients: list[Cri] = []

    def _command(self) -> list[str]:
        """The shim is found beside containerd or by PATH, so the built one gets its own first."""
        config = self.folder / "config.toml"
        if not self.with_nri:
            return [shutil.which("containerd") or "containerd", "--config", str(config)]
        binary = self._programs["containerd"]
        path = f"{binary.parent}:{os.environ['PATH']}"
        return ["/usr/bin/env", f"PATH={path}", str(binary), "--config", str(config)]

    def __enter__(self) -> Containerd:
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-lo.conflist").write_text(_LOOPBACK)
        plugin = self.folder / "cni" / "loopback"
        plugin.write_text(_PLUGIN)
        plugin.chmod(0o755)
        text = _CONFIG + (_NRI if self.with_nri else "")
        (self.folder / "config.toml").write_text(
            text.format(folder=self.folder, pause=PAUSE_IMAGE, snapshotter="native" if UNIFIED else "overlayfs")
        )
        try:
            self._fill_cpusets()
            self.start()
            self._import_images()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start it, also again; it serves when this returns."""
        self.server.start()
        self.server.wait_until(lambda: self.socket.exists() and self._serves(), SECONDS)

    def kill(self) -> None:
        """SIGKILL; its containers live on."""
        self.server.kill()

    def client(self, socket: Path | None = None, service: str = RUNTIME) -> Cri:
        """A CRI client, of containerd itself or of what stands before it; closed at the end."""
        cri = Cri(socket or self.socket, service)
        self._clients.append(cri)
        return cri

    def ctr(self, *arguments: str, namespace: str = "k8s.io") -> list[str]:
        """The command line of containerd's own client; the kubelet's containers and images are in `k8s.io`."""
        return [self._ctr, "--address", str(self.socket), "-n", namespace, *arguments]

    def import_images(self, archive: Path, namespace: str = "k8s.io") -> None:
        """Make an archive's images known, as `docker save`, `buildah push` and `make images` write them."""
        command = self.ctr("images", "import", str(archive), namespace=namespace)
        subprocess.run(command, check=True, capture_output=True, timeout=10 * SECONDS)

    def read(self, controller: str, cgroup: str, name: str) -> str:
        """A cgroup file's text; FileNotFoundError also for a cgroup that is removed while its file is open."""
        try:
            return (_hierarchy(controller) / cgroup.strip("/") / name).read_text().strip()
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cgroup) from error
            raise

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(grpc.RpcError):  # what follows does the same, with less grace
            self.client().remove_all()
        for client in self._clients:
            client.close()
        self.server.stop()
        processes = self._left_processes()
        sockets = _shim_sockets(processes)
        _kill_all(processes)
        for path in sockets:
            path.unlink(missing_ok=True)
        for place in sorted(_mounts_below(self.folder), reverse=True):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
        for root in [*CGROUPS.glob(f"*/{self.base}"), *CGROUPS.glob(self.base)]:
            _remove_tree(root)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serves(self) -> bool:
        client = Cri(self.socket)
        try:
            return client.ready()
        finally:
            client.close()

    def _import_images(self) -> None:
        archive = self.folder / "images.tar"
        write_images(archive)
        self.import_images(archive)
        archive.unlink()

    def _fill_cpusets(self) -> None:
        """A new cpuset is empty on cgroup v1, and nobody may run in it."""
        if UNIFIED:
            return
        folder = CGROUPS / "cpuset" / self.base
        folder.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            (folder / name).write_text((folder.parent / name).read_text())

    def _left_processes(self) -> set[int]:
        """Whoever is in our cgroups, and the shims of our containerd."""
        numbers = {
            int(word)
            for file in (_hierarchy("pids") / self.base).rglob("cgroup.procs")
            for word in file.read_text().split()
        }
        mine = f"{self.folder}/".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes()
                if b"containerd-shim" in command and mine in command:
                    numbers.add(int(process.name))
        return numbers


def _shim_sockets(processes: set[int]) -> list[Path]:
    """Shims listen in one folder of the machine, whatever containerd's configuration says."""
    inodes = set()
    for process in processes:
        with contextlib.suppress(OSError):
            inodes |= {link.readlink().name for link in Path(f"/proc/{process}/fd").iterdir()}
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return [
        Path(fields[7])
        for fields in lines
        if len(fields) > 7 and fields[7].startswith(SHIM_SOCKETS) and f"socket:[{fields[6]}]" in inodes
    ]


def _kill_all(processes: set[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while any(Path(f"/proc/{p}").exists() and not _zombie(p) for p in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _mounts_below(folder: Path) -> list[str]:
    places = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return [place for place in places if place.startswith(f"{folder}/")]


def _remove_tree(root: Path) -> None:
    """Cgroups go from the leaves up, and a killed process leaves its own a moment later."""
    for folder in [*sorted(_folders(root), key=lambda p: len(p.parts), reverse=True), root]:
        deadline = time.monotonic() + SECONDS
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _folders(root: Path) -> Iterator[Path]:
    for entry in root.iterdir():
        if entry.is_dir():
            yield entry
            yield from _folders(entry)
