"""Random pods in namespaces with random profiles, LimitRanges and ResourceQuotas, as a real API server admits them.

Whatever meets, each amount counts once, the author's amounts stay, a refusal says why, and a pod that is sent once more
as it came out comes out the same.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.webhook_server.service import WebhookService
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores
from tests.admission.bodies import PODS
from tests.cluster.api import Api, ApiError
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
BANDS = {"batch": ("koord-batch", "BE"), "mid": ("koord-mid", "LS"), "prod": ("koord-prod", "LS"), "": ("", "")}
SIDES = ("requests", "limits")
AMOUNTS = {"cpu": ("100m", "200m", "1"), "memory": ("64Mi", "200Mi", "1Gi")}
DEFAULTS = {"cpu": ("150m", "500m", "2"), "memory": ("96Mi", "512Mi", "2Gi")}
SAID = (
    *(
        "must specify",
        "must be less than or equal",
        "exceeded quota",
        "forbidden",
        "Invalid value",
        "maximum",
        "minimum",
    ),
    *("ratio", "(fix: ", "Required value"),
)
"""Words of the API server and of the webhook that say what is wrong."""


@dataclass
class World:
    """A namespace: what its profile makes of all pods, and what its LimitRanges and quotas hold."""

    namespace: str
    profile: str = ""
    ranges: list[dict[str, Any]] = field(default_factory=list)
    quota: dict[str, str] = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        return bool(self.quota) or any({"min", "max", "maxLimitRequestRatio"} & set(item) for item in self.ranges)

    @property
    def limit_amounts(self) -> set[str]:
        """Amounts that a LimitRange gives."""
        return {
            str(amount)
            for item in self.ranges
            for part in ("default", "defaultRequest", "max", "min")
            for amount in item.get(part, {}).values()
        }


def some(lot: random.Random, amounts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: lot.choice(values) for name, values in amounts.items() if lot.random() < 0.6}


def random_item(lot: random.Random) -> dict[str, Any]:
    """An item of a LimitRange: mostly defaults, sometimes a bound."""
    kind = lot.random()
    if kind < 0.6:
        return {"type": "Container", "default": some(lot, DEFAULTS)}
    if kind < 0.8:
        small = some(lot, {"cpu": ("50m", "100m"), "memory": ("32Mi", "64Mi")})
        return {"type": "Container", "defaultRequest": small}
    bound = lot.choice(({"max": {"cpu": "8"}}, {"min": {"memory": "16Mi"}}, {"maxLimitRequestRatio": {"cpu": "8"}}))
    return {"type": lot.choice(("Container", "Pod")), **bound}


def random_world(lot: random.Random, name: str, number: int) -> World:
    """Every class in turn, with 0 to 2 LimitRanges, and a quota in one of five."""
    ranges = [random_item(lot) for _ in range(lot.choice((0, 1, 1, 2)))]
    quota = {lot.choice(("requests.cpu", "limits.memory", "pods")): "100"} if lot.random() < 0.2 else {}
    return World(name, ("batch", "mid", "prod", "batch", "")[number % 5], ranges, quota)


def random_pod(lot: random.Random, name: str, space: World) -> dict[str, Any]:
    """Containers, native sidecars and init containers with amounts on either side, of a class of their own or none."""

    def container(kind: str, number: int) -> dict[str, Any]:
        requests, limits = some(lot, AMOUNTS), some(lot, AMOUNTS)
        alike = {key: limits[key] for key in requests.keys() & limits.keys()}
        sides = {"requests": {**requests, **alike}, "limits": limits}
        body = {"name": f"{kind}{number}", "image": "x", "resources": {s: a for s, a in sides.items() if a}}
        return {**body, "restartPolicy": "Always"} if kind == "side" else body

    own = lot.choice(tuple(BANDS)) if not space.profile else ""
    priority, qos = BANDS[own]
    return {
        "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": qos} if qos else {}},
        "spec": {
            **({"priorityClassName": priority} if priority else {}),
            "containers": [container("main", i) for i in range(lot.randint(1, 2))],
            "initContainers": [container(lot.choice(("side", "init")), i) for i in range(lot.randint(0, 2))],
        },
    }


@pytest.fixture
def worlds(api: Api, webhook: WebhookService, request: pytest.FixtureRequest) -> Iterator[list[World]]:
    """As many as asked for, known to the webhook."""
    lot, spaces = random.Random(45), []
    for number in range(request.param):
        space = random_world(lot, create_namespace(api, f"lot-{request.param}-{number}"), number)
        spaces.append(space)
        core = f"/api/v1/namespaces/{space.namespace}"
        for index, item in enumerate(space.ranges):
            api.create(f"{core}/limitranges", {"metadata": {"name": f"range{index}"}, "spec": {"limits": [item]}})
        if space.quota:
            api.create(f"{core}/resourcequotas", {"metadata": {"name": "team"}, "spec": {"hard": space.quota}})
        if space.profile:
            priority, qos = BANDS[space.profile]
            spec = {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}},
                "priorityClassName": priority,
                "qosClass": qos,
            }
            kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
            api.create(PROFILES, {**kind, "metadata": {"name": space.namespace}, "spec": spec})
    namespaces = {space.namespace for space in spaces}
    limited = {
        w.namespace for w in spaces if any(item.get("default") or item.get("defaultRequest") for item in w.ranges)
    }
    wait_for("the namespaces are known", lambda: namespaces <= webhook.state.view().namespaces.keys())
    wait_for("LimitRanges are known", lambda: limited <= {n for n, d in webhook.state.view().demands.items() if d})
    profiles = {space.namespace for space in spaces if space.profile}
    wait_for("the profiles are known", lambda: profiles <= {p.name for p in webhook.state.view().profiles})
    yield spaces
    for space in spaces:
        if space.profile:
            api.delete(f"{PROFILES}/{space.namespace}")
        api.delete(f"/api/v1/namespaces/{space.namespace}")


def number_of(resource: str, amount: Any) -> int:
    """Millicores of cpu, whose extended resources are in millicores already, or bytes."""
    if resource == "cpu":
        return parse_millicores(str(amount))
    return parse_bytes(str(amount))


def everyone(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*body["spec"]["containers"], *body["spec"].get("initContainers", ())]


def assert_counted_once(author: dict[str, Any], live_pod: dict[str, Any], band: str, space: World) -> None:
    """Of cpu, batch-cpu and mid-cpu each container has one, with what its author wrote, or with a default.

    band: that of the profile.
    """
    before = {container["name"]: container["resources"] for container in everyone(author)}
    for container in everyone(live_pod):
        for resource in ("cpu", "memory"):
            extended = f"kubernetes.io/{band}-{resource}" if band in ("batch", "mid") else resource
            names = {resource, f"kubernetes.io/batch-{resource}", f"kubernetes.io/mid-{resource}"}
            written = {side: before[container["name"]].get(side, {}).get(resource) for side in SIDES}
            for side in SIDES:
                present = names & container["resources"].get(side, {}).keys()
                assert present <= {extended}, (container["name"], side, container["resources"])
                # where the author names a limit alone it is the request, too
                meant = written[side] or (written["limits"] if side == "requests" else None)
                amount = container["resources"].get(side, {}).get(extended)
                unit = "memory" if extended != resource and resource == "cpu" else resource
                if meant is not None:
                    assert amount is not None, (container["name"], side, resource)
                    assert number_of(unit, amount) == number_of(resource, meant), (container["name"], side, resource)
                elif amount is not None:
                    numbers = {
                        number_of(resource, g) for g in space.limit_amounts if ("i" in g) is (resource == "memory")
                    }
                    assert number_of(unit, amount) in numbers, (container["name"], side, resource, amount)


@pytest.mark.parametrize(
    ("worlds", "pods"), [(12, 20), pytest.param(60, 60, marks=pytest.mark.soak)], indirect=["worlds"]
)
def test_whatever_meets_in_a_namespace_each_amount_counts_once_and_a_refusal_says_why(
    api: Api, webhook: WebhookService, worlds: list[World], pods: int
) -> None:
    outcomes: Counter[tuple[str, bool]] = Counter()
    for index, space in enumerate(worlds):
        lot = random.Random(index)
        for number in range(pods):
            body = random_pod(lot, f"p{number}", space)
            try:
                live = api.create(PODS.format(space.namespace), copy.deepcopy(body), dryRun="All")
            except ApiError as error:
                assert any(word in str(error) for word in SAID), str(error)
                assert (error.status in (403, 422) and space.bounded) or _above_a_default(str(error)), str(error)
                outcomes["refused", space.bounded] += 1
                continue
            band = _band(live)
            assert band == (space.profile or _band(body)), live
            # no profile matches, as in Koordinator: a pod of a class keeps the names that its author wrote
            assert_counted_once(body, live, space.profile, space)
            # cpu and memory decide the class: a pod of reclaimed capacity has none of them
            assert space.profile not in ("batch", "mid") or live["status"]["qosClass"] == "BestEffort"
            assert not live["spec"].get("schedulingGates")  # no manager runs: nobody would lift one
            view, call = webhook.state.view(), AdmissionCall("CREATE", space.namespace, "u", 0.0)
            again = compute_mutation(copy.deepcopy(live), view, call).pod
            assert [c["resources"] for c in everyone(again)] == [c["resources"] for c in everyone(live)]
            outcomes[space.profile, space.bounded] += 1
    of = Counter[str]()
    for (outcome, _), number in outcomes.items():
        of[outcome] += number
    assert min(of[outcome] for outcome in ("batch", "mid", "refused")) >= 10, outcomes


def _band(body: dict[str, Any]) -> str:
    priority = body["spec"].get("priorityClassName", "")
    return next((band for band, (name, _) in BANDS.items() if name and name == priority), "")


def _above_a_default(message: str) -> bool:
    """The API server refuses a request above the limit that a LimitRange gives, of any class."""
    return "must be less than or equal to" in message
