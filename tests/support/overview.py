"""A small overview document, as the analysis writes it."""

from __future__ import annotations

from cotenant.recommender.model.views import BandSeries, Headline, NamespaceWaste, Overview

HOUR = 3600
END = 1_700_006_400  # a Wednesday, 00:00 UTC


def overview(cluster: str = "prod", *, source: str = "prometheus", notes: tuple[str, ...] = ()) -> Overview:
    """Two days of flat history with one gap, a forecast of one day, one namespace."""
    times = [END - (48 - i) * HOUR for i in range(48)]
    usage = [100.0 if i != 10 else float("nan") for i in range(48)]
    ahead = [END + i * HOUR // 2 for i in range(48)]
    quantiles = {q: [level] * 48 for q, level in (("0.1", 80.0), ("0.5", 100.0), ("0.9", 120.0), ("0.95", 130.0))}
    band = BandSeries(times, usage, [200.0] * 48, 400.0, ahead, quantiles, 10.0, 5.0)
    heat = [[0.25 if (day, hour) != (0, 0) else float("nan") for hour in range(24)] for day in range(7)]
    return Overview(
        cluster=cluster,
        source=source,
        demo=False,
        time_seconds=END,
        computed_seconds=END + 60,
        window_days=2.0,
        scrape_interval_seconds=60.0,
        nodes=1,
        workloads=1,
        containers=1,
        pods=1,
        headline=Headline(0.25, 0.5, 1.5, 0.3, 0.6, float("nan")),
        cpu=band,
        memory=band,
        heat=heat,
        waste=[NamespaceWaste(cluster, 1500, 2**30)],
        peak=None,
        peak_reason="no-peak",
        severities={},
        patterns={},
        reasons={},
        saving_cpu_millicores=0,
        saving_memory_bytes=0,
        worth_the_effort=0,
        strategy="cotenant",
        settings_digest="0123456789ab",
        coverage=1.0,
        notes=list(notes),
    )
