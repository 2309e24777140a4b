"""The Kubernetes programs that the test cluster runs: found, or built from the Go modules beside this file.

Order, program by program: the folder that `KUBEBUILDER_ASSETS` names, when it has it; else the user's cache, one folder
a module named by the digest of what it is built from, so that a fresh clone finds them again; else a build into that
folder, which `make cluster-binaries` does ahead of the tests. Building needs Go and, the first time, the Go module
proxy; running needs neither.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ASSETS = "KUBEBUILDER_ASSETS"
WITHOUT = "COTENANT_TEST_WITHOUT_PROGRAMS"
"""Set by `make test`: no built program exists then, so a test that needs one and lacks the mark `cluster` fails."""
KUBERNETES_VERSION = "v1.35.4"
BUILD = ("build", "-trimpath", "-buildvcs=false")
NEXT_VERSION = "v1.36.3"
"""The release after it, on which `make soak` proves the same contract: its programs carry the suffix NEXT."""
NEXT = "-1.36"
_VERSION = "k8s.io/component-base/version"


class MissingBinaries(RuntimeError):
    """Programs that are not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of ours whose dependencies are programs: name of a program -> the package that it is built from."""

    name: str
    programs: Mapping[str, str]
    link_flags: str = "-s -w"
    tags: str = ""
    """Build tags."""

    cgo: bool = False
    """Whether it is compiled with C, which takes a C compiler."""

    locked_with: str = ""
    """Folder whose go.mod it shares with other modules: what two of them use is compiled once."""

    @property
    def folder(self) -> Path:
        """Where its go.mod and go.sum are."""
        return HERE / "modules" / (self.locked_with or self.name)

    def digest(self) -> str:
        """What a program depends on: the locked sources, the flags, the kind of machine."""
        hash_of_all = hashlib.sha256()
        for file in (self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("*.go"))):
            hash_of_all.update(file.read_bytes())
        own = self.name if self.locked_with else ""
        flags = " ".join(filter(None, (own, self.link_flags, self.tags, "cgo" if self.cgo else "")))
        hash_of_all.update(f"{BUILD} {flags} {platform.system()} {platform.machine()}".encode())
        return hash_of_all.hexdigest()[:16]


CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
"""A container runtime with NRI, newer than Debian's; built only by who asks for it, as `kubelet`."""
_CONTAINERD = "github.com/containerd/containerd/v2"
_CONTAINERD_VERSION = f"-X {_CONTAINERD}/version.Version=v2.4.2"
_HELM_VERSIONS = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
    for package in ("chartutil", "lint/rules")
    for part in ("Major=1", "Minor=35")
)
"""The Kubernetes for which Helm renders where no cluster is asked; unset it is 1.20."""
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
KOORDINATOR = ("koord-manager", "koord-scheduler", "koordlet")
"""Koordinator's own programs, beside which `make soak` tries cotenant; koordlet takes libpfm's header too."""
KOORDINATOR_TYPES = "koordinator-types"
"""A reader of what we write, by Koordinator's own Go types."""
_KOORDINATOR = "github.com/koordinator-sh/koordinator"
NEXT_PROGRAMS = tuple(f"{name}{NEXT}" for name in _KUBERNETES[:3])
"""The next release's control plane; kubectl may be one release behind its server."""


def _kubernetes(version: str, names: Iterable[str], suffix: str = "") -> Module:
    """Programs of one release of Kubernetes, which tell the release when asked."""
    major, minor, _ = version.removeprefix("v").split(".")
    linked = f"-X {_VERSION}.gitVersion={version} -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    packages = {f"{n}{suffix}": f"k8s.io/kubernetes/cmd/{n}" for n in names}
    return Module(f"kubernetes{suffix}", packages, f"-s -w {linked}")


