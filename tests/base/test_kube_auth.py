from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cotenant.base.errors import ClusterError, ClusterForbidden, ClusterUnreachable
from cotenant.base.kube import client as kube_client
from cotenant.base.kube import connect
from cotenant.base.kube.auth import load_access, store_name
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from tests.support import api_server

pytestmark = [pytest.mark.slow, pytest.mark.server]

NODES = "/api/v1/nodes"
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")
EXEC_API = "client.authentication.k8s.io/v1"


@pytest.fixture(autouse=True)
def no_cluster_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", *PROXIES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_token_of_the_kubeconfig_is_sent(api: Any, kubeconfig: Any) -> None:
    api.objects[NODES] = []
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    assert client.list(NODES) == []
    assert api.requests[0][1:] == ("Bearer secret", "")
    assert client.access.cluster == "arn:aws:eks:eu-1:1:cluster-shop"


def test_a_client_certificate_is_presented(api: Any, kubeconfig: Any, certificates: Path) -> None:
    api.objects[NODES] = []
    data = {
        f"client-{what}-data": base64.b64encode((certificates / file).read_bytes()).decode()
        for what, file in (("certificate", "jane.pem"), ("key", "jane.key"))
    }
    connect(KubeSettings(kubeconfig=kubeconfig(api.url, data))).list(NODES)
    assert api.requests[0][1:] == ("", "jane")


def test_basic_credentials_are_sent(api: Any, kubeconfig: Any) -> None:
    api.objects[NODES] = []
    connect(KubeSettings(kubeconfig=kubeconfig(api.url, {"username": "u", "password": "p"}))).list(NODES)
    # the base64 of u:p is dTpw
    assert api.requests[0][1] == "Basic dTpw"


def exec_user(folder: Path, expires: str | None = None) -> dict[str, Any]:
    """An exec plugin whose token counts how often it ran."""
    plugin = folder / "plugin.py"
    count = folder / "count"
    plugin.write_text(
        f"import json, pathlib\ncount = pathlib.Path({str(count)!r})\n"
        "n = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(n))\n"
        f"status = {{'token': f'run-{{n}}'}} | ({{'expirationTimestamp': {expires!r}}} if {expires!r} else {{}})\n"
        f"print(json.dumps({{'apiVersion': {EXEC_API!r}, 'kind': 'ExecCredential', 'status': status}}))\n"
    )
    command = {"apiVersion": EXEC_API, "command": sys.executable, "args": [str(plugin)]}
    return {"exec": {**command, "interactiveMode": "Never"}}


def test_an_exec_plugin_gives_the_token_and_runs_again_after_a_401(api: Any, kubeconfig: Any, tmp_path: Path) -> None:
    api.objects[NODES] = []
    api.tokens = {"Bearer run-1"}
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url, exec_user(tmp_path))))
    client.list(NODES)
    api.tokens = {"Bearer run-2"}
    assert client.list(NODES) == []
    assert [authorization for _, authorization, _ in api.requests] == ["Bearer run-1", "Bearer run-1", "Bearer run-2"]


def test_an_expired_plugin_token_is_renewed_before_it_is_refused(api: Any, kubeconfig: Any, tmp_path: Path) -> None:
    api.objects[NODES] = []
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url, exec_user(tmp_path, "2020-01-01T00:00:00Z"))))
    client.list(NODES)
    client.list(NODES)
    sent = [authorization for _, authorization, _ in api.requests]
    assert sent[0] != sent[1]


def test_credentials_that_are_refused_twice_are_an_error_that_says_log_in(api: Any, kubeconfig: Any) -> None:
    api.tokens = {"Bearer other"}
    with pytest.raises(ClusterForbidden, match="401") as caught:
        connect(KubeSettings(kubeconfig=kubeconfig(api.url))).list(NODES)
    assert "Log in again" in caught.value.fix
    assert [path.partition("?")[0] for path, _, _ in api.requests] == [NODES, NODES, "/readyz"]


@pytest.mark.parametrize(
    ("answered", "readiness", "error"),
    [
        (False, 500, ClusterUnreachable),  # it says that it is not ready
        (False, 200, ClusterForbidden),
        (False, 403, ClusterForbidden),  # nobody is granted /readyz there, as far as anybody knows
        (True, 403, ClusterUnreachable),  # it let us in before, so it may still load roles
    ],
)
def test_a_server_that_still_loads_roles_is_starting_and_has_not_refused_a_right(
    api: Any, kubeconfig: Any, answered: bool, readiness: int, error: type[ClusterError]
) -> None:
    api.objects[NODES] = []
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    if answered:
        client.list(NODES)
    api.once = [lambda handler, status=status: handler.status(status, "no rights yet") for status in (403, readiness)]
    with pytest.raises(error) as caught:
        client.list(NODES)
    assert type(caught.value) is error
    assert ("is starting and cannot check rights yet (403)" in caught.value.message) is (error is ClusterUnreachable)


