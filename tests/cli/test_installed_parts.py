"""What of an installation is in a cluster already, as far as it may be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from cotenant.base.kube import connect
from cotenant.base.settings.sections import KubeSettings
from cotenant.cli.cluster.installation.cluster import installed_parts
from cotenant.cli.cluster.installation.manifests import DEFAULT, RIGHTS, InstalledParts, manifests, manifests_beside
from tests.support.api_server import ApiServer, make_certificate

SETTINGS = "/api/v1/namespaces/cotenant/configmaps/cotenant-settings"
DEPLOYMENTS = "/apis/apps/v1/namespaces/cotenant/deployments"
PATHS = (SETTINGS, f"{DEPLOYMENTS}/cotenant-recorder", f"{DEPLOYMENTS}/cotenant-manager")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", "authority")
    server = ApiServer(tmp_path / "server.pem", tmp_path / "authority.pem")
    yield server
    server.stop()


def parts(api: ApiServer, folder: Path) -> InstalledParts:
    cluster = {"server": api.url, "certificate-authority": str(folder / "authority.pem")}
    document = {
        "current-context": "shop",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "shop", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig.yaml").write_text(yaml.safe_dump(document))
    settings = KubeSettings(kubeconfig=str(folder / "kubeconfig.yaml"), timeout_seconds=5.0, retries=0)
    with closing(connect(settings)) as client:
        return installed_parts(client)


@pytest.mark.server
def test_a_part_is_there_when_its_object_is(api: ApiServer, tmp_path: Path) -> None:
    assert parts(api, tmp_path) == InstalledParts()
    for path in PATHS:
        api.objects[path] = {"metadata": {"name": path.rpartition("/")[2]}}
    assert parts(api, tmp_path) == InstalledParts(settings=True, recorder=True, manager=True)


@pytest.mark.server
def test_beside_parts_that_may_not_be_read_nothing_of_somebody_else_is_written_over(
    api: ApiServer, tmp_path: Path
) -> None:
    api.forbidden = set(PATHS)
    unread = parts(api, tmp_path)
    # nobody chose the components: rights alone, as beside settings of somebody who chose parts before
    assert manifests_beside(DEFAULT, unread, is_default=True) == manifests(RIGHTS)
    # the recorder is asked for by name: it comes, and a manager's settings stay
    sent = {m.address.name for m in manifests_beside(("recorder", "scan"), unread, is_default=False)}
    assert "cotenant-recorder" in sent and "cotenant-settings" not in sent
