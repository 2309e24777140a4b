"""The shipped alerts and panels on a real Prometheus that scrapes running programs: all but the node agent."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from cotenant.base.store import Store
from cotenant.dashboard.sources.source import StoreSource
from tests.admission.serving import review_of
from tests.admission.serving import serving as webhook_serving
from tests.cluster.waiting import wait_for
from tests.manager.scene import Process, Scene
from tests.scheduler_ext.extender.serving import args
from tests.scheduler_ext.extender.serving import serving as extender_serving
from tests.scheduler_ext.extender.test_server import POD, fresh
from tests.support.dashboard import QUICK, app_on, served
from tests.support.prometheus import Server
from tests.support.shipped_rules import drawn, evaluated, panel_queries, raised, rule_files, scrape_of

ELSEWHERE: Final = "cotenant_enforcer_"
"""Panels of the agent: tests/enforcer/test_agent_process.py."""
EMPTY: Final = (
    "cotenant_last_success_timestamp_seconds",  # no pipeline has ended well yet
    "cotenant_dashboard_data_age_seconds",  # for the same reason there are no results to show
    "cotenant_reservation_held_cores",  # there is no Reservation
    "cotenant_reservation_allocated_cores",
    "cotenant_extender_certificate_expiry_timestamp_seconds",  # this extender is asked without TLS
)
"""Metrics that have no value while nothing of their kind has happened."""
SLOW: Final = frozenset({"CotenantDecisionSlow", "CotenantExtenderSlow", "CotenantWebhookSlow"})
"""Alerts that a machine with other work may raise; of a few answers one is enough."""


def test_every_panel_and_alert_is_evaluated_over_what_running_programs_answer(
    cluster: Scene, fake_nodes: Callable[..., list[str]], tmp_path: Path
) -> None:
    (node,) = fake_nodes(1, cpu="16")
    cluster.report([node])
    cluster.configure(colocation_config={"enable": True})
    settings = cluster.settings()
    own = msgspec.structs.replace(
        settings.manager, features_off=["forecasts", "node-metric", "plans", "recommendations"]
    )
    manager = Process(msgspec.structs.replace(settings, manager=own), tmp_path)
    bundle = tmp_path / "authority.crt"
    pages = app_on(StoreSource(Store((tmp_path / "store").as_uri(), "test"), QUICK))
    try:
        manager.wait_state("colocation", "Up")
        with webhook_serving() as webhook, extender_serving(fresh().view) as extender, served(pages) as dashboard:
            bundle.write_bytes(webhook.material.bundle)
            (manager_port,) = (line["port"] for line in manager.lines() if line["msg"] == "manager runs")
            scrapes = (
                scrape_of("cotenant-manager", manager_port),
                scrape_of("cotenant-extender", extender.server.port),
                scrape_of("cotenant-webhook", webhook.server.port, bundle),
                scrape_of("cotenant-dashboard", int(dashboard.rpartition(":")[2])),
            )

            def used() -> None:
                """Each program answers once more."""
                extender.post("/filter", args(POD, ["busy"]))
                webhook.post("/mutate-pod", review_of("pods", POD))
                urllib.request.urlopen(f"{dashboard}/livez", timeout=30).close()

            with Server(tmp_path / "prometheus", scrapes=scrapes, rules=rule_files(tmp_path)) as prometheus:
                judged(prometheus, used)
                manager.kill()
                missed = {"CotenantDown", "CotenantManagerAbsent"}
                wait_for("the manager is missed", lambda: missed <= raised(prometheus))
                used()
                assert missed <= raised(prometheus), "an alert stays while its cause does, whoever else answers"
    finally:
        manager.kill()


def judged(prometheus: Server, used: Callable[[], None]) -> None:
    """Every panel of what runs is drawn, those that are known to be empty are not, and no alert is false."""
    queries = [query for query in panel_queries() if ELSEWHERE not in query]
    empty = [query for query in queries if any(name in query for name in EMPTY)]
    assert len(empty) == len(EMPTY)

    def undrawn() -> list[str]:
        used()
        return [query for query in queries if not drawn(prometheus, query)]

    wait_for("every other panel is drawn", lambda: undrawn() == empty, every=0.5)
    wait_for("every alert is evaluated", lambda: evaluated(prometheus))
    # No agent is scraped; a dashboard without results for six hours would be told later.
    wait_for("no alert is false", lambda: raised(prometheus) - SLOW == {"CotenantAgentsAbsent"})
