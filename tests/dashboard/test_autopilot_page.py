"""The page Autopilot and its REST endpoints on a cluster: queue, drafts, the switch, rights, empty states."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.decide.halt import Halt
from cotenant.autopilot.model import AutopilotMode
from cotenant.autopilot.policy_draft import parse_draft
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.service import visible_to
from cotenant.base.errors import NoData, UsageError
from cotenant.base.people import Grant, NotAllowed, Person, Role
from cotenant.base.reasons import Reason
from cotenant.changes.model.service import BundleForm
from cotenant.dashboard.app import create_app
from cotenant.dashboard.autopilot import acting, bundles, policy_form
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.pages import autopilot as page
from tests.dashboard.test_states import text_of
from tests.support import autopilot as support
from tests.support import dashboard
from tests.support.access import Browser
from tests.support.autopilot import APPROVER, NOW, POLICY, SPEC, VIEWER, EmbeddedAutopilot
from tests.support.moves import narrowed

pytestmark = pytest.mark.server
ELSEWHERE = narrowed(APPROVER, "elsewhere")
HEAD = "metadata: {name: a, namespace: b}"


@pytest.fixture
def autopilot(tmp_path: Path) -> Iterator[EmbeddedAutopilot]:
    with support.embedded(tmp_path) as embedded_autopilot:
        yield embedded_autopilot


def view_of(autopilot: EmbeddedAutopilot | None, who: Person = APPROVER) -> View:
    service = autopilot.service() if autopilot else None
    context = DashboardContext(autopilot=service, current_user=lambda: who)
    return View(None, dashboard.QUICK, lambda: NOW, context)  # type: ignore[arg-type]


def drawn(autopilot: EmbeddedAutopilot | None, search: str = "", who: Person = APPROVER) -> str:
    view = view_of(autopilot, who)
    return text_of(panels.render_guarded(lambda: page.render(view, search)))


def body(**spec: Any) -> dict[str, Any]:
    """The policy of the autopilot with another spec."""
    return {"metadata": {"name": "nightly", "namespace": "shop"}, "spec": {**SPEC, **spec}}


# ---- what is shown


def test_a_round_is_put_into_tables_once_for_all_who_read_the_same(autopilot: EmbeddedAutopilot) -> None:
    service = autopilot.service()
    autopilot_round = service.round(APPROVER)
    assert service.round(VIEWER) is autopilot_round
    assert len(service.round(ELSEWHERE).status) == 0 < len(autopilot_round.status)
    assert service.round(APPROVER, True) is not autopilot_round


def test_the_queue_says_why_each_waits_now_and_what_goes_tonight(autopilot: EmbeddedAutopilot) -> None:
    now, tonight = drawn(autopilot), drawn(autopilot, "?show=tonight")
    assert "outside window 1" in now and "never touched 1" in now and '"propose"' not in now
    # shop/web: two replicas, 200m less each
    assert '"propose"' in tonight and "400 m" in tonight and "−400" not in tonight
    assert "the workload has a single replica" in tonight
    assert "observing" in now and "0 of 1 policy may change workloads" in now
    assert "Nothing was proposed or changed." in now


def test_who_reads_other_namespaces_sees_no_policy_of_this_one(autopilot: EmbeddedAutopilot) -> None:
    text = drawn(autopilot, who=ELSEWHERE)
    assert (
        "There is no policy." in text and "The queue is empty." in text and "nightly" not in text.split("apply -f")[0]
    )


def test_a_queue_that_the_address_leaves_out_is_not_said_to_be_empty(autopilot: EmbeddedAutopilot) -> None:
    text = drawn(autopilot, "?ns=nobody")
    assert "No workload matches these filters." in text and "The queue is empty." not in text


def kept_by_flux(autopilot: EmbeddedAutopilot) -> None:
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"kustomize.toolkit.fluxcd.io/name": "shop"}}]
    autopilot.api.patch(f"/apis/apps/v1/namespaces/{support.NAMESPACE}/deployments/web", patch, kind="json")


def test_files_are_offered_for_what_a_gitops_tool_keeps(autopilot: EmbeddedAutopilot) -> None:
    assert "A GitOps tool manages" not in drawn(autopilot)
    kept_by_flux(autopilot)
    offered = drawn(autopilot)
    assert "A GitOps tool manages 1 workload." in offered and "autopilot-bundle-asked" in offered
    # of the namespace that is shown, and not of all
    row = {"namespace": "shop", "gitops": "flux"}
    assert '"namespaces\\": \\"shop\\"' in text_of(bundles.offer(view_of(autopilot), [row, row]))
    with pytest.raises(NoData, match="the autopilot would change no workload of a GitOps tool now"):
        autopilot.service().bundle(ELSEWHERE, BundleForm.KUSTOMIZE)
    with pytest.raises(NotAllowed, match=f"may not review in namespace {support.NAMESPACE}"):
        autopilot.service().bundle(VIEWER, BundleForm.KUSTOMIZE)


def test_each_empty_state_has_its_own_sentence_and_next_step(autopilot: EmbeddedAutopilot) -> None:
    assert "This dashboard has no cluster access." in drawn(None) and "cotenant dashboard --act" in drawn(None)
    autopilot.api.delete(f"{support.HERE}/nightly")
    text = drawn(autopilot)
    assert "There is no policy." in text and page.EXAMPLE in text
    off = msgspec.structs.replace(autopilot.settings.autopilot, enabled=False)
    autopilot.settings = msgspec.structs.replace(autopilot.settings, autopilot=off)
    text = drawn(autopilot)
    assert "autopilot.enabled is false" in text and page.INSTALL in text


def test_a_paused_autopilot_says_who_and_offers_to_resume(autopilot: EmbeddedAutopilot) -> None:
    assert '"aria-label": "Pause"' in drawn(autopilot)
    autopilot.service().pause(APPROVER, "incident 4711")
    text = drawn(autopilot)
    assert "incident 4711" in text and '"aria-label": "Resume"' in text and '"aria-label": "Pause"' not in text


def test_whoever_may_not_finds_the_button_disabled_with_the_reason(autopilot: EmbeddedAutopilot) -> None:
    button = acting.button(view_of(autopilot, VIEWER), acting.PAUSE)
    assert button.disabled and "this needs role approver or admin" in button.title


def test_resuming_everything_is_offered_to_who_approves_in_all_namespaces(autopilot: EmbeddedAutopilot) -> None:
    autopilot.service().pause(APPROVER)
    button = acting.button(view_of(autopilot, narrowed(APPROVER, "shop")), acting.RESUME)
    assert button.disabled and "in some namespaces only" in button.title
    assert not acting.button(view_of(autopilot), acting.RESUME).disabled


def test_who_reads_one_namespace_is_not_told_which_workloads_of_others_were_harmed() -> None:
    halt = Halt(Reason.AUTOPILOT_STOPPED, "2 of the last 40 changes did harm: pay/Deployment/checkout")
    reading = RoundReading(NOW, halt=halt)
    assert visible_to(reading, APPROVER).halt == halt
    elsewhere = visible_to(reading, ELSEWHERE).halt
    assert elsewhere is not None and "pay" not in elsewhere.words and "did harm" in elsewhere.words


# ---- drafts


def test_a_draft_is_decided_without_being_kept(autopilot: EmbeddedAutopilot) -> None:
    before = autopilot.policy()["metadata"]["resourceVersion"]
    result = autopilot.service().try_policy(APPROVER, body(resources=["memory"]))
    reasons = {row["workload"]: row["reason"] for row in result.queue.rows()}
    assert reasons["web"] == "autopilot-nothing-allowed"  # its recommendation moves CPU alone
    unnamed = {**body(), "metadata": {"name": "other", "namespace": "shop"}}
    (row,) = autopilot.service().try_policy(APPROVER, unnamed).status.rows()
    assert row["policy"] == "other"
    assert autopilot.policy()["metadata"]["resourceVersion"] == before and autopilot.events() == []


def test_saving_replaces_what_was_looked_at_and_nothing_else(autopilot: EmbeddedAutopilot) -> None:
    service = autopilot.service()
    service.act(APPROVER, POLICY)
    acting_spec = autopilot.policy()["spec"]
    assert service.save_policy(APPROVER, body(atOnce=3), acting_spec, "slower") == POLICY
    assert autopilot.policy()["spec"] == {**SPEC, "atOnce": 3}
    (row,) = autopilot.service().round(APPROVER).status.rows()
    assert row["mode"] == "Observe"
    with pytest.raises(UsageError, match="was changed after you opened it"):
        service.save_policy(APPROVER, body(atOnce=4), acting_spec)
    with pytest.raises(UsageError, match="AutopilotPolicy shop/nightly already exists"):
        service.save_policy(APPROVER, body(atOnce=4), None)
    with pytest.raises(UsageError, match="there is no AutopilotPolicy shop/renamed"):
        service.save_policy(APPROVER, {"metadata": {"name": "renamed", "namespace": "shop"}}, SPEC)
    assert autopilot.policy()["spec"]["atOnce"] == 3
    new = {**body(), "metadata": {"name": "other", "namespace": "shop"}}
    assert service.save_policy(APPROVER, new, None) == "shop/other"
    assert [event for event, _ in autopilot.events()] == ["autopilot-act", "autopilot-edited", "autopilot-edited"]


def test_a_policy_without_a_mode_is_saved_again_and_again(autopilot: EmbeddedAutopilot) -> None:
    service, spec = autopilot.service(), {"atOnce": 2}  # the server fills in the mode
    assert service.save_policy(APPROVER, {**body(), "spec": spec}, SPEC) == POLICY
    assert service.save_policy(APPROVER, {**body(), "spec": {"atOnce": 3}}, spec) == POLICY
    assert autopilot.policy()["spec"]["atOnce"] == 3


def test_saving_ends_an_approval_also_when_the_approved_text_is_saved_again(autopilot: EmbeddedAutopilot) -> None:
    service = autopilot.service()
    service.act(APPROVER, POLICY)
    approved = autopilot.policy()["spec"]
    service.save_policy(APPROVER, {**body(), "spec": approved}, approved)
    (row,) = service.round(APPROVER).status.rows()
    assert (row["asked"], row["mode"]) == ("Act", "Observe") and "nobody has approved the policy" in row["reason"]


def test_a_policy_that_changed_since_it_was_looked_at_is_not_approved(autopilot: EmbeddedAutopilot) -> None:
    service = autopilot.service()
    digest = service.policy(APPROVER, POLICY).digest
    autopilot.api.patch(f"{support.HERE}/nightly", [{"op": "add", "path": "/spec/atOnce", "value": 7}], "json")
    with pytest.raises(UsageError, match="was changed after you opened it"):
        service.switch(APPROVER, POLICY, AutopilotMode.ACT, digest=digest)
    assert autopilot.events() == [] and autopilot.policy()["spec"]["mode"] == "Observe"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1 is not YAML"),
        ("- 1", "not an object"),
        ("spec: {}", "metadata.name: None is not a valid name"),
        (f"{HEAD}\nspec: 3", "spec: 3 is not an object"),
        (f"{HEAD}\nspec: &a {{selector: *a}}", "line 2 uses an anchor or alias"),
        (f"{HEAD}\nspec: {'[' * 5000}", "line 2 is nested deeper than 20"),
        (f"# {'x' * (1 << 18)}", "larger than 262144 bytes"),
        (f"{HEAD}\nspec: {{1: 2}}", "key 1, which is not a string"),
        (f"{HEAD}\nspec: {{mode: Off}}", "YAML reads Off without quotes as false"),
        (f"{HEAD}\nspec: {{selector: {{matchLables: {{a: b}}}}}}", "spec.selector.matchLables is not a field"),
        (f"kind: Deployment\n{HEAD}", "kind: 'Deployment' is not a policy's kind"),
        ("metadata: {name: a/../b, namespace: b}", "metadata.name: 'a/../b' is not a valid name"),
        ("metadata: {name: a, namespace: 'b?dryRun=All'}", "metadata.namespace: 'b"),
        ("a: 2026-02-31", "not YAML"),
        ('a: "\\UFFFFFFFF"', "not YAML"),
    ],
)
def test_a_text_that_is_no_policy_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_draft(policy_form.parse_policy(text))


@pytest.mark.parametrize("name", ["shop/../x", "shop/a/b", "shop/a?b", "shop/", "a b/c"])
def test_a_name_that_is_no_part_of_a_path_is_refused_before_anything_is_asked(
    autopilot: EmbeddedAutopilot, name: str
) -> None:
    with pytest.raises(UsageError, match=r"is not a valid name|is not NAMESPACE/NAME"):
        autopilot.service().policy(APPROVER, name)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    NAMES, NAMES, st.dictionaries(NAMES, st.one_of(st.integers(), st.booleans(), NAMES, st.lists(NAMES)), max_size=4)
)
def test_an_object_survives_being_written_and_read(name: str, namespace: str, spec: dict[str, Any]) -> None:
    document = {"kind": "AutopilotPolicy", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    assert policy_form.parse_policy(policy_form.as_yaml(document)) == document


@given(st.text(max_size=60))
def test_any_text_is_a_policy_or_a_clear_refusal(text: str) -> None:
    try:
        policy, _ = parse_draft(policy_form.parse_policy(text))
    except UsageError:
        return
    assert policy.name and policy.namespace


# ---- REST


def test_scripts_see_pause_and_resume_by_the_same_rights(autopilot: EmbeddedAutopilot) -> None:
    current_user = [APPROVER]
    context = DashboardContext(autopilot=autopilot.service(), current_user=lambda: current_user[0])
    app = create_app(None, dashboard.QUICK, context=context)  # type: ignore[arg-type]
    with dashboard.served(app) as address:
        root = f"{address}/api/v1/autopilot"
        (policy,) = requests.get(f"{root}/status?namespace=shop", timeout=60).json()["rows"]
        assert (policy["asked"], policy["mode"], policy["workloads"]) == ("Observe", "Observe", 2)
        decisions = {
            path: [row["decision"] for row in requests.get(f"{root}/{path}", timeout=60).json()["rows"]]
            for path in ("queue", "preview")
        }
        assert decisions == {"queue": ["wait", "wait"], "preview": ["propose", "wait"]}
        assert requests.get(f"{root}/report?format=csv", timeout=60).text.startswith("namespace,proposed")
        browser = Browser(address)
        browser.get("/", page=True)

        def post(path: str, document: dict[str, Any]) -> requests.Response:
            return browser.post(f"/api/v1/autopilot{path}", json=document)

        kept_by_flux(autopilot)
        files = post("/bundles", {"form": "kustomize", "namespaces": ["shop"]})
        with zipfile.ZipFile(io.BytesIO(files.content)) as archive:
            assert 'cpu: "800m"' in archive.read("shop/deployment-web.yaml").decode()
        assert post("/pause", {"reason": "drill"}).status_code == 200
        assert "drill" in autopilot.paused()
        halted = requests.get(root, timeout=60).json()
        assert halted["halt_reason"] == "autopilot-paused" and "drill" in halted["halt"]
        current_user[0] = narrowed(APPROVER, "shop")
        refused = post("/resume", {})
        assert refused.status_code == 403 and "in some namespaces only" in refused.json()["message"]
        current_user[0] = APPROVER
        assert post("/resume", {"reason": "over"}).status_code == 200
        assert requests.get(root, timeout=60).json()["halt"] == ""
        stored = requests.get(f"{root}/policies/{POLICY}", timeout=60).json()
        for unread in ({"mode": "Act"}, {"mode": "Act", "digest": "", "reason": "sure"}):
            refused = post(f"/policies/{POLICY}/mode", unread)
            assert (refused.status_code, refused.json()["error"]) == (428, "UnseenVersion")
            assert f"{POLICY} does not contain the digest" in refused.json()["message"]
        assert autopilot.policy()["spec"]["mode"] == "Observe"
        agreed = {"mode": "Act", "digest": stored["digest"]}
        assert post(f"/policies/{POLICY}/mode", agreed).status_code == 200
        assert autopilot.policy()["spec"]["mode"] == "Act"
    switches = ["autopilot-paused", "autopilot-resumed", "autopilot-act"]
    assert [event for event, _ in autopilot.events()] == ["bundled", *switches]


@pytest.mark.parametrize("who", [VIEWER, Person("own", grants=(Grant(Role.OWNER),)), ELSEWHERE])
def test_nobody_else_lets_a_policy_act_or_saves_one(autopilot: EmbeddedAutopilot, who: Person) -> None:
    service, before = autopilot.service(), autopilot.policy()
    with pytest.raises(NotAllowed):
        service.switch(who, POLICY, AutopilotMode.ACT)
    with pytest.raises(NotAllowed):
        service.save_policy(who, body(atOnce=9), SPEC)
    if who is not ELSEWHERE:
        with pytest.raises(NotAllowed):
            service.pause(who)
    assert (autopilot.policy(), autopilot.events(), autopilot.paused()) == (before, [], "")