def test_a_ready_server_that_knows_our_account_no_more_is_not_called_starting(api: Any, kubeconfig: Any) -> None:
    api.objects[NODES] = []
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    client.list(NODES)
    # the list, the list with credentials read again, /readyz with them; without any it answers that it is ready
    api.once = [lambda handler, status=status: handler.status(status, "ok") for status in (401, 401, 401, 200)]
    with pytest.raises(ClusterForbidden, match=r"does not accept our credentials \(401\)") as caught:
        client.list(NODES)
    assert "starting" not in str(caught.value)
    assert api.once == []


def test_a_server_that_refuses_for_longer_than_a_start_takes_has_refused_a_right(
    api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_client, "STARTING_SECONDS", 0.0)
    api.objects[NODES] = []
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    client.list(NODES)
    api.forbidden = {NODES, "/readyz"}
    with pytest.raises(ClusterForbidden):
        client.list(NODES)


def test_a_certificate_of_a_stranger_is_refused_unless_told_otherwise(
    api: Any, kubeconfig: Any, certificates: Path
) -> None:
    api.objects[NODES] = []
    strict = kubeconfig(api.url, **{"certificate-authority": str(certificates / "stranger.pem")})
    with pytest.raises(ClusterError, match="certificate verify failed"):
        connect(KubeSettings(kubeconfig=strict)).list(NODES)
    assert api.requests == []
    lax = kubeconfig(api.url, **{"certificate-authority": None, "insecure-skip-tls-verify": True})
    assert connect(KubeSettings(kubeconfig=lax)).list(NODES) == []


def test_the_tls_server_name_replaces_the_hosts_name(kubeconfig: Any, certificates: Path) -> None:
    server = api_server.ApiServer(certificates / "named.pem", None)
    server.objects[NODES] = []
    try:
        with pytest.raises(ClusterError, match="certificate verify failed"):
            connect(KubeSettings(kubeconfig=kubeconfig(server.url))).list(NODES)
        named_server = kubeconfig(server.url, **{"tls-server-name": "kubernetes.example"})
        assert connect(KubeSettings(kubeconfig=named_server)).list(NODES) == []
    finally:
        server.stop()


def test_a_plain_http_server_such_as_kubectl_proxy_is_asked_without_tls(kubeconfig: Any) -> None:
    server = api_server.ApiServer(None, None)
    server.objects[NODES] = []
    try:
        assert (
            connect(KubeSettings(kubeconfig=kubeconfig(server.url, {"username": "u", "password": "p"}))).list(NODES)
            == []
        )
    finally:
        server.stop()