_SHARED = "around-kubernetes"
MODULES = (
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, locked_with=_SHARED),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, locked_with=_SHARED),
    Module("dex", {"dex": "github.com/dexidp/dex/cmd/dex"}, cgo=True),
    Module("cert-manager", {"cert-manager": "."}),
    Module("koordinator", {n: f"{_KOORDINATOR}/cmd/{n}" for n in KOORDINATOR}, cgo=True),
    Module(KOORDINATOR_TYPES, {KOORDINATOR_TYPES: "."}),
    Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, f"-s -w {_HELM_VERSIONS}", locked_with=_SHARED),
    Module("karpenter", {"karpenter": "sigs.k8s.io/karpenter/kwok"}),
    Module("thanos", {"thanos": "github.com/thanos-io/thanos/cmd/thanos"}, tags="netgo slicelabels"),
    Module("versitygw", {"versitygw": "github.com/versity/versitygw/cmd/versitygw"}, locked_with=_SHARED),
    Module(
        "containerd",
        {n: f"{_CONTAINERD}/cmd/{n}" for n in CONTAINERD},
        f"-s -w {_CONTAINERD_VERSION}",
        "no_btrfs",
        locked_with=_SHARED,
    ),
    _kubernetes(KUBERNETES_VERSION, _KUBERNETES),
    _kubernetes(NEXT_VERSION, _KUBERNETES[:3], NEXT),
)
CONTROL_PLANE = ("etcd", "kwok", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""What the tests run; `kubelet` is built only by who asks for it."""


def sources(name: str, path: str) -> Path:
    """The folder of a Go module that one of ours requires, from Go's own cache or the module proxy."""
    module = next(m for m in MODULES if m.name == name)
    if os.environ.get(WITHOUT):
        raise MissingBinaries(f"{path}: a test that needs Go has the mark `cluster`")
    command = ["go", "list", "-m", "-f", "{{.Dir}}", path]
    subprocess.run(["go", "mod", "download", path], cwd=module.folder, check=True, capture_output=True)
    done = subprocess.run(command, cwd=module.folder, check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def find(name: str) -> Path:
    """A program's path; MissingBinaries when it is neither given nor built."""
    path = _given(name) or _cached(name)
    if not _found(name):
        raise MissingBinaries(f"{path} is missing: run `make {_target(name)}`, or set {ASSETS} to a folder that has it")
    return path


def installed(names: Iterable[str] = CONTROL_PLANE) -> bool:
    """Whether every program is there."""
    return all(_found(name) for name in names)


def ensure(names: Iterable[str] = CONTROL_PLANE) -> None:
    """Build what is missing, one process at a time, telling what it does; MissingBinaries when it cannot."""
    if os.environ.get(WITHOUT):
        raise MissingBinaries(f"{', '.join(names)}: a test that needs a built program has the mark `cluster`")
    for module in MODULES:
        if unbuilt := [n for n in names if n in module.programs and not _found(n)]:
            with _locked(_cache() / f"{module.name}.lock"):
                if missing := [n for n in unbuilt if not _cached(n).is_file()]:
                    _build(module, missing)


def adopt(folder: Path) -> None:
    """Copy programs that were built elsewhere from the very same modules and flags into the cache."""
    for module in MODULES:
        for name in module.programs:
            if (folder / name).is_file() and not _cached(name).is_file():
                _cached(name).parent.mkdir(parents=True, exist_ok=True)
                draft = _cached(name).with_suffix(f".{os.getpid()}")
                shutil.copy2(folder / name, draft)
                draft.rename(_cached(name))


def _given(name: str) -> Path | None:
    folder = os.environ.get(ASSETS)
    path = Path(folder) / name if folder else None
    return path if path and path.is_file() else None


def _found(name: str) -> bool:
    return not os.environ.get(WITHOUT) and (_given(name) or _cached(name)).is_file()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cotenant" / "testcluster"


def _cached(name: str) -> Path:
    module = next((m for m in MODULES if name in m.programs), None)
    if module is None:
        raise MissingBinaries(f"{name} is none of the test cluster's programs")
    return _cache() / f"{module.name}-{module.digest()}" / name


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file's lock; the kernel lets go of it when its holder ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(module: Module, names: list[str]) -> None:
    """Build into a folder of its own, then move each program to its name, so that a half-written one is never found."""
    go = shutil.which("go")
    if go is None:
        raise MissingBinaries(
            f"Go is needed to build {', '.join(names)} and is not installed: get it from https://go.dev/dl/ "
            f"({_go_line(module)} or newer; Debian 12's is too old), or set {ASSETS} to a folder that has them"
        )
    target = _cached(names[0]).parent
    target.mkdir(parents=True, exist_ok=True)
    print(f"building {', '.join(names)} ({_hint(module)}) ...", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target, prefix=".build-") as draft:
        # One package may be named; several share the compiler's work and get the names of their folders.
        output = f"{draft}/{names[0]}" if len(names) == 1 else f"{draft}/"
        packages = [module.programs[n] for n in names]
        tags = ("-tags", module.tags) if module.tags else ()
        _run([go, *BUILD, *tags, "-ldflags", module.link_flags, "-o", output, *packages], module)
        for name, package in zip(names, packages, strict=True):
            (Path(output) if len(names) == 1 else Path(draft) / package.rpartition("/")[2]).rename(target / name)
    print(f"built {', '.join(names)} in {time.monotonic() - start:.0f} s: {target}", flush=True)


def _run(command: list[str], module: Module) -> None:
    environment = {**os.environ, "CGO_ENABLED": str(int(module.cgo))}
    done = subprocess.run(command, cwd=module.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingBinaries(f"{' '.join(command)} in {module.folder} failed:\n{done.stderr[-3000:]}")


def _go_line(module: Module) -> str:
    return next(line for line in (module.folder / "go.mod").read_text().splitlines() if line.startswith("go "))


def _hint(module: Module) -> str:
    return "the first time this takes minutes" if module.name.startswith("kubernetes") else "a minute or two"


def _target(name: str) -> str:
    if name in (*KOORDINATOR, KOORDINATOR_TYPES):
        return "koordinator-binaries"
    if name in ("thanos", "karpenter"):
        return f"{name}-binary"
    return "cluster-binaries-next" if name in (*NEXT_PROGRAMS, "cert-manager") else "cluster-binaries"


def main(arguments: list[str]) -> int:
    """Build what the named programs, or all but kubelet, need; `--adopt FOLDER` takes them from a folder instead."""
    try:
        if arguments[:1] == ["--adopt"]:
            adopt(Path(arguments[1]))
        ensure(arguments if arguments and arguments[0] != "--adopt" else CONTROL_PLANE)
    except MissingBinaries as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
