"""With whose rights the cluster is asked: on a real API server that knows people by a proxy or by their own tokens."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.base.errors import ClusterForbidden
from cotenant.base.kube import KubeClient, Writer, access_review
from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kubernetes.intent import Address, Apply, Patch
from cotenant.base.people import IdentitySource, NotAllowed, Person
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.access import cluster_access
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.live_context import who as asked_who
from tests.cluster.control_plane import APISERVER, ControlPlane, Options
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.support import access as support
from tests.support.oidc_provider import CLIENT, Provider, running

APPLIER = {
    "rules": [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
    ]
}


def deployment(name: str, namespace: str) -> Address:
    return Address("apps/v1", "deployments", name, namespace)


def noted(address: Address, note: str) -> Patch:
    """A change of one annotation."""
    return Patch(address, ({"op": "add", "path": "/metadata/annotations", "value": {"note": note}},), why="test")


def settled(plane: ControlPlane, namespace: str, name: str = "shop") -> Address:
    """A Deployment to act on."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": name}, "spec": spec}
    plane.api().create(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    return deployment(name, namespace)


def bind(plane: ControlPlane, namespace: str, user: str) -> None:
    """What a RoleBinding of the applier role gives somebody there."""
    api, base = plane.api(), f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    if not api.exists(f"{base}/roles/applier"):
        api.create(f"{base}/roles", {"metadata": {"name": "applier"}, **APPLIER})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    name = unique_name("bound")
    api.create(f"{base}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


# --- a proxy says who it is: our account, after a review -------------------------------------------------------------
@pytest.fixture
def ours(control_plane: ControlPlane, namespace: str) -> Path:
    """Our account: it may ask what others may, and apply in one namespace; nothing else."""
    user = unique_name("dashboard")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    control_plane.api().create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
    bind(control_plane, namespace, user)
    return control_plane.user(user)


@contextmanager
def through_proxy(kubeconfig: Path, name: str, *groups: str, **proxy: str) -> Iterator[KubeClient]:
    kube = KubeSettings(kubeconfig=str(kubeconfig))
    door = cluster_access.by_way(kube, support.by_proxy("10.0.0.0/8", proxy=proxy), kubeconfig_door(kube))
    with door(Person(name, groups, IdentitySource.PROXY)) as client:
        yield client


def test_a_person_of_a_proxy_does_there_what_the_cluster_lets_them(
    control_plane: ControlPlane, namespace: str, ours: Path
) -> None:
    place = settled(control_plane, namespace)
    with through_proxy(ours, "ann") as client:
        with pytest.raises(ClusterForbidden, match=f"let ann get deployments.apps in namespace {namespace}") as raised:
            client.get(place.path)
        assert "kubectl create rolebinding" in raised.value.fix and "--user=ann" in raised.value.fix
        with pytest.raises(ClusterForbidden, match=r"let ann patch deployments\.apps"):
            Writer(client, "test").send(noted(place, "by ann"))
    bind(control_plane, namespace, "ann")
    with through_proxy(ours, "ann") as client:
        assert (client.get(place.path) or {})["metadata"]["name"] == "shop"
        assert len(client.list(place.collection)) == 1
        Writer(client, "test").send(noted(place, "by ann"))
    assert control_plane.api().get(place.path)["metadata"]["annotations"]["note"] == "by ann"


def test_neither_the_persons_rights_nor_ours_are_widened(control_plane: ControlPlane, ours: Path) -> None:
    elsewhere = create_namespace(control_plane.api(), unique_name("elsewhere"))
    place = settled(control_plane, elsewhere)
    bind(control_plane, elsewhere, "bob")
    with through_proxy(ours, "bob") as client, pytest.raises(ClusterForbidden, match=r"cannot get deployments\.apps"):
        client.get(place.path)  # bob may, our account may not: the API server itself refuses us
    assert "note" not in control_plane.api().get(place.path)["metadata"].get("annotations", {})


def test_what_somebody_may_is_asked_about_them_and_not_about_us(
    control_plane: ControlPlane, namespace: str, ours: Path
) -> None:
    bind(control_plane, namespace, "oidc:cara")
    with through_proxy(ours, "cara", cluster_user_prefix="oidc:") as client:
        assert access_review(client, "patch", "deployments", "apps", namespace)
        assert not access_review(client, "delete", "deployments", "apps", namespace)
    with through_proxy(ours, "cara") as client:
        assert not access_review(client, "patch", "deployments", "apps", namespace)


def test_an_apply_that_could_make_the_object_takes_the_right_to_make_it(
    control_plane: ControlPlane, namespace: str, ours: Path
) -> None:
    bind(control_plane, namespace, "dan")
    place, config = settled(control_plane, namespace), Address("v1", "configmaps", "kept", namespace)
    with through_proxy(ours, "dan") as client:
        apply = Apply(
            config,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}},
            why="test",
        )
        Writer(client, "test").send(apply)
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}}
        with pytest.raises(ClusterForbidden, match=r"let dan create deployments\.apps"):
            Writer(client, "test").send(Apply(place, body, why="test"))
    assert control_plane.api().get(config.path)["data"] == {"a": "b"}


