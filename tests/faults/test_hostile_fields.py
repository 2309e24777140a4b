"""Whatever a tenant or a node's agent writes into a field, each process reads the object in time, or refuses it.

A reader that takes seconds holds the interpreter's lock: webhook, manager and extender then answer nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import pytest

from bench.platform.fuzz import seeds
from bench.platform.fuzz.hostile import LONGEST, annotated_pod, texts, worst
from bench.platform.fuzz.surfaces import DOCUMENTED, SURFACES, Surface
from cotenant.autopilot.decide.policy import read_policy
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.inventory.pod_templates import role_of
from cotenant.base.tables import filters
from cotenant.base.text import stable_text, visible
from cotenant.dashboard.autopilot import policy_form
from cotenant.dashboard.autopilot.policy_form import parse_policy
from cotenant.dashboard.frame import carried
from cotenant.dashboard.reservations import forms
from cotenant.profiler.recorder.exposition import container_ref, parse_resource_metrics
from cotenant.recommender.model.views import WORKLOADS
from cotenant.scheduler_ext.reservations.service.terms import validate_terms

MOST_SECONDS = 1.0
"""Of processor time, for one object: nobody else's answer may wait longer."""
SHORT, LESS_SECONDS = 4_000, 0.2
"""Of the small form: what takes so long for 4,000 characters takes minutes for 250,000 if its time is the square."""
WRITTEN = [surface for surface in SURFACES if surface.written is not None]


def faults(surface: Surface, longest: int, most_seconds: float) -> list[str]:
    """What was read too slowly, or raised what nobody documented."""
    written = annotated_pod() if surface.written is seeds.POD else surface.written
    slow_fields = []
    for what, document in worst(written, longest):
        for _ in range(2):  # the collector of garbage may come in between once
            began, raised = time.process_time(), ""
            try:
                surface.take(document)
            except DOCUMENTED:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody documented it
                raised = f" {type(error).__name__}: {str(error)[:80]}"
            seconds = time.process_time() - began
            if not raised and seconds <= most_seconds:
                break
        else:
            if surface.admits(document):
                slow_fields.append(f"{what}: {seconds:.1f} s{raised}")
    return slow_fields


@pytest.mark.slow
@pytest.mark.parametrize("surface", WRITTEN, ids=lambda surface: surface.name)
def test_each_field_at_its_worst_is_read_in_time_or_refused(surface: Surface) -> None:
    assert faults(surface, SHORT, LESS_SECONDS) == []


@pytest.mark.soak
@pytest.mark.parametrize("surface", WRITTEN, ids=lambda surface: surface.name)
def test_each_field_of_the_greatest_length_is_read_in_time_or_refused(surface: Surface) -> None:
    assert faults(surface, LONGEST, MOST_SECONDS) == []


def _kubelet_line(text: str) -> None:
    encoded = text.encode("utf-8", "replace")
    parse_resource_metrics(b'container_cpu_usage_seconds_total{container="%b"} %b 1\n' % (encoded, encoded))
    container_ref(b'container="%b",namespace="a",pod="b"' % encoded)


def _filtered(text: str) -> None:
    """An address of a page, as its tables and its charts read it."""
    text = text[:16_000]  # more than a browser sends
    for search in (
        f"ns={text}",
        f"q={quote(text, errors='replace')}",
        f"range={text}",
        f"{text}={text}",
        f"cpu>{text}",
    ):
        with suppress(CotenantError):
            filters.parse(carried.about(search, WORKLOADS), WORKLOADS)
        with suppress(CotenantError):
            carried.namespace_query(search)
        carried.back_seconds(search, 60.0)


def _edited(text: str) -> None:
    """The editor's YAML, and the form that shows what it holds."""
    for body in (text, f"spec: {text}", f"metadata: {{name: {text}}}\nspec: {{mode: {text}, windows: [{text}]}}"):
        with suppress(CotenantError):
            policy_form.form(policy := parse_policy(body))
            read_policy(policy)


def _typed(text: str) -> None:
    """Each field of a plan's form, and of a policy's."""
    form = {"pods": 2, "when": "schedule", "schedule": "0 18 * * *", "zone": "Etc/UTC", "minutes": 60, "lead": 5}
    dated = {"pods": 2, "when": "window", "start": "2026-11-20T18:00", "end": "2026-11-20T19:00", "lead": 5}
    for fields in (form, dated):
        for key in fields.keys() - {"when"}:
            with suppress(CotenantError):
                validate_terms(forms.terms({**fields, key: text, "ttl": text if key == "lead" else ""}), 1.8e9)
    for field in policy_form.FIELDS:
        with suppress(CotenantError):
            read_policy(policy_form.with_form_value(seeds.POLICY, field, text))


TAKES: dict[str, Callable[[str], object]] = {
    "name of a pod": lambda text: role_of(WorkloadRef("data", "RayCluster", "lake"), text, {}, None),
    "message that is compared": stable_text,
    "message that is shown": visible,
    "line of a kubelet": _kubelet_line,
    "address of a page": _filtered,
    "YAML of the editor": _edited,
    "fields of forms": _typed,
}


@pytest.mark.parametrize("take", TAKES)
def test_a_text_at_its_worst_is_read_in_time(take: str) -> None:
    slow = []
    for name, text in texts(LONGEST).items():
        began = time.process_time()
        TAKES[take](text)
        if time.process_time() - began > MOST_SECONDS:
            slow.append(name)
    assert slow == []
