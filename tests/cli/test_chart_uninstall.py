"""The chart's hook after `helm uninstall`: its rights are those that taking back what was written needs."""

from __future__ import annotations

import pytest

from tests.cli.charts import SWITCHES, Json, rendered, rendered_by_template, values_of
from tests.cluster import needing

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Kind = tuple[str, str]
"""API group and resource."""
OWN_GROUPS = ("koordinator.sh", "cotenant.dev")
STAYS: frozenset[Kind] = frozenset(
    {
        ("events.k8s.io", "events"),
        ("", "pods/status"),  # conditions, which nobody acts on
        ("scheduling.sigs.k8s.io", "elasticquotas"),  # reports in objects that stay
        ("scheduling.sigs.k8s.io", "podgroups"),
    }
)
"""What the manager may write of others and nothing has to take back."""
MANAGED = sorted({*SWITCHES} - {"scan", "recorder", "webhooks", "applier", "devices"})


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    needing.helm()


@pytest.mark.parametrize(
    ("switches", "more", "rights"),
    [
        ({"scan", "webhooks"}, {}, 0),  # these write nothing that stays
        ({"colocation"}, {"uninstallHook": {"enabled": False}}, 0),
        # the cluster's objects, our namespaces, taints, gates and floors: also of a part that was switched off before
        ({"colocation"}, {}, 5),
        ({"colocation", "scheduling"}, {}, 6),  # placeholders, whose namespace comes with the part
    ],
)
def test_a_hook_after_uninstall_has_the_rights_of_the_parts_that_are_on(
    switches: set[str], more: Json, rights: int
) -> None:
    by_template = rendered_by_template(values_of(frozenset(switches), crds={"install": False}, **more))
    hooks = by_template.get("uninstall.yaml", [])
    roles = [o for o in hooks if o["kind"] in ("Role", "ClusterRole")]
    assert len(roles) == len([o for o in hooks if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]) == rights
    assert len([o for o in hooks if o["kind"] == "Job"]) == (rights > 0)
    for hook in hooks:
        notes = hook["metadata"]["annotations"]
        # After the release, so that a hook that fails holds nothing up; the rights before the Job, and gone with it.
        assert notes["helm.sh/hook"] == "post-delete"
        assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert (notes.get("helm.sh/hook-weight") == "-1") is (hook["kind"] != "Job")
        if hook["kind"] == "Job":
            assert hook["spec"]["activeDeadlineSeconds"] < 300  # what Helm waits


def writes_of_others(objects: list[Json], account: str) -> set[Kind]:
    """Kinds of objects, neither ours nor left to stay, that an account may change by all of its roles."""
    bindings = [o for o in objects if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    names = {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in bindings if b["subjects"][0]["name"] == account}
    kinds: set[Kind] = set()
    for role in (o for o in objects if (o["kind"], o["metadata"]["name"]) in names):
        for rule in role["rules"]:
            groups = [g for g in rule.get("apiGroups", ()) if not g.endswith(OWN_GROUPS)]
            writes = {"patch", "update", "delete"} & {*rule["verbs"]}
            if writes and not rule.get("resourceNames"):  # what carries a name is an object of ours: a Lease, a status
                kinds |= {(group, kind) for group in groups for kind in rule["resources"]} - STAYS
    return kinds


@pytest.mark.parametrize("switch", MANAGED)
def test_what_a_part_writes_into_objects_of_others_the_hook_may_take_back(switch: str) -> None:
    objects = rendered(values_of(frozenset({switch}), crds={"install": False}))
    written = writes_of_others(objects, "cotenant-manager")
    assert written - writes_of_others(objects, "cotenant-uninstall") == set()
