"""What an installation decides, without a cluster: the plan, what somebody else's definition lacks, the manifests."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.difference import abbreviate_list, differences
from cotenant.cli import main
from cotenant.cli.cluster.installation.manifests import (
    COMPONENTS,
    DEFAULT,
    MEASURING,
    RIGHTS,
    InstalledParts,
    Manifest,
    manifests,
    manifests_beside,
    parse_components,
)
from cotenant.cli.cluster.installation.plan import (
    ObservedManifest,
    StepState,
    gaps,
    install_step,
    missing_fields,
    own_part,
)

LABELS = {"app.kubernetes.io/managed-by": "cotenant"}
ALL = manifests(DEFAULT)
RESERVATION = next(m for m in ALL if m.address.name == "reservations.scheduling.koordinator.sh")
BATCH = next(m for m in ALL if m.address.name == "koord-batch")


def as_stored(manifest: Manifest, **changes: Any) -> dict[str, Any]:
    """As the server would show it, with a label and other changes at the top."""
    body = copy.deepcopy(dict(manifest.body)) | changes
    body["metadata"] |= {"uid": "1", "resourceVersion": "7", "managedFields": [{}]}
    return body


def foreign(manifest: Manifest, **changes: Any) -> dict[str, Any]:
    body = as_stored(manifest, **changes)
    del body["metadata"]["labels"]
    return body


def test_what_is_absent_is_created_and_what_is_equal_stays() -> None:
    assert install_step(ObservedManifest(BATCH)).state is StepState.CREATE
    live = as_stored(BATCH)
    again = copy.deepcopy(live)
    again["metadata"]["resourceVersion"] = "8"
    step = install_step(ObservedManifest(BATCH, live, again))
    assert (step.state, step.writes) == (StepState.UNCHANGED, False)


def test_a_change_names_the_paths() -> None:
    step = install_step(ObservedManifest(BATCH, as_stored(BATCH, description="old"), as_stored(BATCH)))
    assert (step.state, step.note) == (StepState.CHANGE, "description")


def test_somebody_elses_object_is_left_alone_even_when_the_server_would_refuse_ours() -> None:
    assert install_step(ObservedManifest(BATCH, foreign(BATCH))).state is StepState.FOREIGN
    lacking = install_step(ObservedManifest(BATCH, foreign(BATCH, value=5500), refusal="no"))
    assert (lacking.state, lacking.note) == (StepState.LACKING, "the class has the value 5500, Koordinator's is 5000")
    assert install_step(ObservedManifest(BATCH, None, None, "forbidden")).state is StepState.REFUSED


def test_a_definition_without_a_field_of_ours_is_lacking() -> None:
    theirs = foreign(RESERVATION)
    assert install_step(ObservedManifest(RESERVATION, theirs)).state is StepState.FOREIGN
    version = theirs["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["allocatePolicy"]
    assert install_step(ObservedManifest(RESERVATION, theirs)).note == "the CRD lacks spec.allocatePolicy"
    spec["x-kubernetes-preserve-unknown-fields"] = True  # then nothing is dropped
    assert install_step(ObservedManifest(RESERVATION, theirs)).state is StepState.FOREIGN
    del version["subresources"]
    assert install_step(ObservedManifest(RESERVATION, theirs)).note == "the CRD has no status subresource"
    version["served"] = False
    assert install_step(ObservedManifest(RESERVATION, theirs)).note == "the CRD does not serve v1alpha1"
    theirs["spec"]["scope"] = "Namespaced"
    assert install_step(ObservedManifest(RESERVATION, theirs)).note == "the CRD's scope is Namespaced"


NAMES = st.sampled_from(["a", "b", "c"])
SCHEMAS = st.recursive(
    st.just({"type": "string"}),
    lambda inner: st.one_of(
        st.builds(lambda p: {"type": "object", "properties": p}, st.dictionaries(NAMES, inner, max_size=3)),
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(lambda i: {"type": "object", "additionalProperties": i}, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_no_schema_lacks_anything_of_itself_and_an_empty_one_all_of_it(schema: dict[str, Any]) -> None:
    assert list(missing_fields(schema, schema)) == []
    assert list(missing_fields({}, schema)) == list(schema.get("properties", {}))


VALUES = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner.filter(lambda v: v is not None), max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_two_values_differ_exactly_when_a_path_does(first: dict[str, Any], other: dict[str, Any]) -> None:
    def without_null(value: Any) -> Any:
        """An absent key and a null are the same to the API server."""
        if isinstance(value, dict):
            return {k: without_null(v) for k, v in value.items() if v is not None}
        return [without_null(v) for v in value] if isinstance(value, list) else value

    assert list(differences(first, first)) == []
    paths = list(differences(first, other))
    assert (paths == []) == (without_null(first) == without_null(other))
    assert sorted(paths) == sorted(differences(other, first))


def test_what_the_server_keeps_about_an_object_is_no_difference() -> None:
    live = as_stored(BATCH) | {"status": {"x": 1}}
    assert own_part(live) == dict(BATCH.body)


def test_a_long_list_is_shortened() -> None:
    assert abbreviate_list(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert abbreviate_list([]) == ""


def test_components_are_chosen_by_name() -> None:
    assert parse_components("") == DEFAULT
    assert parse_components(" crds, rbac ,") == ("crds", "rbac")
    with pytest.raises(UsageError, match="webhoks"):
        parse_components("webhoks")


NOTHING = InstalledParts()
RECORDED = InstalledParts(settings=True, recorder=True)
CHOSEN = InstalledParts(settings=True)
MANAGED = InstalledParts(settings=True, manager=True)
BOTH = InstalledParts(settings=True, recorder=True, manager=True)
SETTINGS, JOB = "ConfigMap/cotenant-settings", "CronJob/cotenant-scan"


@pytest.mark.parametrize(
    ("components", "installed", "is_default", "staying"),
    [
        (DEFAULT, NOTHING, True, {*MEASURING, SETTINGS, JOB}),
        (DEFAULT, RECORDED, True, {*MEASURING, SETTINGS, JOB}),
        # Somebody chose parts without a recorder: the default adds none.
        (DEFAULT, CHOSEN, True, set()),
        (DEFAULT, MANAGED, True, set()),
        # A running manager keeps its features, and alone reads the history.
        (DEFAULT, BOTH, True, set(MEASURING)),
        (MEASURING, MANAGED, False, set(MEASURING)),
        # Who asks for the manager's own parts sets its features.
        (("recommendations", "recorder"), MANAGED, False, {"recorder", SETTINGS}),
        (RIGHTS, NOTHING, True, set()),
    ],
)
def test_an_installation_switches_off_nothing_that_runs_and_adds_no_second_writer(
    components: tuple[str, ...], installed: InstalledParts, is_default: bool, staying: set[str]
) -> None:
    shipped = manifests_beside(components, installed, is_default=is_default)

    names = {f"{m.kind}/{m.address.name}" for m in shipped}
    pods = {"Deployment/cotenant-recorder": "recorder", "Deployment/cotenant-dashboard": "scan"}
    assert {part for name, part in pods.items() if name in names} | (names & {SETTINGS, JOB}) == staying
    assert set(RIGHTS) - set(components) or "ClusterRole/cotenant-manager" in names


def test_a_named_prometheus_leaves_out_what_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_PROFILER__PROMETHEUS__URL", "http://prometheus.example")

    shown = CliRunner().invoke(main.root, ["install", "--print"])

    names = {(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(shown.stdout)}
    assert names == {(m.kind, m.address.name) for m in manifests(RIGHTS)}
    assert not {kind for kind, _ in names} & {"Deployment", "CronJob"}


@pytest.mark.slow
def test_every_component_has_objects_in_an_order_that_works() -> None:
    for component in COMPONENTS:
        assert manifests([component])
    kinds = [m.kind for m in ALL]
    assert kinds == sorted(
        kinds,
        key=lambda k: (
            ("Namespace", "CustomResourceDefinition").index(k) if k in ("Namespace", "CustomResourceDefinition") else 2
        ),
    )
    assert len({m.address for m in ALL}) == len(ALL)
    assert gaps(RESERVATION.body, RESERVATION.body) == []


def test_the_manager_s_settings_switch_on_what_a_component_is_there_for_and_nothing_else() -> None:
    def settings(component: str) -> dict[str, Any]:
        (manifest,) = [m for m in manifests((component,)) if m.address.name == "cotenant-settings"]
        document: dict[str, Any] = yaml.safe_load(manifest.body["data"]["settings.yaml"])
        return document

    moving = settings("descheduler")
    assert moving["descheduler"] == {"enabled": True} and "queues" not in moving
    assert not {"descheduler", "migrations", "reservations"} & set(moving["manager"]["features_off"])
    queuing = settings("queues")
    assert queuing["queues"]["enabled"] is True and "descheduler" not in queuing
    assert {"descheduler", "migrations"} <= set(queuing["manager"]["features_off"])


def test_print_writes_manifests_and_asks_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    shown = CliRunner().invoke(main.root, ["install", "--print", "--components", "priority-classes"])
    assert shown.exit_code == 0
    values = {d["metadata"]["name"]: d["value"] for d in yaml.safe_load_all(shown.stdout)}
    # The minimum of each band.
    assert values == {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    printed = CliRunner().invoke(main.root, ["install", "--print"])
    names = {d["metadata"]["name"] for d in yaml.safe_load_all(printed.stdout)}
    assert names == {m.address.name for m in ALL}


def test_print_and_apply_exclude_each_other() -> None:
    refused = CliRunner().invoke(main.root, ["install", "--print", "--apply"])
    assert refused.exit_code == 2


@pytest.mark.slow
def test_a_reservation_is_converted_from_a_file_and_from_stdin(tmp_path: Any) -> None:
    owner = "{controller: {apiVersion: apps/v1, kind: Deployment, name: deployment-5b8df84dd}}"
    text = f"kind: Reservation\nmetadata: {{name: a}}\nspec: {{resourceOwners: {owner}, timeToLiveInSeconds: 300}}\n"
    (tmp_path / "two.yaml").write_text(f"{text}---\n{text}")
    command = [
        sys.executable,
        "-c",
        "from cotenant.cli.main import run; run()",
        "config",
        "convert",
        "reservation",
    ]
    done = subprocess.run([*command, str(tmp_path / "two.yaml")], capture_output=True, text=True, check=True)
    assert [d["spec"]["ttl"] for d in yaml.safe_load_all(done.stdout)] == ["300s", "300s"]
    assert "reserves nothing" in done.stderr
    piped = subprocess.run([*command, "-", "-o", "json"], input=text, capture_output=True, text=True, check=True)
    assert yaml.safe_load(piped.stdout)["spec"]["ttl"] == "300s"
    for content, word in (("kind: Pod", "Pod"), ("a: [", "not YAML"), ("", "no object")):
        bad = subprocess.run([*command, "-"], input=content, capture_output=True, text=True, check=False)
        assert (bad.returncode, bad.stdout) == (2, "")
        assert word in bad.stderr
