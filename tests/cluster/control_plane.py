"""A real Kubernetes control plane on the loopback: etcd, kube-apiserver, controller-manager, scheduler and kwok.

    with ControlPlane(folder) as plane:
        plane.api().create("/api/v1/namespaces", {...})
        plane.client(account(plane, NAME))    # the product's own client, with the rights of deploy/
        plane.user("jane", ["dev"])           # kubeconfig of somebody with no rights but those that a test grants

Ports are free ones, certificates are made for it, everything lies in `folder` and ends with the process that started
it. Nodes exist only when `fake_nodes` makes them: kwok keeps their leases and runs their pods.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from cotenant.base.kube import KubeClient, connect
from cotenant.base.settings.sections import KubeSettings
from tests.cluster.api import Api, ApiError, client_tls
from tests.cluster.binaries import find
from tests.cluster.pki import SERVICE_ADDRESS, Authority, write_kubeconfig
from tests.cluster.process import PortTaken, Server, free_port

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
KUBERNETES = (APISERVER, CONTROLLER_MANAGER, SCHEDULER)
"""Programs that a release has."""
STAGES = Path(__file__).with_name("stages.yaml")
FAKE_NODE = ("kwok.x-k8s.io/node", "fake")
"""Annotation of the nodes that kwok plays."""
ATTEMPTS = 5
"""Times another port is tried when somebody else takes it first."""
_FAST = ("--kube-api-qps", "500", "--kube-api-burst", "1000")
"""Without it these two ask 20 to 50 times a second at most."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is started, and how it differs from the default."""

    components: frozenset[str] = frozenset({CONTROLLER_MANAGER, SCHEDULER, KWOK})
    """Besides etcd and the API server."""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Component -> further arguments."""
    scheduler: Mapping[str, Any] | None = None
    """Fields of a KubeSchedulerConfiguration, such as extenders and profiles; the client's connection is filled in."""
    heartbeats: bool = True
    """Nodes live by their leases, as everywhere. False for thousands of nodes, whose leases alone would be a
    write a second for every ten nodes: nodes stay as they were made, and nobody writes on their behalf."""
    keep: bool = False
    """Outlive the process that starts it."""
    release: str = ""
    """Suffix of the Kubernetes programs: "" or `binaries.NEXT`."""


