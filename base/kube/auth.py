"""EDGE: credentials for a Kubernetes API server: kubeconfig, context or the pod's own service account.

The one file that imports the `kubernetes` package, inside functions. It gives an `Access`, from which `client` makes
connections and the profiler reaches Services through the API server's proxy.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from msgspec import structs

from cotenant.base.errors import ClusterError
from cotenant.base.kube.client import KubeClient
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.sections import KubeSettings

IN_CLUSTER = "in-cluster"
"""Name of the cluster whose pod this process is in."""
CLOCK_SECONDS: Final = 3.0
"""Seconds to wait for the API server's time before the machine's clock is used instead."""
_PACKAGE = threading.Lock()
"""Lock for reading credentials: the package returns the path of a certificate before it has written the file."""
_FIX = "Give --kubeconfig and --context, set KUBECONFIG, or run inside the cluster."


@dataclass(frozen=True, slots=True)
class Access:
    """The address of an API server and the credentials for it.

    `authorization()` returns the value of the header Authorization, None if only a client certificate identifies us;
    the package `kubernetes` renews a token or an exec plugin's credential that expires. An empty file name means that
    there is no such file; an empty `ca_file` means the system's certificate authorities.
    """

    cluster: str
    """Name for the store: the context's name, with "-" for each character that such a name may not have."""
    server: str
    authorization: Callable[[], str | None]
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    """Name that the server's certificate must carry, when it is not the host's."""
    proxy: str = field(default="", repr=False)
    """URL of the proxy before the server; it may contain a password."""


def connect(settings: KubeSettings) -> KubeClient:
    """Return a client for the settings' cluster, without a request yet; raise ClusterError if access is missing."""
    return KubeClient(load_access(settings), settings, reload=lambda: load_access(settings))


def clock_of(settings: KubeSettings) -> Clock:
    """Return the API server's clock, by which the cluster's objects are dated; raise ClusterError without access."""
    client = connect(settings)
    try:
        return client.clock()
    finally:
        client.close()


def clock_to_read_by(settings: KubeSettings) -> Clock:
    """Return the API server's clock, or this machine's clock if the server does not respond.

    Dashboard pages compute ages and waiting times by it.
    """
    try:
        return clock_of(structs.replace(settings, timeout_seconds=CLOCK_SECONDS, retries=0))
    except ClusterError:
        return SystemClock()


def clock_of_results(settings: KubeSettings, *, reaches_cluster: bool) -> Clock:
    """Return the clock for results that are computed from stored history, which are shown next to times of the cluster.

    It is the API server's clock if `reaches_cluster` (the kubeconfig is of the history's cluster), else this machine's.
    """
    return clock_to_read_by(settings) if reaches_cluster else SystemClock()


def load_access(settings: KubeSettings) -> Access:
    """Return the access by the kubeconfig (settings, $KUBECONFIG, ~/.kube/config), or by the pod's service account."""
    try:
        from kubernetes.config import ConfigException
        from yaml import YAMLError
    except ImportError as error:
        raise ClusterError(
            "the `kubernetes` package is not installed", fix='Run pip install "cotenant[cluster]".'
        ) from error
    try:
        with _PACKAGE:
            from kubernetes.client import Configuration

            if _runs_in_pod(settings):
                from kubernetes.config import load_incluster_config

                configuration = Configuration()
                load_incluster_config(configuration)
                return _access(IN_CLUSTER, configuration)
            from kubernetes.config import list_kube_config_contexts, load_kube_config

            path = _kubeconfig(settings)
            if not any(Path(part).expanduser().exists() for part in path.split(os.pathsep)):
                raise ClusterError(f"no access to a cluster: there is no kubeconfig {path}", fix=_FIX)
            contexts, active = list_kube_config_contexts(config_file=path)
            name = settings.context or active["name"]
            if name not in {context["name"] for context in contexts}:
                context_names = ", ".join(sorted(context["name"] for context in contexts)) or "none"
                raise ClusterError(
                    f"{path} has no context {name!r}; it has: {context_names}",
                    fix="Give one of the kubeconfig's contexts with --context.",
                )
            configuration = Configuration()
            load_kube_config(config_file=path, context=name, client_configuration=configuration, persist_config=False)
            return _access(store_name(name), configuration)
    except (TypeError, KeyError, AttributeError, UnicodeDecodeError, RecursionError) as error:  # of the file's form
        problem = f"no access to a cluster: {_kubeconfig(settings)} is not a kubeconfig: {error}"
        raise ClusterError(problem, fix=_FIX) from error
    except (ConfigException, YAMLError, OSError, ValueError) as error:
        raise ClusterError(f"no access to a cluster: {error}", fix=_FIX) from error


def present_cluster(settings: KubeSettings) -> str:
    """Return the name of the cluster that the settings reach (`Access.cluster`); in a pod, no credentials are read."""
    return IN_CLUSTER if _runs_in_pod(settings) else load_access(settings).cluster


def store_name(context: str) -> str:
    """Return the store's cluster name for a kubeconfig context: `arn:aws:eks:eu:1:cluster/shop` with "-" for "/"."""
    name = re.sub(r"[^A-Za-z0-9._@:+-]+|\.{2,}", "-", context).lstrip("._@:+-")
    return name[:200] or "cluster"


def _runs_in_pod(settings: KubeSettings) -> bool:
    explicit = settings.kubeconfig or settings.context or os.environ.get("KUBECONFIG")
    return not explicit and bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not _default_kubeconfig().exists()


def _default_kubeconfig() -> Path:
    return Path.home() / ".kube" / "config"


def _kubeconfig(settings: KubeSettings) -> str:
    """Return the path of the kubeconfig, or several paths separated by colons."""
    return settings.kubeconfig or os.environ.get("KUBECONFIG") or str(_default_kubeconfig())


def _access(cluster: str, configuration: Any) -> Access:
    return Access(
        cluster=cluster,
        server=configuration.host,
        authorization=lambda: _authorization(configuration),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name or "",
        # the kubeconfig's proxy-url or the environment's proxy, unless NO_PROXY names the host
        proxy="" if proxy_bypass(urlsplit(configuration.host).hostname or "") else configuration.proxy or "",
    )


def _authorization(configuration: Any) -> str | None:
    """Return the current value of the Authorization header; the package renews expired credentials."""
    from kubernetes.config import ConfigException

    try:
        value: str | None = configuration.get_api_key_with_prefix("BearerToken")
    except (ConfigException, OSError, ValueError) as error:
        raise ClusterError(f"credentials for {configuration.host} cannot be renewed: {error}", fix=_FIX) from error
    return value
