"""Rounds that lend floors on an embedded API server: the ledger first, what goes back always, and the preview."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cotenant.autopilot.decide.floors import FloorForecast, FloorStep
from cotenant.autopilot.decide.halt import Halt
from cotenant.autopilot.decide.policy import PolicySpec, effective
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry
from cotenant.autopilot.model import AutopilotMode, QueueVerdict
from cotenant.autopilot.rounds.acts import ActConfig, Acts
from cotenant.autopilot.rounds.floors import Floors
from cotenant.autopilot.rounds.ledger_history import LedgerReader
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.settings import CeilingSettings
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.audited_acts import AuditedActs
from cotenant.pipeline.tables import replicas
from cotenant.recommender.replicas import ReplicaFloor
from cotenant_lab.simulation.api_server.rights import AccessRule, Account
from tests.autopilot.test_floors import FACTOR, HALF_HOUR, MOST, OWN, WEB, scaler
from tests.support.autopilot import APPROVER, NAMESPACE, NOW, EmbeddedAutopilot, embedded

SCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


@dataclass
class FloorLooks:
    """Looks at the autoscaler of `web` on an embedded API server, each of a process that has just started."""

    cluster: EmbeddedAutopilot
    forecast: FloorForecast
    folder: Path
    factor: float = FACTOR
    halt: Halt | None = None
    unread: frozenset[str] = frozenset()
    reader: LedgerReader = field(default_factory=LedgerReader)

    def floors(self) -> Floors:
        def access(who: Person) -> AbstractContextManager[KubeClient]:
            return kubeconfig_door(self.cluster.settings.kube)(who)  # by the rights that the file has now

        config = ActConfig(access, self.folder / "ledger.db", self.cluster.clock, self.cluster.settings)
        ledger = AuditedActs(config.access, config.ledger, "")
        return Floors(config, ledger, Acts(config).paused, lambda: {WEB: self.forecast})

    def step(self, floors: Floors | None = None) -> Sequence[FloorStep]:
        limits = effective(CeilingSettings(replica_floor_factor=self.factor), PolicySpec())
        candidate = QueueCandidate(WEB, f"{NAMESPACE}/nightly", AutopilotMode.ACT, limits)
        queue = (QueueEntry(candidate, QueueVerdict.WAIT),)
        reading = RoundReading(NOW, queue=queue, halt=self.halt, unread=self.unread)
        ledger = Ledger(self.folder / "ledger.db", reading=True)
        try:
            history = self.reader.read(ledger)
        finally:
            ledger.close()
        return (floors or self.floors()).step(reading, history)

    def least(self) -> int:
        return int(self.cluster.api.get(f"{SCALERS}/web")["spec"]["minReplicas"])

    def set_least(self, least: int) -> None:
        patch = [{"op": "replace", "path": "/spec/minReplicas", "value": least}]
        self.cluster.api.patch(f"{SCALERS}/web", patch, kind="json")


def scaled(cluster: EmbeddedAutopilot, folder: Path, *counts: int) -> FloorLooks:
    body = scaler()
    del body["metadata"]["uid"]
    cluster.api.create(SCALERS, body)
    start = int(cluster.clock.now_seconds() // HALF_HOUR) * HALF_HOUR
    return FloorLooks(cluster, FloorForecast(start, counts, OWN), folder)


def test_a_floor_is_in_the_ledger_before_the_autoscaler_has_it_and_goes_back_also_while_all_is_paused(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4, 6, 2)
        assert [step.event for step in looks.step()] == ["autopilot-floor-raised"] and looks.least() == 4
        assert looks.step() == []
        # once before the write, once when it has arrived
        assert [event for event, _ in cluster.events()] == ["autopilot-floor-raised"] * 2
        cluster.service().pause(APPROVER, "incident")
        cluster.clock.seconds += HALF_HOUR
        assert looks.step() == [] and looks.least() == 4
        cluster.clock.seconds += HALF_HOUR
        assert [step.words for step in looks.step()] == ["the peak is over"] and looks.least() == OWN


def test_who_sets_the_field_is_not_fought_and_a_halt_lends_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4, 6, 6, 6)
        looks.halt = Halt(Reason.AUTOPILOT_CLUSTER_IN_TROUBLE, "nodes are away")
        assert looks.step() == [] and looks.least() == OWN
        looks.halt = None
        assert len(looks.step()) == 1
        looks.set_least(1)
        (stopped,) = looks.step()
        assert stopped.words == "somebody set minReplicas of web to 1; the autopilot had set 4"
        looks.set_least(OWN)
        for _ in range(2):
            cluster.clock.seconds += HALF_HOUR
            assert looks.step() == [] and looks.least() == OWN
        assert ("autopilot-left-alone", str(WEB)) in cluster.events()
        cluster.service().resume(APPROVER, WEB, "it was me")
        assert [step.lent.floor for step in looks.step()] == [6]


def test_a_namespace_that_cannot_be_read_keeps_what_it_was_lent_until_the_peak_is_over(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4, 6)
        assert len(looks.step()) == 1
        looks.factor, looks.unread = 1.0, frozenset({NAMESPACE})
        cluster.clock.seconds += HALF_HOUR
        assert looks.step() == [] and looks.least() == 4
        cluster.clock.seconds += HALF_HOUR
        assert [step.words for step in looks.step()] == ["the peak is over"] and looks.least() == OWN


def test_an_autoscaler_that_is_made_anew_or_scales_another_workload_is_no_longer_lent_to(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4, 6, 6, 6)
        assert len(looks.step()) == 1
        patch = [{"op": "replace", "path": "/spec/scaleTargetRef/name", "value": "single"}]
        cluster.api.patch(f"{SCALERS}/web", patch, kind="json")
        assert [step.event for step in looks.step()] == ["autopilot-floor-ended"] and looks.least() == OWN
        patch[0]["value"] = "web"
        cluster.api.patch(f"{SCALERS}/web", patch, kind="json")
        assert len(looks.step()) == 1
        copy = cluster.api.get(f"{SCALERS}/web")
        cluster.api.delete(f"{SCALERS}/web")
        meta = {"name": "web", "annotations": copy["metadata"]["annotations"]}
        cluster.api.create(SCALERS, {"metadata": meta, "spec": copy["spec"]})
        # the copy has the floor and its mark, and a uid of its own
        assert sorted(step.words for step in looks.step()) == [
            "the autoscaler was deleted",
            "the ledger has no row of this raise of minReplicas",
        ]
        assert looks.least() == OWN


def test_a_raise_that_is_refused_rests_and_what_goes_back_is_tried_in_each_round(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4)
        floors, kubeconfig = looks.floors(), Path(cluster.settings.kube.kubeconfig)
        reads = AccessRule(("get", "list"), ("", "autoscaling"), ("configmaps", "horizontalpodautoscalers"))
        token = cluster.server.account("looker", Account("looker", (reads,)))

        cluster.server.write_kubeconfig(kubeconfig, token=token)
        (refused,) = looks.step(floors)
        assert "horizontalpodautoscalers" in refused.refused and looks.least() == OWN
        assert looks.step(floors) == [] and cluster.events() == []

        cluster.server.write_kubeconfig(kubeconfig)
        cluster.clock.seconds += 10.0  # the first rest
        assert [step.refused for step in looks.step(floors)] == [""] and looks.least() == 4

        cluster.server.write_kubeconfig(kubeconfig, token=token)
        cluster.clock.seconds += HALF_HOUR
        assert [bool(step.refused) for _ in range(2) for step in looks.step(floors)] == [True, True]
        cluster.server.write_kubeconfig(kubeconfig)
        assert [step.words for step in looks.step(floors)] == ["the peak is over"] and looks.least() == OWN


def test_the_preview_says_what_will_be_lent_and_until_when(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        ceiling = CeilingSettings(replica_floor_factor=FACTOR)
        autopilot = msgspec.structs.replace(cluster.settings.autopilot, ceiling=ceiling)
        cluster.settings = msgspec.structs.replace(cluster.settings, autopilot=autopilot)
        start = scaled(cluster, tmp_path, 2, 5).forecast.start_seconds
        store = Store(tmp_path.as_uri(), "demo")
        scanned = ReplicaFloor(
            WEB, 2, OWN, MOST, Reason.OK, start, HALF_HOUR, (2, 5), 5, Resource.CPU, {Resource.CPU: 60}, 90
        )
        store.write_table(replicas([scanned]))
        shown = cluster.service(lambda: store).round(APPROVER).queue.rows()
        floors = {row["workload"]: (row["floor"], row["floor_from"], row["floor_until"]) for row in shown}
        # of the forecast's two half hours the second asks for five
        assert floors == {"web": (5, start + HALF_HOUR, start + 2 * HALF_HOUR), "single": (None, None, None)}


def test_a_policy_that_lends_no_more_gives_back(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = scaled(cluster, tmp_path, 4, 6, 6, 6)
        assert len(looks.step()) == 1
        looks.factor = 1.0
        assert [step.words for step in looks.step()] == ["no policy allows a raise now"] and looks.least() == OWN
