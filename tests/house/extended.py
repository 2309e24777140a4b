"""Checks of the worked examples of docs/extending.md, run in a copy of the tree that holds them (`test_extending`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def member() -> None:
    """The pool has the member, and it answers for a week of two series."""
    import numpy as np

    from cotenant.base.usage.usage import TimeGrid
    from cotenant.forecasting.base import LEVEL_ARRAY
    from cotenant.forecasting.members import BASELINE, MEMBERS

    assert MEMBERS[0] is BASELINE
    last_week = next(m for m in MEMBERS if m.name == "last-week")
    grid = TimeGrid(0, 300, 7 * 288)
    history = np.tile(np.arange(grid.size, dtype=np.float32) % 100, (2, 1))
    quantiles = last_week.quantiles(history, grid, 12)
    assert quantiles.shape == (2, 12, len(LEVEL_ARRAY))
    # values 0..99 equally often: a quantile is near its level, whatever the slot
    np.testing.assert_allclose(quantiles[0, 5], LEVEL_ARRAY * 100, atol=1.5)


def reclaim_policy() -> None:
    """The policy is a setting, a value of the ConfigMap, an amount, a zone's amount and words on every surface."""
    import msgspec
    import numpy as np

    from cotenant.base.resource import Resource
    from cotenant.base.settings.docs import settings_markdown
    from cotenant.dashboard.nodes import lendable
    from cotenant.recommender.colocation import explain, formulas, zones
    from cotenant.recommender.colocation.columns import NodeColumns
    from cotenant.recommender.colocation.model.slo_config import parse
    from cotenant.recommender.colocation.model.slo_forms import SloKey
    from cotenant.recommender.colocation.pods import PodTerms
    from cotenant.recommender.colocation.strategy import ColocationConfig
    from cotenant.recommender.settings import ReclaimableSettings
    from cotenant.settings import Settings
    from tools import write_chart_schema

    Path("docs/settings.md").write_text(settings_markdown(Settings))
    write_chart_schema.TARGET.write_text(write_chart_schema.text())
    assert "forecast, paddedUsage" in Path("docs/settings.md").read_text()
    assert "paddedUsage" in json.loads(Path("deploy/chart/values.schema.json").read_text())["$defs"][
        "ReclaimableSettings"
    ]["properties"]["cpu_policy"]["enum"]  # fmt: skip
    assert msgspec.convert({"cpu_policy": "paddedUsage"}, ReclaimableSettings).cpu_policy == "paddedUsage"
    text = '{"enable": true, "cpuCalculatePolicy": "paddedUsage", "cpuReclaimThresholdPercent": 100}'
    assert parse(SloKey.COLOCATION, text)[1] == ()
    resolved = ColocationConfig.parse(text).resolve({}, {})
    zeros = {name: np.zeros(1) for name in NodeColumns.__dataclass_fields__}
    amounts = {"capacity": np.array([4000]), "hp_used": np.array([1000]), "system_used": np.array([200])}
    unknown = dict.fromkeys(("prod_peak", "system_peak", "violation"), np.array([np.nan]))
    node = NodeColumns(**zeros | amounts | unknown | {"nodes": ("n",), "resource": Resource.CPU})
    (message,) = formulas.batch(node, formulas.Parameters.of([resolved.strategy], Resource.CPU), 0.0).messages()
    # 4000 - 200 - 1.1 * 1000
    assert (message.amount, message.policy, message.terms["hp_padded"]) == (2700, "paddedUsage", 1100)
    context = explain.Context(resolved, 0.0, 0.0, {})
    (amount,) = explain.explain([message], context).amounts
    assert amount.lines[-1].words.endswith("and a tenth of it")
    assert lendable.words("hp_padded") == amount.lines[-1].words and lendable.limit_words("hp_padded")
    # the pod is bound to zone 1, half of the system is each zone's
    pod = PodTerms(
        **{n: np.array([1000.0]) for n in PodTerms.__slots__} | {"node": np.array([0]), "zones": np.array([2])}
    )
    assert zones.zone_batch([2000, 2000], pod, node, resolved.strategy).tolist() == [1900, 800]


def page() -> None:
    """The page is in the navigation, has an address, and lists its table's rows."""
    from dataclasses import replace

    from dash import Dash

    from cotenant.base.store.relation import Relation
    from cotenant.base.table import Table
    from cotenant.dashboard import pages
    from cotenant.dashboard.frame.navigation import navigation
    from cotenant.dashboard.frame.view import View
    from cotenant.dashboard.sources.source import Snapshot
    from cotenant.recommender.model.views import RECLAIMABLE
    from tests.support.dashboard import QUICK

    new = next(p for p in pages.ALL if p.path == "reclaimable")
    row = dict.fromkeys(c.name for c in RECLAIMABLE.columns) | {"node": "n", "band": "batch", "resource": "cpu"}
    tables = {RECLAIMABLE.name: Relation.of(Table.from_rows(RECLAIMABLE, [row]))}

    class OneRow:
        def snapshot(self) -> Snapshot:
            empty = Snapshot.empty()
            return replace(empty, version="1", overview=object(), tables={**empty.tables, **tables})  # type: ignore[arg-type]

    view = View(OneRow(), QUICK, lambda: 0.0)  # type: ignore[arg-type]
    app = Dash("extended")
    new.register(app, view)
    assert any("facets-reclaimable" in callback["output"] for callback in app._callback_list)
    drawn = json.dumps(new.render(view, "").to_plotly_json(), default=lambda part: part.to_plotly_json())
    assert "grid-reclaimable" in drawn and '"data-opens": "nodes/{node}"' in drawn and "What each node lends" in drawn
    links = json.dumps(navigation(view, pages.ALL, "reclaimable", ""), default=lambda c: c.to_plotly_json())
    assert '"/reclaimable"' in links


def node_strategy() -> None:
    """The strategy is registered, wants its value for best-effort pods alone, and can be switched off by its name."""
    from cotenant.base.kubernetes.qos import QosClass
    from cotenant.enforcer.contract import Knob
    from cotenant.enforcer.decide.registry import strategies
    from cotenant.enforcer.settings import EnforcerSettings
    from tests.enforcer.readings import EVERY_KNOB, observation_of, pod, policy, values

    strategy = next(s for s in strategies(EnforcerSettings()) if s.name == "be-io-weight")
    enabled = policy({"resourceUsedThresholdWithBE": {"enable": True}})
    observation = observation_of(pod("batch", qos=QosClass.BE), pod("web"), supported=EVERY_KNOB)
    step = strategy.step(observation, enabled, strategy.initial())
    assert values(step.plan, Knob.IO_WEIGHT) == {observation.pods[0].group.path: 10}  # type: ignore[union-attr]
    assert strategy.step(observation, policy({}), None).plan.wants == ()
    off = strategies(EnforcerSettings(strategies_off=["be-io-weight"]))
    assert "be-io-weight" not in {s.name for s in off}


if __name__ == "__main__":
    import cotenant

    assert Path(cotenant.__file__).is_relative_to(Path.cwd()), "the copy is not what is imported"
    {check.__name__: check for check in (member, reclaim_policy, page, node_strategy)}[sys.argv[1]]()
