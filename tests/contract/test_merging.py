"""Server-side apply on both servers at once: whatever two or three managers apply in whatever order, the results agree.

COTENANT_CONTRACT_EXAMPLES raises the number of sequences.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.contract.conftest import REAL
from tests.contract.target import Target, config_map, embedded_target, real_target, serve_widgets, widget

pytestmark = REAL
EXAMPLES = int(os.environ.get("COTENANT_CONTRACT_EXAMPLES", "15"))
MANAGERS = ("one", "two", "three")
NAMES = itertools.count()
LETTERS = st.sampled_from("abc")
WORDS = st.sampled_from(["1", "2"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects that have any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def keyed(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Json]]:
    """Lists of objects with different names."""
    item = st.builds(lambda name, rest: {"name": name, **rest}, LETTERS, some(**fields))
    return st.lists(item, max_size=3, unique_by=lambda keyed_item: keyed_item["name"])


LABELS = st.dictionaries(LETTERS, WORDS, max_size=2)
CONFIG_MAPS = st.builds(
    lambda name, data, labels: config_map(name, data, **labels),
    st.just("NAME"),
    st.none() | st.dictionaries(LETTERS, WORDS, max_size=3),
    some(labels=LABELS, annotations=LABELS),
)
SPECS = some(
    size=st.integers(0, 2),
    steps=keyed(image=WORDS, count=st.integers(0, 1)),
    tags=st.lists(LETTERS, max_size=3, unique=True),
    plain=st.lists(WORDS, max_size=2),
    words=st.dictionaries(LETTERS, WORDS, max_size=2),
    whole=st.dictionaries(LETTERS, WORDS, max_size=2),
    free=st.dictionaries(LETTERS, WORDS | st.dictionaries(LETTERS, WORDS, max_size=2), max_size=2),
)
WIDGETS = st.builds(lambda spec, meta: widget("NAME", spec, **meta), SPECS, some(labels=LABELS))
CONTAINERS = keyed(
    args=st.lists(WORDS, min_size=1, max_size=2),
    env=keyed(value=WORDS),
    resources=some(requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), WORDS, max_size=2)),
)
PORTS = st.lists(st.sampled_from([80, 81]), max_size=2, unique=True)


def deployment(containers: list[Json], ports: list[int], labels: dict[str, str]) -> Json:
    """A whole Deployment: each container with an image, the first with ports."""
    full_containers = [{"image": "x", **container} for container in containers or [{"name": "a"}]]
    full_containers[0] = {**full_containers[0], "ports": [{"containerPort": port} for port in ports]}
    spec = {"containers": full_containers}
    template = {"metadata": {"labels": {"app": "d", **labels}}, "spec": spec}
    body = {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "NAME"}, "spec": body}


DEPLOYMENTS = st.builds(deployment, CONTAINERS, PORTS, LABELS)
APPLIES = {"configmaps": CONFIG_MAPS, "widgets": WIDGETS, "apps/v1/deployments": DEPLOYMENTS}
DEFAULTED = {
    *("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "restartPolicy", "dnsPolicy"),
    *("terminationGracePeriodSeconds", "securityContext", "schedulerName", "strategy", "revisionHistoryLimit"),
    *("progressDeadlineSeconds", "protocol", "limits"),
}
"""What the real server fills into a Deployment and the embedded one does not."""


@pytest.fixture(scope="session")
def both(control_plane: ControlPlane, embedded: EmbeddedServer) -> list[Target]:
    """The two servers, each with a namespace of the same name."""
    targets, name = [embedded_target(embedded), real_target(control_plane)], unique_name("merging")
    for target in targets:
        serve_widgets(target.admin)
        target.namespace = name
        target.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return targets


def shape(value: Any, kind: str) -> Any:
    """An object without what the server alone writes; for Deployments without defaults."""
    if not isinstance(value, dict):
        return [shape(item, kind) for item in value] if isinstance(value, list) else value
    left_out = DEFAULTED if kind.endswith("deployments") else ()
    return {k: shape(v, kind) for k, v in value.items() if k not in left_out}


def apply_answers(target: Target, kind: str, steps: list[tuple[str, bool, Json]]) -> list[Any]:
    """What each apply of a sequence is answered: the object and its owners, or the conflicts."""
    name = f"m{next(NAMES)}"
    answers: list[Any] = []
    for manager, force, body in steps:
        named_body = {**body, "metadata": {**body["metadata"], "name": name}}
        try:
            live = target.apply(target.path(kind, name), named_body, manager, force=str(force).lower())
        except ApiError as error:
            causes = {(c["field"], c["message"]) for c in error.body.get("details", {}).get("causes", ())}
            answers.append((error.status, causes if error.status == 409 else None))
            continue
        entries = live["metadata"].get("managedFields", ())
        owners = {m["manager"]: m["fieldsV1"] for m in entries if m["manager"] in MANAGERS}
        content = {key: live[key] for key in ("data", "spec") if key in live}
        keys = ("labels",) if kind.endswith("deployments") else ("labels", "annotations", "generation")
        marks = {key: live["metadata"].get(key) for key in keys}  # a Deployment's controller annotates it meanwhile
        answers.append((shape(content, kind), marks, owners))
    return answers


@pytest.mark.parametrize("kind", list(APPLIES))
def test_any_sequence_of_applies_has_the_same_result_on_both_servers(both: list[Target], kind: str) -> None:
    step = st.tuples(st.sampled_from(MANAGERS), st.booleans(), APPLIES[kind])

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.lists(step, min_size=2, max_size=6))
    def agree(steps: list[tuple[str, bool, Json]]) -> None:
        embedded, real = (apply_answers(target, kind, steps) for target in both)
        assert embedded == real

    agree()