def test_a_sibling_asks_about_the_same_person(control_plane: ControlPlane, namespace: str, ours: Path) -> None:
    place = settled(control_plane, namespace)
    with through_proxy(ours, "eve") as client:
        other = client.sibling()
        with pytest.raises(ClusterForbidden, match="let eve get"):
            other.get(place.path)
        other.close()
        with pytest.raises(ClusterForbidden, match="let eve watch"):
            client.stream(f"{place.collection}?watch=true", 5.0)


def test_an_account_that_may_not_ask_about_others_does_nothing_for_them(
    control_plane: ControlPlane, namespace: str
) -> None:
    user = unique_name("bare")
    bind(control_plane, namespace, user)
    bind(control_plane, namespace, "fay")
    place = settled(control_plane, namespace)
    with (
        through_proxy(control_plane.user(user), "fay") as client,
        pytest.raises(ClusterForbidden, match="subjectaccessreviews"),
    ):
        client.get(place.path)


def test_without_a_name_it_is_our_own_look(control_plane: ControlPlane, namespace: str, ours: Path) -> None:
    settled(control_plane, namespace)
    with through_proxy(ours, "") as client:
        assert len(client.list(deployment("", namespace).collection)) == 1


# --- a login: their own token ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory, control_plane: ControlPlane) -> Iterator[Provider]:
    """With a certificate, as the API server takes no other; signed by the test cluster's authority."""
    pair = control_plane.authority.issue("provider", "provider", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    with running(Provider(people=dict(support.PEOPLE)), context) as running_provider:
        yield running_provider


@pytest.fixture(scope="module")
def believing(
    tmp_path_factory: pytest.TempPathFactory, control_plane: ControlPlane, provider: Provider
) -> Iterator[ControlPlane]:
    """An API server that takes the provider's tokens."""
    flags = {
        "issuer-url": provider.issuer,
        "client-id": CLIENT,
        "username-claim": "email",
        "username-prefix": "oidc:",
        "groups-claim": "groups",
        "ca-file": str(control_plane.authority.certificate),
    }
    options = Options(components=frozenset(), extra={APISERVER: [f"--oidc-{k}={v}" for k, v in flags.items()]})
    with ControlPlane(tmp_path_factory.mktemp("believing"), options) as plane:
        yield plane


@contextmanager
def by_token(plane: ControlPlane, name: str, token: str) -> Iterator[KubeClient]:
    kube = KubeSettings(kubeconfig=str(plane.admin_kubeconfig))
    access = support.settings_of(mode="oidc", oidc={"issuer": "https://x", "client_id": CLIENT})
    with cluster_access.by_way(kube, access, kubeconfig_door(kube))(
        Person(name, way=IdentitySource.OIDC, token=token)
    ) as client:
        yield client


def recognised(client: KubeClient) -> ClusterUser | None:
    """Who the API server says it is; None while it has not asked the provider for its keys yet."""
    try:
        return asked_who(client)
    except ClusterForbidden:
        return None


def test_a_login_acts_with_its_own_token_and_the_api_server_knows_who_it_is(
    believing: ControlPlane, provider: Provider
) -> None:
    name, space = "otto@example.com", unique_name("login")
    believing.api().create("/api/v1/namespaces", {"metadata": {"name": space}})
    place = settled(believing, space)
    with by_token(believing, name, provider.token(name)) as client:
        person = wait_for("the API server to have the provider's keys", lambda: recognised(client))
        assert (person.name, "shop-team" in person.groups) == (f"oidc:{name}", True)
        with pytest.raises(ClusterForbidden, match=f'User "oidc:{name}" cannot patch'):
            Writer(client, "test").send(noted(place, "by otto"))
    bind(believing, space, f"oidc:{name}")
    with by_token(believing, name, provider.token(name)) as client:
        Writer(client, "test").send(noted(place, "by otto"))
    assert believing.api().get(place.path)["metadata"]["annotations"]["note"] == "by otto"


def test_a_token_that_the_api_server_does_not_take_is_told_in_words(
    believing: ControlPlane, provider: Provider
) -> None:
    forged = provider.token("ada@example.com")[:-6] + "AAAAAA"
    with by_token(believing, "ada@example.com", forged) as client, pytest.raises(ClusterForbidden, match="401"):
        client.get("/api/v1/namespaces/default")


def test_a_login_without_a_token_does_nothing(tmp_path: Path) -> None:
    kube = KubeSettings(kubeconfig=str(tmp_path / "none"))
    access = support.settings_of(mode="oidc", oidc={"issuer": "https://x", "client_id": CLIENT})
    door = cluster_access.by_way(kube, access, kubeconfig_door(kube))
    with pytest.raises(NotAllowed, match="has no token") as raised, door(Person("ann", way=IdentitySource.OIDC)):
        pass
    assert raised.value.fix == "Log in again."
    with pytest.raises(NotAllowed, match="did not log in by"), door(Person("ann", way=IdentitySource.LOOPBACK)):
        pass


# --- what is asked of the authorizer ---------------------------------------------------------------------------------
def wishes_of(method: str, path: str, **more: Any) -> list[str]:
    """Wishes as `verb group/resource/subresource namespace/name`."""
    texts = []
    for access_wish in cluster_access.wishes(ApiRequest(path, method, **more)):
        at: dict[str, Any] = access_wish.get("resourceAttributes") or access_wish["nonResourceAttributes"]
        place = f" {at.get('namespace', '')}/{at.get('name', '')}" if "resource" in at else ""
        what = "/".join(filter(None, (at.get("group"), at.get("resource"), at.get("subresource"), at.get("path"))))
        texts.append(f"{at['verb']} {what}{place}")
    return texts


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/apis/apps/v1/namespaces/a/deployments", "list apps/deployments a/"),
        ("GET", "/apis/apps/v1/deployments?limit=500", "list apps/deployments /"),
        ("GET", "/apis/apps/v1/namespaces/a/deployments/b", "get apps/deployments a/b"),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b?dryRun=All", "patch apps/deployments a/b"),
        ("PUT", "/apis/apps/v1/namespaces/a/deployments/b/scale", "update apps/deployments/scale a/b"),
        ("PATCH", "/api/v1/namespaces/a/pods/b/resize", "patch pods/resize a/b"),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", "create pods/eviction a/b"),
        ("POST", "/api/v1/namespaces/a/configmaps", "create configmaps a/"),
        ("DELETE", "/api/v1/namespaces/a/configmaps", "deletecollection configmaps a/"),
        ("DELETE", "/api/v1/namespaces/a/configmaps/b", "delete configmaps a/b"),
        ("GET", "/api/v1/pods?watch=true", "watch pods /"),
        ("GET", "/api/v1/namespaces", "list namespaces /"),
        ("GET", "/api/v1/namespaces/a", "get namespaces a/a"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize a/a"),
        ("GET", "/api/v1/nodes/n", "get nodes /n"),
        ("GET", "/metrics", "get /metrics"),
        ("POST", "/version", "post /version"),
        ("GET", "/api/v1/namespaces/a/pods/b%2Fc", "get pods a/b/c"),
    ],
)
def test_a_request_is_asked_about_as_the_api_server_would(method: str, path: str, expected: str) -> None:
    assert wishes_of(method, path) == [expected]


