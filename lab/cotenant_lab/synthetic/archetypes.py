"""The kinds of workload of a company's cluster: one row for each kind, read by `fleet`.

Shares, sizes and utilisations are chosen so that the generated container series have the statistics of published VM
traces (`bench synthetic_calibration` compares them) and the whole cluster is over-provisioned as real clusters are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant_lab.synthetic.spec import Shape


@dataclass(frozen=True, slots=True)
class Archetype:
    """A kind of workload, from which workloads are drawn.

    `share` of all workloads; `cores` and `gib` are medians of a pod's request; `busy` is the median of CPU used /
    requested, `full` of memory used / requested; `bare`, `limited`, `sidecars`, `jvm`, `scaled` are shares of its
    workloads (without requests, with a CPU limit, with a sidecar, with a start-up burst, with a moving autoscaler).
    """

    name: str
    kind: str
    share: float
    namespaces: tuple[str, ...]
    shapes: Mapping[Shape, float]
    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    cores: float = 0.5
    gib: float = 1.0
    replicas: float = 1.0
    busy: float = 0.25
    full: float = 0.6
    bare: float = 0.0
    limited: float = 0.6
    sidecars: float = 0.0
    jvm: float = 0.0
    scaled: float = 0.0


_I, _F, _D, _W, _B, _T, _S = (
    Shape.IDLE, Shape.FLAT, Shape.DAILY, Shape.WEEKLY, Shape.BURSTY, Shape.TREND, Shape.SCHEDULED,
)  # fmt: skip
_ONLINE = ("pay", "feed", "search", "shop", "media", "user", "notify", "maps", "chat")
_BATCH = ("ml-batch", "etl", "reports")
_INTERNAL = ("ci", "tools", "staging", "wiki", "audit")

ARCHETYPES: Final[tuple[Archetype, ...]] = (
    Archetype(
        "online", "Deployment", 0.32, _ONLINE, {_D: 0.41, _W: 0.12, _B: 0.11, _F: 0.04, _T: 0.05, _I: 0.27},
        QosClass.LS, PriorityClass.PROD, cores=1.0, gib=2.0, replicas=1.8, busy=0.22, full=0.62,
        limited=0.65, sidecars=0.2, jvm=0.35, scaled=0.035,
    ),
    Archetype(
        "critical", "Deployment", 0.03, ("pay", "search", "user"), {_D: 0.6, _W: 0.3, _F: 0.1},
        QosClass.LSR, PriorityClass.PROD, cores=2.0, gib=4.0, replicas=2.5, busy=0.3, full=0.65, limited=1.0, jvm=0.3,
    ),
    Archetype(
        "internal", "Deployment", 0.29, _INTERNAL, {_I: 0.77, _B: 0.1, _D: 0.07, _F: 0.03, _S: 0.03},
        cores=0.4, gib=1.2, busy=0.08, full=0.45, bare=0.12, limited=0.5, jvm=0.15,
    ),
    Archetype(
        "mid", "Deployment", 0.05, ("search", "media", "recsys"), {_D: 0.4, _S: 0.3, _B: 0.3},
        QosClass.LS, PriorityClass.MID, cores=1.5, gib=3.0, replicas=1.6, busy=0.3,
    ),
    Archetype(
        "offline", "Deployment", 0.04, _BATCH, {_F: 0.3, _S: 0.4, _B: 0.3},
        QosClass.BE, PriorityClass.BATCH, cores=2.0, gib=4.0, replicas=1.4, busy=0.5, bare=0.7,
    ),
    Archetype(
        "database", "StatefulSet", 0.06, ("data", "pay", "user", "shop"), {_D: 0.45, _F: 0.35, _W: 0.1, _T: 0.1},
        QosClass.LSR, PriorityClass.PROD, cores=2.0, gib=8.0, replicas=1.9, busy=0.2, full=0.8, limited=0.8,
        sidecars=0.3,
    ),
    Archetype(
        "cache", "StatefulSet", 0.05, ("data", "feed", "chat", "media"), {_F: 0.4, _D: 0.4, _I: 0.2},
        QosClass.LS, PriorityClass.PROD, cores=0.7, gib=6.0, replicas=1.7, busy=0.12, full=0.75,
    ),
    Archetype(
        "cron", "CronJob", 0.055, (*_BATCH, "data", "ci"), {_F: 1.0}, cores=0.8, gib=1.5, busy=0.8, full=0.6, bare=0.15,
    ),
    Archetype(
        "free", "CronJob", 0.015, ("reports", "ml-batch"), {_F: 1.0},
        QosClass.BE, PriorityClass.FREE, cores=1.0, gib=2.0, busy=0.9, full=0.6, bare=0.6,
    ),
    Archetype(
        "training", "Job", 0.05, ("ml-batch",), {_F: 0.7, _B: 0.3},
        QosClass.BE, PriorityClass.BATCH, cores=3.0, gib=8.0, busy=0.75, full=0.7, bare=0.5,
    ),
    Archetype(
        "by-hand", "Pod", 0.03, ("tools", "ml-batch", "staging"), {_I: 0.6, _B: 0.4}, cores=0.6, gib=1.5, busy=0.15,
        bare=0.5, limited=0.3,
    ),
)  # fmt: skip
"""Every kind but the node agents, whose number does not grow with the cluster; shares are relative."""

AGENTS: Final[tuple[tuple[str, str], ...]] = (
    ("monitoring", "node-exporter"),
    ("logging", "fluent-bit"),
    ("kube-system", "cilium"),
)
"""DaemonSets on every node: (namespace, name)."""

AGENT: Final = Archetype(
    "agent", "DaemonSet", 0.0, ("kube-system",), {_F: 1.0},
    QosClass.SYSTEM, PriorityClass.NONE, cores=0.1, gib=0.2, busy=0.2, full=0.6, limited=1.0,
)  # fmt: skip

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pay": ("ledger", "refund", "wallet", "fraud", "invoice", "payout", "card", "fx", "dispute", "tax"),
    "feed": ("timeline", "fanout", "rank-model", "story", "follow", "mixer", "trend", "hydrate"),
    "search": ("query", "suggest", "index", "ranker", "spell", "facet", "crawl", "embed"),
    "shop": ("cart", "catalog", "price", "stock", "order", "coupon", "review", "delivery", "basket"),
    "media": ("upload", "transcode", "thumb", "stream", "drm", "caption", "player"),
    "user": ("login", "profile", "session", "consent", "avatar", "token", "address"),
    "notify": ("push", "mail", "sms", "digest", "template", "webhook"),
    "maps": ("tile", "route", "geocode", "traffic", "places", "eta"),
    "chat": ("room", "presence", "message", "typing", "bot", "archive"),
    "recsys": ("candidates", "features", "scorer", "explore", "replay"),
    "data": ("postgres", "kafka", "redis", "cassandra", "minio", "clickhouse", "etcd", "elastic"),
    "ml-batch": ("train-rank", "train-fraud", "embed-items", "eval", "feature-fill", "distil", "tune"),
    "etl": ("orders-daily", "clicks", "sessions", "export", "compact", "dedup", "snapshot"),
    "reports": ("finance", "sales", "churn", "kpi", "audit-log", "billing"),
    "ci": ("runner", "cache", "registry-mirror", "scan", "build", "artifact"),
    "tools": ("grafana", "sentry", "feature-flags", "vault", "dashboard", "proxy", "notebook"),
    "staging": ("shop", "pay", "search", "feed", "user", "media"),
    "wiki": ("web", "search", "export", "sync"),
    "audit": ("collector", "viewer", "signer", "retention"),
}
"""First words of names by namespace."""

INJECTED_IN: Final = ("shop",)
"""Namespaces where a webhook adds the second container, so that no template holds it."""
NATIVE_SIDECARS_IN: Final = ("data",)
"""Namespaces whose second containers are init containers that stay."""
INIT_CONTAINERS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("database", "user"): ("restore",),
    ("database", "pay"): ("restore",),
    ("critical", "pay"): ("migrate",),
}
"""Init containers by archetype and namespace."""
PROFILES: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("critical", "search"): {"cotenant.dev/profile": "conservative"},
    ("offline", "etl"): {"cotenant.dev/profile": "aggressive"},
}
"""Annotations of a few workloads by archetype and namespace."""
BOUNDED: Final = ("pay", "shop")
"""Namespaces with a LimitRange and a ResourceQuota."""

ROLES: Final = ("", "-api", "-worker", "-gateway", "-consumer", "-sync", "-admin", "-edge")
REGIONS: Final[Mapping[str, float]] = {"": 0.72, "-us": 0.18, "-ap": 0.1}
UTC_OFFSET_HOURS: Final[Mapping[str, float]] = {"": 1.0, "-us": -5.0, "-ap": 8.0}
"""Local time of the users behind a region's workloads."""
