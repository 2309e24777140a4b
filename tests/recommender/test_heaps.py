"""A runtime's heap, the memory request and the limit are sized together and written as one change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Container
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.runtimes import heap as heap_model
from cotenant.base.runtimes.heap import HeapProposal, ManagedHeap
from cotenant.base.runtimes.jvm import Jvm
from cotenant.changes.decide.field_changes import inverse, planned
from cotenant.changes.decide.gitops.manifests import server_side_apply
from cotenant.changes.decide.guardrails import GuardrailContext, GuardrailOutcome, judge, judge_recorded
from cotenant.changes.decide.heap_flags import flag_texts, rebased_heap
from cotenant.changes.decide.methods import MethodContext, impossible
from cotenant.changes.decide.patches import kubectl_command
from cotenant.changes.decide.steps import first_step, rebase_on_live
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.manager.decisions.results import advice
from cotenant.pipeline import tables
from cotenant.recommender.backtest import backtest, present, record
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.findings import of_containers
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import (
    CotenantSettings,
    FindingSettings,
    RecommenderSettings,
)
from cotenant.recommender.strategies.cotenant import Cotenant
from tests.support.evidence import Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
WEB = WorkloadRef("shop", "Deployment", "web")
DAY = 288
LARGE = ManagedHeap("jvm", 4 * GIB, 512 * MIB, 4 * GIB, 200 * MIB, 0.01)
"""4 GiB of which 512 MiB are live: 1,280 MiB would do."""


def with_heap(case: Case, heap: ManagedHeap) -> Evidence:
    """Evidence of one workload whose only container has this heap."""
    evidence = evidence_of(case)
    containers = (replace(evidence.workloads[0].containers[0], heap=heap),)
    return replace(evidence, workloads=(replace(evidence.workloads[0], containers=containers),))


def web(memory_bytes: float, request: int, limit: int | None, **more: Any) -> Case:
    limits = {} if limit is None else {MEMORY: limit}
    usage = np.full((1, 8 * DAY), float(memory_bytes))
    return Case(
        memory=usage, cpu=np.full((1, 8 * DAY), 100.0), requests={MEMORY: request, CPU: 200}, limits=limits, **more
    )


def recommended_for(evidence: Evidence, **own: Any) -> Recommendation:
    return Cotenant().recommend(evidence, RecommenderSettings(cotenant=CotenantSettings(**own)))[0]


def amounts(recommendation: Recommendation) -> tuple[int | None, int | None]:
    """Memory request and limit in MiB."""
    values = (recommendation.value(MEMORY, field) for field in (Field.REQUEST, Field.LIMIT))
    request, limit = (value.amount // MIB if value and value.amount else None for value in values)
    return request, limit


def test_a_heap_far_above_what_is_live_shrinks_with_request_and_limit() -> None:
    peak_bytes = 4 * GIB + 300 * MIB
    recommended = recommended_for(with_heap(web(peak_bytes, 5 * GIB, 6 * GIB), LARGE), lower_limits=True)
    # 512 MiB live x 2.5 = 1,280; beside the heap max(200 of the JVM, 4,396 - 4,096 = 300) x 1.15 = 345 MiB
    assert recommended.heap == HeapProposal("jvm", 4 * GIB, 1280 * MIB, 345 * MIB)
    assert amounts(recommended)[0] == 1280 + 345
    limit = amounts(recommended)[1]
    assert limit is not None and limit >= 1280 + 345
    # as limits stay by default, the change leaves 6 GiB
    assert amounts(recommended_for(with_heap(web(peak_bytes, 5 * GIB, 6 * GIB), LARGE))) == (1625, 6 * 1024)
    (row,) = tables.recommendations([recommended], GuardrailSettings()).rows()
    assert (row["heap_now"], row["heap"]) == (4 * GIB, 1280 * MIB)
    assert any("from 4.0 GiB to 1.2" in note and "-Xmx" in note for note in recommended.notes)


def test_a_limit_below_heap_and_rest_rises_though_the_working_set_is_small() -> None:
    heap = replace(LARGE, live_bytes=2 * GIB, committed_bytes=2 * GIB)
    recommended = recommended_for(with_heap(web(2 * GIB, 3 * GIB, 4 * GIB), heap))
    # 2 GiB x 2.5 is above the present 4 GiB, which stays; beside it 200 MiB x 1.15 = 230
    assert recommended.heap is None and amounts(recommended)[1] == 4096 + 230
    evidence = with_heap(web(2 * GIB, 3 * GIB, 4 * GIB), heap)
    kinds = [f.kind for f in of_containers(evidence, FindingSettings(), CotenantSettings())]
    assert kinds == [FindingKind.HEAP_ABOVE_LIMIT]


def test_collection_pressure_raises_heap_request_and_limit_together() -> None:
    pressed = ManagedHeap("jvm", GIB, 900 * MIB, GIB, 100 * MIB, 0.2)
    evidence = with_heap(web(1200 * MIB, 1300 * MIB, 1500 * MIB), pressed)
    recommended = recommended_for(evidence)
    # 1,024 x 1.5 = 1,536 MiB; beside it max(100, 1,200 - 1,024 = 176) x 1.15 = 202.4, in whole MiB 203
    assert recommended.heap == HeapProposal("jvm", GIB, 1536 * MIB, 203 * MIB)
    # by usage and the rise it would request 1,200 x 1.15, within the dead band of 1,300, and 512: more than the limit
    assert amounts(recommended) == (1536 + 203, 1536 + 203)
    kinds = {f.kind for f in of_containers(evidence, FindingSettings(), CotenantSettings())}
    assert kinds == {FindingKind.HEAP_PRESSURE}


@pytest.mark.parametrize(
    ("limit", "most", "raised"), [(1500, 1600, False), (None, 1600, False), (1500, 1800, True), (None, 1900, True)]
)
def test_a_heap_is_raised_within_the_annotated_maximum_or_not_at_all(
    limit: int | None, most: int, raised: bool
) -> None:
    pressed = ManagedHeap("jvm", GIB, 900 * MIB, GIB, 100 * MIB, 0.2)
    evidence = with_heap(web(1200 * MIB, 1300 * MIB, limit and limit * MIB), pressed)
    annotated = replace(evidence.workloads[0], annotations={"cotenant.dev/max-memory": f"{most}Mi"})
    recommended = recommended_for(replace(evidence, workloads=(annotated,)))
    # The heap takes 1,536 + 203 = 1,739 MiB; without a limit the request rises by 512 to 1,812 MiB.
    expected = (1300, limit) if not raised else (1739, 1739) if limit else (1812, None)
    assert (amounts(recommended), recommended.heap is not None) == (expected, raised)


@pytest.mark.parametrize("live_bytes", [100 * MIB, GIB], ids=["room enough", "nobody knows what is live"])
def test_collections_that_no_size_ends_raise_no_heap(live_bytes: int) -> None:
    pressed = ManagedHeap("jvm", GIB, live_bytes, GIB, 100 * MIB, 0.2)
    assert recommended_for(with_heap(web(1200 * MIB, 1300 * MIB, 1500 * MIB), pressed)).heap is None


@pytest.mark.parametrize(
    "case",
    [
        web(4 * GIB, 5 * GIB, 6 * GIB, hpa={MEMORY: 70}),
        web(4 * GIB, 5 * GIB, 6 * GIB, kills=[(3600, 6 * GIB)]),
    ],
    ids=["an autoscaler on memory", "an OOM kill"],
)
def test_a_heap_that_must_not_move_stays(case: Case) -> None:
    assert recommended_for(with_heap(case, LARGE)).heap is None


def test_of_a_guaranteed_pod_the_heap_stays() -> None:
    case = replace(web(4 * GIB, 6 * GIB, 6 * GIB), limits={MEMORY: 6 * GIB, CPU: 200})
    assert recommended_for(with_heap(case, LARGE)).heap is None


SIZES = st.integers(0, 64 * 1024).map(lambda mib: mib * MIB)


HEAPS = st.builds(ManagedHeap, st.just("jvm"), SIZES.filter(bool), SIZES, SIZES, SIZES, st.floats(0, 1))


@pytest.mark.slow
@given(HEAPS, SIZES, SIZES, st.none() | SIZES, st.booleans())
def test_no_proposed_limit_is_below_heap_and_rest_unless_it_stays(
    heap: ManagedHeap, peak_bytes: int, request: int, limit: int | None, lower: bool
) -> None:
    recommended = recommended_for(
        with_heap(web(peak_bytes, max(request, MIB), limit or None), heap), lower_limits=lower
    )
    proposed = recommended.value(MEMORY, Field.LIMIT)
    if proposed is None or proposed.amount is None or proposed.amount == proposed.now:
        return
    largest = recommended.heap.amount_bytes if recommended.heap else heap.maximum_bytes
    assert proposed.amount >= largest + heap.rest_bytes(peak_bytes)
    request_value = recommended.value(MEMORY, Field.REQUEST)
    assert request_value is None or request_value.amount is None or request_value.amount <= proposed.amount


def test_a_back_test_takes_the_memory_that_a_smaller_heap_will_not_have_from_what_was_seen() -> None:
    evidence = with_heap(web(4 * GIB + 300 * MIB, 5 * GIB, 6 * GIB), LARGE)
    recommended, now, then = recommended_for(evidence), present(evidence), present(evidence)
    then.apply(0, recommended)
    tried = backtest(record(evidence, 7), now, then)
    # 4,396 MiB seen less 2,816 of heap is 1,580, below the request of 1,625 MiB
    assert (tried.evictions[0], tried.oom_kills[0]) == (0, 0)
    then.apply(0, replace(recommended, heap=None))
    assert then.heap_falls is not None
    then.heap_falls[0] = 0
    assert backtest(record(evidence, 7), now, then).evictions[0] == 7


# --- flags ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("-Xmx4g", "-Xmx1280m"),
        ("-Xms4g -Xmx4g -Dx=-Xmx", "-Xms1280m -Xmx1280m -Dx=-Xmx"),
        ("-Xms256m -Xmx4096M -server", "-Xms256m -Xmx1280m -server"),
        ("exec java -XX:MaxHeapSize=4294967296 -jar 'a.jar'", "exec java -Xmx1280m -jar 'a.jar'"),
        ("-XX:MaxRAMPercentage=75.0", "-Xmx1280m"),
        ('sh -c "java -Xmx4g"', 'sh -c "java -Xmx1280m"'),
        ("-Xmx$(HEAP)", None),
        ("-Xmx${HEAP}m", None),
        ("-Xms${HEAP} -Xmx4g", None),
        (
            "-XX:MinHeapSize=3g -XX:SoftMaxHeapSize=3500m -Xmx4g",
            "-XX:MinHeapSize=1280m -XX:SoftMaxHeapSize=1280m -Xmx1280m",
        ),
        ("-jar app.jar", None),
        ("--a-Xmx4g", None),
    ],
)
def test_the_flag_of_a_command_line_is_replaced_where_it_is_clear(text: str, changed: str | None) -> None:
    if "-Dx" in text:
        changed = None  # a -Xmx without a size is not understood, so that nothing of the text is touched
    assert Jvm().with_heap_bytes(text, 1280 * MIB) == changed


WORDS = st.lists(
    st.sampled_from(
        ["-Xmx2g", "-Xms1g", "-Xms8g", "-XX:MaxRAMPercentage=50", "-XX:+UseG1GC", "-jar", "a.jar", "-Dk=v"]
    ),
    max_size=8,
)


@given(WORDS, st.integers(1, 10**12))
def test_a_replaced_command_line_has_the_size_and_keeps_every_other_word(arguments: list[str], size: int) -> None:
    resized = Jvm().with_heap_bytes(" ".join(arguments), size)
    is_sized = any(re.match(r"-Xmx|-XX:MaxRAM", word) for word in arguments)
    assert (resized is not None) is is_sized
    if resized is None:
        return
    assert Jvm().size_in(resized) == size
    heap = re.compile(r"-Xm[xs]|-XX:MaxRAM")
    assert [w for w in resized.split() if not heap.match(w)] == [w for w in arguments if not heap.match(w)]
    firsts = [int(m[1]) * {"": 1, "m": MIB, "g": GIB}[m[2]] for m in re.finditer(r"-Xms(\d+)([mg]?)", resized)]
    assert all(first <= size for first in firsts)
    assert Jvm().with_heap_bytes(resized, size) == resized


def test_what_sets_no_flag_in_the_template_is_refused_with_what_to_do() -> None:
    move = HeapProposal("jvm", 4 * GIB, GIB, 100 * MIB)
    container = {"name": "app", "env": [{"name": "JAVA_TOOL_OPTIONS", "valueFrom": {"configMapKeyRef": {"name": "c"}}}]}
    with pytest.raises(UsageError, match="sets no maximum heap for the runtime jvm") as refused:
        flag_texts(container, move)
    assert "-Xmx" in refused.value.fix
    unknown = {"name": "app", "args": ["-Xmx4g"]}
    assert flag_texts(unknown, move) == {"/args/0": ("-Xmx4g", "-Xmx1024m")}
    assert rebased_heap({"name": "app", "args": ["-Xmx3g"]}, move).now_bytes == 3 * GIB
    # somebody has made it smaller since: there is nothing left to do
    assert rebased_heap({"name": "app", "args": ["-Xmx512m"]}, move).change == 0


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"env": [{"name": "JAVA_OPTS", "value": "-Xmx4g"}], "args": ["-Xmx$(HEAP)"]}, "sets no maximum heap"),
        ({"env": [{"name": "JAVA_OPTS", "value": "-Xmx8g"}], "args": ["-Xmx4g"]}, "sets 2 different sizes"),
        (
            {"env": [{"name": "_JAVA_OPTIONS", "valueFrom": {"secretKeyRef": {"name": "s"}}}], "args": ["-Xmx4g"]},
            "takes _JAVA_OPTIONS from a ConfigMap or Secret",
        ),
    ],
    ids=["an unclear flag beside a clear one", "two sizes", "options from a Secret"],
)
def test_a_heap_that_the_template_does_not_set_for_sure_is_refused(container: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        flag_texts({"name": "app", **container}, HeapProposal("jvm", 4 * GIB, GIB, 100 * MIB))


def test_a_start_size_in_a_word_of_its_own_comes_down_with_the_largest_heap() -> None:
    container = {"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xms4g"}], "command": ["java"], "args": ["-Xmx4g"]}
    texts = flag_texts({"name": "app", **container}, HeapProposal("jvm", 4 * GIB, GIB, 100 * MIB))
    assert texts == {"/env/0/value": ("-Xms4g", "-Xms1024m"), "/args/0": ("-Xmx4g", "-Xmx1024m")}


def test_a_limit_over_a_flag_that_somebody_raised_since_the_scan_holds_that_heap() -> None:
    values = (Value(MEMORY, Field.LIMIT, 1500 * MIB, 1739 * MIB, Action.SET, Reason.HEAP),)
    raising = replace(shrinking(), values=values, heap=HeapProposal("jvm", GIB, 1536 * MIB, 203 * MIB))
    (over_now,) = rebase_on_live(live(args=["-Xmx3g"]), {}, [raising])
    limit = over_now.value(MEMORY, Field.LIMIT)
    # the template has a limit of 6 GiB by now, and 3,072 + 203 MiB are the least that holds the heap
    assert limit is not None and (limit.now, limit.amount) == (6 * GIB, (3072 + 203) * MIB)


@pytest.mark.parametrize(
    ("now_mib", "amount_mib", "passes"),
    [
        (6144, 4000, False), (6144, 4096, False), (6144, 4200, True), (6144, 7000, True),
        (None, 4000, False), (None, 4200, True),  # set first
        (3000, 3500, True),  # raised from below the heap: nearer to what the runtime may take, though not there yet
        (3000, None, True),  # taken away
    ],
)  # fmt: skip
def test_no_strategy_sets_a_limit_at_or_below_the_heap_that_the_template_sets(
    now_mib: int | None, amount_mib: int | None, passes: bool
) -> None:
    now, amount = (None if mib is None else mib * MIB for mib in (now_mib, amount_mib))
    values = (Value(MEMORY, Field.LIMIT, now, amount, Action.SET, Reason.OK),)
    plain = replace(shrinking(), values=values, heap=None, strategy="krr-simple")
    context = GuardrailContext(live(env=[{"name": "A", "value": "-Xms1g -Xmx4g"}]), 0.0)
    rules = {rule.rule: rule for rule in judge([plain], context, GuardrailSettings())}
    assert (rules["memory-heap"].outcome is GuardrailOutcome.PASS) is passes, rules["memory-heap"].why


@pytest.mark.parametrize("strategy", ["krr-simple", "krr-simple-limit", "vpa"])
def test_a_strategy_without_heaps_sets_no_limit_below_heap_and_rest(strategy: str) -> None:
    evidence = with_heap(web(GIB, 3 * GIB, 6 * GIB), replace(LARGE, committed_bytes=GIB))
    proposed = [
        r.value(MEMORY, Field.LIMIT) for r in recommend(load_strategy(strategy), evidence, RecommenderSettings())
    ]
    # by 1 GiB of use it would be far below the heap of 4 GiB
    assert [(v.action, v.reason) for v in proposed if v] == [(Action.WITHHELD, Reason.HEAP)]
    without = with_heap(web(GIB, 3 * GIB, 6 * GIB), replace(LARGE, maximum_bytes=512 * MIB, other_bytes=0))
    (small,) = recommend(load_strategy(strategy), without, RecommenderSettings())
    limit = small.value(MEMORY, Field.LIMIT)
    assert limit is not None and limit.action is Action.SET


# --- the change -------------------------------------------------------------------------------------------------------
def live(**container: Any) -> dict[str, Any]:
    resources = {"requests": {"memory": "5Gi"}, "limits": {"memory": "6Gi"}}
    own = {"name": "c0", "resources": resources, **container}
    spec = {"containers": [{"name": "proxy", "args": ["-Xmx64m"]}, own]}
    return {"metadata": {"name": "web", "uid": "u-1"}, "spec": {"template": {"spec": spec}}}


def shrinking(request: int = 1625 * MIB, limit: int = 1625 * MIB) -> Recommendation:
    inputs = {"days": 14.0, "coverage": 1.0, "observed_max": float(4 * GIB + 300 * MIB)}
    values = (
        Value(MEMORY, Field.REQUEST, 5 * GIB, request, Action.SET, Reason.HEAP, inputs=inputs),
        Value(MEMORY, Field.LIMIT, 6 * GIB, limit, Action.SET, Reason.HEAP, inputs=inputs),
    )
    move = HeapProposal("jvm", 4 * GIB, 1280 * MIB, 345 * MIB)
    return Recommendation(ContainerRef(WEB, "c0"), "cotenant", 2, values, 14 * 86_400, "d", 0, heap=move)


@pytest.mark.parametrize(
    ("container", "pointer"),
    [
        ({"env": [{"name": "A", "value": "b"}, {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx4g"}]}, "env/1/value"),
        ({"args": ["-jar", "-Xmx4g"]}, "args/1"),
        ({"command": ["sh", "-c", "java -Xmx4g -jar a.jar"]}, "command/2"),
    ],
)
def test_flag_request_and_limit_are_one_patch_and_its_inverse_puts_all_back(
    container: Mapping[str, Any], pointer: str
) -> None:
    before = live(**container)
    write = planned(before, [shrinking()], "c1")
    assert write is not None
    path = f"/spec/template/spec/containers/1/{pointer}"
    assert set(write.after) == {path, "/spec/template/spec/containers/1/resources"}
    after = jsonpatch.apply_patch(before, [dict(op) for op in write.operations])
    changed = after["spec"]["template"]["spec"]["containers"]
    assert "-Xmx1280m" in str(changed[1]) and "-Xmx4g" not in str(changed[1]) and changed[0]["args"] == ["-Xmx64m"]
    assert changed[1]["resources"] == {"requests": {"memory": "1625Mi"}, "limits": {"memory": "1625Mi"}}
    back = jsonpatch.apply_patch(after, [dict(op) for op in inverse(write, after, "c1-undone")])
    assert back["spec"] == before["spec"]
    # somebody has changed the flag in between: neither patch applies
    after["spec"]["template"]["spec"]["containers"][1].update(
        {key: [] if key == "env" else ["-Xmx9g"] for key in container}
    )
    with pytest.raises(UsageError, match="no longer has the value that was applied"):
        inverse(write, after, "c1-undone")


def test_a_heap_goes_by_a_new_template_alone_and_in_no_file() -> None:
    subject = MethodContext(live(args=["-Xmx4g"]), (shrinking(),))
    assert set(impossible(subject)) >= {Method.IN_PLACE, Method.ANNOTATE}
    assert Method.TEMPLATE not in impossible(subject)
    assert kubectl_command(shrinking()) == ""
    assert kubectl_command(replace(shrinking(), heap=None)) != ""


def test_an_applied_file_of_a_sibling_keeps_the_memory_of_a_container_whose_heap_would_change() -> None:
    cpu = Value(CPU, Field.REQUEST, 500, 300, Action.SET, Reason.OK)
    sibling = replace(shrinking(), container=ContainerRef(WEB, "c1"), values=(cpu,), heap=None)
    (file,) = server_side_apply([shrinking(), sibling])
    assert isinstance(file.document, Mapping)
    containers = {c["name"]: c["resources"] for c in file.document["spec"]["template"]["spec"]["containers"]}
    assert containers["c0"] == {"requests": {"memory": "5Gi"}, "limits": {"memory": "6Gi"}}
    assert containers["c1"] == {"requests": {"cpu": "300m"}}


def test_what_is_published_in_the_cluster_names_no_memory_that_holds_only_with_another_heap() -> None:
    cpu = Value(CPU, Field.REQUEST, 500, 300, Action.SET, Reason.OK)
    (workload,) = advice([replace(shrinking(), values=(*shrinking().values, cpu))], {})
    (container,) = workload.containers
    assert (container.amounts, container.limits) == ({CPU: 300}, {})
    assert container.withheld == {MEMORY: "heap"}


@given(most=st.floats(0.11, 0.9), limit=st.integers(1625, 6 * 1024))
def test_the_first_step_of_a_heap_fits_into_the_first_step_of_its_limit(most: float, limit: int) -> None:
    guardrails = GuardrailSettings(most_memory_cut=most)
    (first,) = first_step([shrinking(limit=limit * MIB)], guardrails)
    assert first.heap is not None
    # not cut by more than a step of memory, in whole MiB
    assert first.heap.amount_bytes >= 4 * GIB * (1 - most) - 1 or first.heap.amount_bytes == 1280 * MIB
    request, stepped_limit = (first.value(MEMORY, field) for field in (Field.REQUEST, Field.LIMIT))
    assert request is not None and stepped_limit is not None
    assert stepped_limit.amount is not None and request.amount is not None
    assert stepped_limit.amount >= first.heap.floor_bytes and request.amount <= stepped_limit.amount
    assert min(first.heap.floor_bytes, 5 * GIB) <= request.amount <= 5 * GIB
    rules = {rule.rule: rule.outcome.value for rule in judge_recorded([first], guardrails)}
    assert rules["memory-step"] == "pass" and rules["memory-floor"] == "pass", format_amount(MEMORY, request.amount)


def test_the_runtimes_of_the_package_are_those_that_the_product_knows_by_itself() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"][heap_model.GROUP] == dict(heap_model.BUILT_IN)
    assert [runtime.name for runtime in heap_model.runtimes()] == ["jvm"]
    assert heap_model.runtime_named("node") is None
    assert Container("c").heap is None