def test_an_apply_is_asked_about_twice() -> None:
    path = "/apis/apps/v1/namespaces/a/deployments/b"
    texts = wishes_of("PATCH", path, content_type="application/apply-patch+yaml")
    assert texts == ["patch apps/deployments a/b", "create apps/deployments a/b"]


APPLIED, PATCHED = "application/apply-patch+yaml", "application/json-patch+json"


@pytest.mark.parametrize(
    ("kind", "body", "verbs"),
    [
        (APPLIED, {"metadata": {"uid": "u"}, "spec": {"approval": {"decision": "Approved"}}}, ["patch", "approve"]),
        (APPLIED, {"spec": {"policy": {"autoApprove": True}}}, ["patch", "create", "approve"]),
        (APPLIED, {"metadata": {"uid": "u"}, "spec": {"suspend": True}}, ["patch"]),
        (PATCHED, [{"op": "add", "path": "/spec/policy", "value": {}}], ["patch", "approve"]),
        (PATCHED, [{"op": "replace", "path": "/spec/approval/by", "value": "x"}], ["patch", "approve"]),
        (PATCHED, [{"op": "remove", "path": "/spec/approval"}], ["patch", "approve"]),
        (PATCHED, [{"op": "move", "from": "/spec/approval", "path": "/spec/x"}], ["patch", "approve"]),
        (PATCHED, [{"op": "replace", "path": "/spec", "value": {}}], ["patch", "approve"]),
        (PATCHED, [{"op": "replace", "path": "", "value": {}}], ["patch", "approve"]),
        (PATCHED, [{"op": "add", "path": "/spec/amount/count", "value": 2}], ["patch"]),
    ],
)
def test_of_a_plan_the_verb_is_asked_about_too_that_its_admission_policy_asks_for(
    kind: str, body: Any, verbs: list[str]
) -> None:
    path = "/apis/cotenant.dev/v1alpha1/namespaces/a/reservationplans/b"
    access_wishes = cluster_access.wishes(ApiRequest(path, "PATCH", msgspec.json.encode(body), kind))
    assert [access_wish["resourceAttributes"]["verb"] for access_wish in access_wishes] == verbs


@settings(max_examples=80)
@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]), st.text(alphabet="/apis.v1?=%& -", max_size=40))
@example("GET", "/api/v1//s")
def test_whatever_the_path_something_is_asked(method: str, path: str) -> None:
    access_wishes = cluster_access.wishes(ApiRequest(path, method))
    assert all(msgspec.json.encode(access_wish) for access_wish in access_wishes)
    assert access_wishes or (
        method == "GET" and path.split("?", maxsplit=1)[0].strip("/").split("/")[0] in cluster_access.DISCOVERY
    )


@pytest.mark.parametrize("path", ["/version", "/api", "/apis/apps/v1", "/openapi/v3"])
def test_what_a_server_can_do_is_no_secret(path: str) -> None:
    assert cluster_access.wishes(ApiRequest(path)) == []


def test_the_default_settings_are_the_loopbacks() -> None:
    assert AccessSettings().read_only and AccessSettings().mode.value == "none"
