"""Policies on our own evictions, of an older version and of this one, and programs of either under each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.errors import ClusterDenied, ClusterError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Apply, Create, eviction_of
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.cli.cluster.installation.cluster import FIELD_MANAGER, LARGEST_BODY_BYTES
from cotenant.cli.cluster.installation.manifests import address_of, manifests
from tests.cluster.accounts import account, install_rights
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.tokens import agent_access

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
OLDER = [*yaml.safe_load_all((Path(__file__).parent / "eviction_policies_of_661480d.yaml").read_text())]
"""Of the time before labels, policies first."""
TODAY = [
    manifest.body
    for manifest in manifests(("rbac", "enforcer", "descheduler"))
    if manifest.kind.startswith("ValidatingAdmissionPolicy")
]
NEEDED = {"priorityClassName": "system-cluster-critical"}


@dataclass
class Program:
    """One of our accounts, with an eviction that is its own to ask for, and one that is not."""

    client: KubeClient
    own: Create
    forbidden: Create

    def is_let(self, eviction: Create) -> bool:
        """Whether the API server would do it; of a pod that its policies have not heard of yet it knows no answer."""
        try:
            Writer(self.client, "t").send(eviction, dry_run=True)
        except ClusterDenied as error:
            assert "ValidatingAdmissionPolicy" in error.message, error.message
            return False
        return True


def older(eviction: Create) -> Create:
    """The same request as a program before labels makes it."""
    metadata = {key: value for key, value in eviction.body["metadata"].items() if key != "labels"}
    return replace(eviction, body={**eviction.body, "metadata": metadata})


def installed(plane: ControlPlane, bodies: list[Any]) -> None:
    """As `cotenant install --apply` of that version does: it takes nothing away that only another version has."""
    writer = Writer(plane.admin_client(), FIELD_MANAGER, cap_bytes=LARGEST_BODY_BYTES)
    for body in bodies:
        writer.send(Apply(address_of(body), body))


@pytest.fixture
def programs(
    control_plane: ControlPlane, fake_nodes: Callable[[int], list[str]], namespace: str, tmp_path: Path
) -> Iterator[dict[str, Program]]:
    """The manager, and the agent of the first of two nodes; today's policies are there before and after."""
    here, there = fake_nodes(2)
    install_rights(control_plane)

    def eviction(component: str, node: str, **spec: Any) -> Create:
        body = {
            "metadata": {"generateName": "p-", "labels": {"koordinator.sh/qosClass": "BE"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.invalid/a:1"}], **spec},
        }
        made = control_plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)["metadata"]
        return eviction_of(Address("v1", "pods", made["name"], namespace), made["uid"], "test", None, component)

    agent = KubeClient(agent_access(control_plane, here, tmp_path), KubeSettings(retries=0))
    manager = control_plane.client(account(control_plane, "cotenant-manager"), retries=0)
    yield {
        "enforcer": Program(agent, eviction("enforcer", here), eviction("enforcer", there)),
        "manager": Program(manager, eviction("manager", here), eviction("manager", here, **NEEDED)),
    }
    installed(control_plane, TODAY)
    agent.close()
    manager.close()


@pytest.mark.parametrize("component", ["enforcer", "manager"])
def test_evictions_of_today_pass_older_policies_and_older_ones_pass_again_after_a_downgrade(
    control_plane: ControlPlane, programs: dict[str, Program], component: str
) -> None:
    program = programs[component]

    def is_in_force(own: bool, own_of_older: bool) -> bool:
        try:
            asked = [program.own, program.forbidden, older(program.own), older(program.forbidden)]
            return [program.is_let(one) for one in asked] == [own, False, own_of_older, False]
        except ClusterError:  # a policy that changes may have no answer for a moment
            return False

    # Today's policies go by the label: without it, both evictions are refused.
    assert wait_for("today's policies", lambda: is_in_force(own=True, own_of_older=False))
    # An older version is installed over it. Its policies know no label and look at the pod: of both programs they let
    # the own eviction pass, and refuse the other one.
    installed(control_plane, OLDER)
    assert wait_for("the older policies", lambda: is_in_force(own=True, own_of_older=True))
    installed(control_plane, TODAY)
    assert wait_for("today's policies again", lambda: is_in_force(own=True, own_of_older=False))
