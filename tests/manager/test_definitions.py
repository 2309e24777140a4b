"""Definitions older than the program are named with the way to bring them up to date, before and when a write fails."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cotenant.base.controllers.contract import ObjectNote
from cotenant.base.errors import ClusterInvalid
from cotenant.base.kube import Writer
from cotenant.base.kube.definitions import KEEPS_ALL, missing_fields, older_definitions, shipped_definitions
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.cli.cluster.probes.cluster import definitions
from cotenant.cli.cluster.probes.outcome import ProbeState
from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import CRDS, FOLDER
from tests.cluster.waiting import wait_for

NAME = "usageforecasts.cotenant.dev"
FIELD = "historyEnd"


def shipped() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{NAME}.yaml").read_text())


def older() -> dict[str, Any]:
    """The definition as it was before a field came: the server would refuse that field."""
    body = shipped()
    del body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][FIELD]
    return body


@pytest.fixture
def old_definition(control_plane: ControlPlane) -> Iterator[Api]:
    """The older definition is in force; afterwards the shipped one, which other tests of the server find."""
    api = control_plane.api()

    def put(body: dict[str, Any]) -> None:
        if api.exists(f"{CRDS}/{NAME}"):
            spec = {"spec": {"versions": body["spec"]["versions"]}}
            api.patch(f"{CRDS}/{NAME}", spec, "merge")
        else:
            api.create(CRDS, body)

    put(older())
    yield api
    put(shipped())
    wait_for("the shipped one", lambda: not old_definitions(control_plane))
    api.close()


def old_definitions(plane: ControlPlane) -> list[str]:
    return [
        older_definition
        for older_definition in older_definitions(plane.client(account(plane, "cotenant-manager")))
        if NAME in older_definition
    ]


def test_an_older_definition_is_named_with_what_it_lacks_and_the_write_with_what_helps(
    control_plane: ControlPlane, old_definition: Api
) -> None:
    wait_for("the older definition", lambda: old_definitions(control_plane), 60)
    (sentence,) = old_definitions(control_plane)
    assert sentence == f"{NAME} v1alpha1 is older than this program: it does not accept .spec.{FIELD}"
    outcome = definitions(control_plane.client(account(control_plane, "cotenant-manager")))
    assert outcome.state is ProbeState.WARNING
    assert sentence in outcome.found
    assert "helm upgrade" in outcome.fix
    assert "cotenant install --apply" in outcome.fix
    address = Address("cotenant.dev/v1alpha1", "usageforecasts", "n")
    body = address.manifest("UsageForecast", spec={FIELD: "2023-11-14T22:13:20Z"})
    with pytest.raises(ClusterInvalid, match="not declared in schema") as refused:
        Writer(control_plane.client(account(control_plane, "cotenant-manager")), "test").send(Apply(address, body))
    assert refused.value.fix == outcome.fix


def test_definitions_as_they_are_shipped_lack_nothing_of_themselves() -> None:
    for definition in shipped_definitions():
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            assert list(missing_fields(schema, schema)) == []


def test_a_missing_field_is_found_at_any_depth_and_not_where_everything_is_kept() -> None:
    leaf: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    ours: dict[str, Any] = {
        "properties": {
            "spec": {"properties": {"list": {"items": leaf}, "map": {"additionalProperties": copy.deepcopy(leaf)}}}
        }
    }
    served = copy.deepcopy(ours)
    del served["properties"]["spec"]["properties"]["list"]["items"]["properties"]["b"]
    del served["properties"]["spec"]["properties"]["map"]["additionalProperties"]["properties"]["a"]
    assert list(missing_fields(ours, served)) == [".spec.list[].b", ".spec.map{}.a"]
    assert list(missing_fields(ours, {KEEPS_ALL: True})) == []
    # a value that came later is refused as a field is, and where all values are taken none is lacking
    modes = {"properties": {"mode": {"type": "string", "enum": ["Observe", "Act"]}}}
    assert list(missing_fields(modes, {"properties": {"mode": {"type": "string", "enum": ["Observe"]}}})) == [
        ".mode=Act"
    ]
    assert list(missing_fields(modes, {"properties": {"mode": {"type": "string"}}})) == []


TEXT, NUMBER, EITHER = {"type": "string"}, {"type": "integer"}, {"x-kubernetes-int-or-string": True}


@pytest.mark.parametrize(
    ("ours", "served", "missing"),
    [
        (TEXT, NUMBER, [".a:string"]),
        (EITHER, TEXT, [".a:integer or string"]),
        (NUMBER, EITHER, []),
        (NUMBER, {"type": "number"}, []),
        ({"type": "number"}, NUMBER, [".a:number"]),
        # what an older bound refuses, of any kind
        ({"type": "integer", "maximum": 1000}, {"type": "integer", "maximum": 100}, [".a>100"]),
        (NUMBER, {"type": "integer", "minimum": 1}, [".a<1"]),
        ({"type": "string", "maxLength": 253}, {"type": "string", "maxLength": 63}, [".a>63 characters"]),
        ({"type": "array", "maxItems": 9}, {"type": "array", "maxItems": 8}, [".a>8 entries"]),
        ({"type": "integer", "maximum": 100}, {"type": "integer", "maximum": 1000}, []),
        # what it demands, and this version may leave out
        (
            {"type": "object", "properties": {"b": TEXT, "c": TEXT}, "required": ["c"]},
            {"type": "object", "properties": {"b": TEXT, "c": TEXT}, "required": ["b", "c"]},
            [".a without b"],
        ),
        # an object without fields drops all entries of a map, as it drops fields
        ({"type": "object", "additionalProperties": TEXT}, {"type": "object"}, [".a{}"]),
        ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "additionalProperties": True}, []),
    ],
)
def test_a_type_that_the_served_definition_refuses_is_found(ours: Any, served: Any, missing: list[str]) -> None:
    assert list(missing_fields({"properties": {"a": ours}}, {"properties": {"a": served}})) == missing


@pytest.mark.parametrize(
    ("ours", "served", "missing"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": 32768}, []),
        ({"type": "array"}, {"type": "array", "minItems": 1}, []),
        ({"type": "string", "maxLength": 253}, {"type": "string", "maxLength": 63}, [".a>63 characters"]),
        (TEXT, NUMBER, [".a:string"]),
    ],
)
def test_bounds_that_koordinators_own_definition_has_besides_are_no_sign_of_age(
    ours: Any, served: Any, missing: list[str]
) -> None:
    texts = missing_fields({"properties": {"a": ours}}, {"properties": {"a": served}}, is_shared=True)
    assert list(texts) == missing


@pytest.mark.parametrize(
    ("subject", "degrades"),
    [
        ("podmigrationjobs/by-hand", False),
        ("reservations/by-hand", False),
        ("pods/shop/train-0", False),
        ("podgroups/shop/train", False),
        ("elasticquotas/shop", False),
        ("configmaps/slo-controller-config", True),
        ("nodes", True),
    ],
)
def test_what_a_person_wrote_wrong_is_told_and_does_not_degrade_the_feature(subject: str, degrades: bool) -> None:
    assert ObjectNote(subject, "Refused", "words", warning=True).degrades is degrades
    assert not ObjectNote(subject, "Told", "words").degrades
