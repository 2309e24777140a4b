"""A text that cannot be decoded is refused with words wherever it comes in, however it is broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.errors import UsageError
from cotenant.base.http.http_connection import Request
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from cotenant.scheduler_ext.reservations.model.reservation import Affinity, Reservation, affinity_of

BROKEN = {
    "no JSON": "{",
    "another type": "3",
    "half a surrogate": '"\ud800"',
    "nested lists": "[" * 20_000,
    "nested objects": '{"name":' * 20_000,
    "nested where nobody reads": '{"x":' + "[" * 20_000,
}
TEXTS = pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)


@TEXTS
@pytest.mark.parametrize("kind", [Any, dict[str, Any], list[str]], ids=str)
def test_all_that_decoding_can_raise_has_one_name(text: str, kind: Any) -> None:
    try:
        number = msgspec.json.decode(text, type=kind)
    except UNDECODABLE:
        return
    assert number == 3


@TEXTS
def test_a_wish_among_reservations_that_cannot_be_read_is_none(text: str) -> None:
    pod = PodIdentity("shop", "p", annotations={"scheduling.koordinator.sh/reservation-affinity": text})
    assert affinity_of(pod) == Affinity()


@TEXTS
def test_owners_that_cannot_be_read_are_refused_by_name(text: str) -> None:
    annotations = {"scheduling.koordinator.sh/reservation-owners": text}
    with pytest.raises(UsageError, match="shop/p"):
        Reservation.of_pod({"metadata": {"name": "p", "namespace": "shop", "annotations": annotations}})


BYTES = {name: text.encode("utf-8", "surrogatepass") for name, text in BROKEN.items()} | {
    "no UTF-8": b'{"Pod": "\xff"}'
}


@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/preempt", "/bind", "/why"])
@pytest.mark.parametrize("body", BYTES.values(), ids=BYTES)
def test_the_extender_answers_400_to_what_no_scheduler_sends(path: str, body: bytes) -> None:
    parts = ExtenderDependencies(SnapshotFeed(), ExtenderSettings(), FixedClock(0), Metrics("test", "3"))
    response = ExtenderApp(parts).answer(Request("POST", path, {}, body, last=False))
    assert response.status == 400 and response.body.startswith(b"not a request of kube-scheduler")