@pytest.mark.parametrize("where", ["proxy-url", "environment", "bypassed"])
@pytest.mark.parametrize("user", ["", "ann:p@ss:word"])
def test_a_proxy_is_tunnelled_through_unless_the_host_is_bypassed(
    where: str, user: str, api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.objects[NODES] = []
    proxy = api_server.Tunnel(user)
    threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://{quote(user, safe=':')}{'@' if user else ''}127.0.0.1:{proxy.server_address[1]}"
    if where != "proxy-url":
        monkeypatch.setenv("HTTPS_PROXY", url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1" if where == "bypassed" else "")
    entry = {"proxy-url": url} if where == "proxy-url" else {}
    try:
        client = connect(KubeSettings(kubeconfig=kubeconfig(api.url, **entry)))
        assert client.list(NODES) == []
        client.close()
        assert proxy.targets == ([] if where == "bypassed" else [api.url.removeprefix("https://")])
    finally:
        proxy.shutdown()
        proxy.server_close()


def test_an_exec_plugin_that_fails_is_an_error_that_says_nothing_was_sent(api: Any, kubeconfig: Any) -> None:
    api.tokens = {"Bearer anything"}
    command = {"apiVersion": EXEC_API, "command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    user = {"exec": {**command, "interactiveMode": "Never"}}
    with pytest.raises(ClusterForbidden, match="got no credentials") as caught:
        connect(KubeSettings(kubeconfig=kubeconfig(api.url, user))).list(NODES)
    assert "Log in again" in caught.value.fix


def test_a_path_prefix_of_the_server_is_kept(api: Any, kubeconfig: Any) -> None:
    api.objects["/k8s/clusters/c-1" + NODES] = []
    connect(KubeSettings(kubeconfig=kubeconfig(api.url + "/k8s/clusters/c-1"))).list(NODES)
    assert api.requests[0][0] == f"/k8s/clusters/c-1{NODES}?limit=500"


def test_an_unknown_context_is_an_error_that_lists_the_known_ones(api: Any, kubeconfig: Any) -> None:
    with pytest.raises(ClusterError, match=r"'nosuch'; it has: arn:aws:eks:eu-1:1:cluster/shop, other"):
        connect(KubeSettings(kubeconfig=kubeconfig(api.url), context="nosuch"))
    assert load_access(KubeSettings(kubeconfig=kubeconfig(api.url), context="other")).cluster == "other"


@pytest.mark.parametrize("content", [None, "", "a: [", "clusters: []", json.dumps({"current-context": "x"})])
def test_a_missing_or_broken_kubeconfig_is_an_error_with_a_fix(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ClusterError) as caught:
        connect(KubeSettings(kubeconfig=str(path)))
    assert "kubeconfig" in caught.value.fix
    assert (f"there is no kubeconfig {path}" in caught.value.message) is (content is None)


NUMBER_FOR_SERVER = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: 5}}]
users: []
"""


@pytest.mark.parametrize("content", [b"just words", b"- a list", b"\xff\xfe", NUMBER_FOR_SERVER.encode()])
def test_a_file_that_has_not_the_form_of_a_kubeconfig_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ClusterError, match=f"{path} is not a kubeconfig: "):
        connect(KubeSettings(kubeconfig=str(path)))


def test_no_kubeconfig_at_all_is_an_error_with_a_fix() -> None:
    with pytest.raises(ClusterError, match="no access to a cluster"):
        connect(KubeSettings())


def test_kubeconfig_from_the_environment_is_used(api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(api.url))
    assert load_access(KubeSettings()).server == api.url


def test_inside_a_pod_the_service_account_speaks_for_us(
    api: Any, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account's files lie at fixed places of the pod's root; the package is told of others."""
    token = tmp_path / "token"
    token.write_text("from-the-pod")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(certificates / "authority.pem"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.server_address[1]))
    api.objects[NODES] = []
    client = connect(KubeSettings())
    assert client.list(NODES) == []
    assert api.requests[0][1].lower() == "bearer from-the-pod"
    assert client.access.cluster == "in-cluster"


def test_a_context_becomes_a_name_that_the_store_accepts(tmp_path: Path) -> None:
    for context in ("arn:aws:eks:eu:1:cluster/shop", "../../etc", "a b", "", "///", "x" * 300, "gke_p_z_c", "é"):
        assert Store(tmp_path.as_uri(), store_name(context)).cluster
    assert store_name("gke_p_z_c") == "gke_p_z_c"


def test_the_kubernetes_package_is_not_imported_until_somebody_connects() -> None:
    modules = "cotenant.base.kube, cotenant.base.kube.live, cotenant.base.kube.discovery"
    code = f"import sys, {modules}; print('kubernetes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "False"


def test_a_proxy_without_a_port_is_asked_on_that_of_its_scheme(kubeconfig: Any) -> None:
    path = kubeconfig("https://api.example", **{"proxy-url": "http://127.0.0.1"})
    opened = connect(KubeSettings(kubeconfig=path))._connection._connection
    assert (opened.host, opened.port) == ("127.0.0.1", 80)


def test_an_unusable_proxy_is_named_without_its_password(kubeconfig: Any) -> None:
    path = kubeconfig("https://api.example", **{"proxy-url": "socks5://ann:secret@10.0.0.1:1080"})
    with pytest.raises(ClusterError, match=r"proxy .socks5://\*+@10\.0\.0\.1:1080. is not supported"):
        connect(KubeSettings(kubeconfig=path))


def test_an_ipv6_address_without_a_port_is_asked_on_that_of_its_scheme(kubeconfig: Any) -> None:
    opened = connect(KubeSettings(kubeconfig=kubeconfig("https://[fd00::1]")))._connection._connection
    assert (opened.host, opened.port) == ("fd00::1", 443)


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "{a: " * 5000], ids=["lists", "maps"])
def test_a_kubeconfig_that_is_nested_without_end_is_refused_in_words(tmp_path: Path, text: str) -> None:
    file = tmp_path / "deep"
    file.write_text(text)
    with pytest.raises(ClusterError, match="no access to a cluster") as caught:
        load_access(KubeSettings(kubeconfig=str(file)))
    assert f"{file} is not a kubeconfig: maximum recursion depth" in caught.value.message