class ControlPlane:
    """Started on entry, ended on exit. `servers` has each component by name, to pause, kill and start again."""

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder
        self.options = options or Options()
        self.servers: dict[str, Server] = {}
        self.server = ""
        """The API server's URL."""
        self.etcd_url = ""
        self.authority = Authority(folder / "pki")
        self._users: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- life ---------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start everything and wait until pods could be created and scheduled."""
        self.start_etcd()
        self.authority = Authority.create(self.folder / "pki")
        self.authority.issue("apiserver", APISERVER, hosts=["127.0.0.1", SERVICE_ADDRESS, "localhost", "kubernetes"])
        self._run({APISERVER: (self._apiserver, self.ready)})
        self._run(self._clients())

    def start_etcd(self) -> None:
        """Start etcd alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run({ETCD: (self._etcd, self._etcd_ready)})

    def stop(self) -> None:
        """End every process; nothing of a test cluster is worth an orderly end. A second call does nothing."""
        for server in reversed(self.servers.values()):
            server.kill()

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again on its port with what etcd has; waits until all is ready.

        Its own clients start anew as well: after several restarts in two minutes they wait half a minute for the next
        try, and with them every test that makes a namespace or a pod.
        """
        server, clients = self.servers[APISERVER], self._clients()
        for name in (APISERVER, *clients):
            self.servers[name].kill()
        server.start()
        server.wait_until(self.ready)
        for name in clients:
            self.servers[name].start()
        for name, (_, ready) in clients.items():
            self.servers[name].wait_until(ready)

    def ready(self) -> bool:
        """Whether the API server says so itself."""
        api = self.api(timeout=5)
        try:
            return api.ask("GET", "/readyz").get("message") == "ok"
        except (OSError, ApiError):
            return False
        finally:
            api.close()

    def compact(self) -> int:
        """Make etcd forget every revision before the present one, which it returns."""
        revision = int(self.etcd("kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"])
        self.etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def etcd(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One call of etcd's own JSON API, such as `kv/range`."""
        request = urllib.request.Request(f"{self.etcd_url}/v3/{name}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            document: dict[str, Any] = json.loads(response.read())
        return document

    # --- ways in ------------------------------------------------------------------------------------------------------
    @property
    def admin_kubeconfig(self) -> Path:
        """The cluster administrator's."""
        return self.user("admin", ["system:masters"])

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Kubeconfig of a user proven by a certificate; without a role of a test it may do nothing."""
        kubeconfig = self._users.get((name, tuple(groups)))
        if kubeconfig:
            return kubeconfig
        file = f"user-{len(self._users)}-{re.sub(r'[^a-z0-9-]', '-', name.lower())}"
        pair = self.authority.issue(file, name, groups)
        path = write_kubeconfig(self.folder / f"{file}.kubeconfig", self.server, self.authority.certificate, *pair)
        self._users[name, tuple(groups)] = path
        return path

    def api(self, kubeconfig: Path | None = None, timeout: float = 60.0) -> Api:
        """A plain client for assertions, as the administrator or as whom a kubeconfig names."""
        path = kubeconfig or self.admin_kubeconfig
        return Api(*_access(path, path.stat().st_mtime_ns), timeout)

    def client(self, kubeconfig: Path, **settings: Any) -> KubeClient:
        """The product's client as somebody, mostly `account(plane, NAME)`; `settings` are fields of KubeSettings."""
        return connect(KubeSettings(kubeconfig=str(kubeconfig), **settings))

    def admin_client(self) -> KubeClient:
        """The same as administrator, for what installs and for a test's own set-up; see tests/house."""
        return self.client(self.admin_kubeconfig)

    def kubectl(self, *arguments: str, text: str = "", kubeconfig: Path | None = None) -> str:
        """What kubectl prints; CalledProcessError with its `stderr` when it fails."""
        command = [str(find("kubectl")), "--kubeconfig", str(kubeconfig or self.admin_kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    def requests(self, verb: str, resource: str) -> float:
        """Requests that the API server has answered so far, from its own metrics; verb as there: POST, PATCH, LIST."""
        path = self.kubectl("get", "--raw", "/metrics")
        lines = [x for x in path.splitlines() if x.startswith("apiserver_request_total{")]
        return sum(float(x.rsplit(" ", 1)[1]) for x in lines if f'verb="{verb}"' in x and f'resource="{resource}"' in x)

    def scheduler_samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Samples of the scheduler's own metrics by name and labels."""
        text = self.kubectl("--server", f"https://127.0.0.1:{self._ports[SCHEDULER]}", "--insecure-skip-tls-verify",
                            "get", "--raw", "/metrics")  # fmt: skip
        families = text_string_to_metric_families(text)
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    # --- the processes ------------------------------------------------------------------------------------------------
    def _clients(self) -> dict[str, tuple[Callable[[], list[str]], Callable[[], bool]]]:
        """Components that talk to the API server: name -> its command and whether it is ready."""
        components = {
            CONTROLLER_MANAGER: (self._controller_manager, self._accounts_ready),
            SCHEDULER: (self._scheduler, lambda: _says_ok(f"https://127.0.0.1:{self._ports[SCHEDULER]}/readyz")),
            KWOK: (self._kwok, lambda: _says_ok(f"http://127.0.0.1:{self._ports[KWOK]}/healthz")),
        }
        return {name: both for name, both in components.items() if name in self.options.components}

    def _run(self, parts: Mapping[str, tuple[Callable[[], list[str]], Callable[[], bool]]]) -> None:
        """Start components together, each on ports of its own, and wait until all are ready."""
        for name, (command, _) in parts.items():
            self._start(name, command)
        for name, (command, ready) in parts.items():
            for attempt in range(ATTEMPTS):
                try:
                    self.servers[name].wait_until(ready)
                except PortTaken:  # somebody was faster: again on another one
                    if attempt == ATTEMPTS - 1:
                        raise
                    self._start(name, command)
                else:
                    break

    def _start(self, name: str, command: Callable[[], list[str]]) -> None:
        program = f"{name}{self.options.release}" if name in KUBERNETES else name
        line = [str(find(program)), *command(), *self.options.extra.get(name, ())]
        self.servers[name] = Server(name, line, self.folder / f"{name}.log", self.options.keep)
        self.servers[name].start()

    def _etcd_ready(self) -> bool:
        return _says_ok(f"{self.etcd_url}/health")

    def _accounts_ready(self) -> bool:
        """The controller-manager works: pods are refused before it has made their namespace's account."""
        return self.api().exists("/api/v1/namespaces/default/serviceaccounts/default")

    def _etcd(self) -> list[str]:
        self.etcd_url, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        pki, port = self.folder / "pki", free_port()
        self.server = f"https://127.0.0.1:{port}"
        self._users.clear()
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.99.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
            *([] if self.options.heartbeats else ["--disable-admission-plugins=TaintNodesByCondition"]),
        ]

    def _controller_manager(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            *self._serving(CONTROLLER_MANAGER),
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--use-service-account-credentials",
            "--concurrent-deployment-syncs=10",
            # nodes stay Ready that no kubelet speaks for, and all while a test pauses the API server
            "--node-monitor-grace-period=2h",
            "--node-startup-grace-period=2h",  # the same for nodes whose condition nobody has written yet
            *([] if self.options.heartbeats else ["--controllers=*,-node-lifecycle-controller"]),
        ]

    def _scheduler(self) -> list[str]:
        argv = self._serving(SCHEDULER)
        if self.options.scheduler is None:
            return argv
        kubeconfig = str(self.user(f"system:{SCHEDULER}"))
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
            **self.options.scheduler,
        }
        path = self.folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(document))
        return [*argv, f"--config={path}"]

    def _serving(self, name: str) -> list[str]:
        """Arguments that the two Kubernetes components share."""
        kubeconfig = self.user(f"system:{name}")
        self._ports[name] = free_port()
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--secure-port={self._ports[name]}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            *_FAST,
        ]

    def _kwok(self) -> list[str]:
        self._ports[KWOK] = free_port()
        return [
            f"--kubeconfig={self.admin_kubeconfig}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={'='.join(FAKE_NODE)}",
            f"--server-address=127.0.0.1:{self._ports[KWOK]}",
            f"--config={STAGES}",
            f"--node-lease-duration-seconds={40 if self.options.heartbeats else 0}",
        ]


@lru_cache(maxsize=64)
def _access(kubeconfig: Path, _written_ns: int) -> tuple[str, ssl.SSLContext]:
    """Server and credentials of a kubeconfig as it was written then: tests that wait ask for them 20 times a second."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    tls = client_tls(cluster["certificate-authority"], user["client-certificate"], user["client-key"])
    return cluster["server"], tls


def _says_ok(url: str) -> bool:
    """Whether a server of ours answers 200; its certificate is one it made itself."""
    try:
        with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as response:
            return response.status == 200
    except OSError:
        return False
