"""The commands in the order of help: module, summary and heading of each, and suggestions for unknown commands.

Only data, so that `cotenant --help` imports nothing of what it lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.text import closest_name

START: Final = "Start"
UNDERSTAND: Final = "Look and understand"
ACT: Final = "Make changes, and see what was done"
OPERATE: Final = "Operate on a cluster and its nodes"

COMMAND_POINTS: Final = "cotenant.commands"
"""Group of entry points: name of a command that is listed here -> the `app` that holds it."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its name, the module with its `app`, its line of help and the heading above it.

    `module` is "" for a command of the extra `demo`. `command` selects a command of the app; "" is the app itself.
    `children` make the entry a group without a module, with its own `examples`; a command's examples are in its module.
    """

    name: str
    module: str
    summary: str
    panel: str = "Commands"
    command: str = ""
    children: tuple[CommandEntry, ...] = ()
    examples: tuple[str, ...] = ()
    hidden: bool = False
    """True if the command works and is documented, but is not in the help, where an option does the same."""


_CLI: Final = "cotenant.cli"
_GET: Final = f"{_CLI}.analysis.get"
_OF_LAB: Final = ""
"""The module of a command of the extra `demo`: an entry point of the group `COMMAND_POINTS` names it."""
_QUEUES: Final = "cotenant.scheduler_ext.queues.commands"
_NODE: Final = "cotenant.enforcer.commands"
_RECS: Final = "cotenant.changes.commands.recs"
_PLANS: Final = "cotenant.scheduler_ext.reservations.commands"
_AUTOPILOT: Final = "cotenant.autopilot.commands"
_EXPLAIN: Final = f"{_CLI}.analysis.explain.explain"

GET: Final = (
    CommandEntry("findings", f"{_CLI}.analysis.findings", "Idle workloads and nodes, missing and impossible requests."),
    CommandEntry("forecast", f"{_CLI}.analysis.forecast", "The next 24 hours of the cluster, its nodes or a workload."),
    CommandEntry("reclaimable", _GET, "What each node can lend to batch and mid pods.", command="reclaimable"),
    CommandEntry("replicas", _GET, "How many replicas workloads need for the next peak.", command="replicas"),
    CommandEntry("pods", _GET, "Running pods: node, class, requests and present usage.", command="pods"),
    CommandEntry("recommendations", _RECS, "Recommendations for each container, as in `recs list`.", command="list"),
    CommandEntry("changes", _RECS, "Accepted changes, as in `recs changes`.", command="changes"),
    CommandEntry(
        "plans",
        f"{_PLANS}.reservations",
        "Reservation plans of the cluster, as in `reservations list`.",
        command="list",
    ),
    CommandEntry("policies", _AUTOPILOT, "Autopilot policies, as in `autopilot status`.", command="status"),
    CommandEntry("nodes", _GET, "What nodes can lend, as in `get reclaimable`.", command="reclaimable"),
    CommandEntry("quotas", f"{_QUEUES}.quota", "Quotas: guarantees, usage, borrowing and lending.", command="tree"),
    CommandEntry(
        "waiting", f"{_QUEUES}.quota", "Pods that wait for quota or for their gang, and why.", command="waiting"
    ),
    CommandEntry("gangs", f"{_QUEUES}.gang", "Jobs whose pods are placed together or not at all.", command="list"),
)
SHORT_NAMES: Final = {
    **dict.fromkeys(("recommendation", "recs", "rec", "recom", "workloads", "workload"), "recommendations"),
    **dict.fromkeys(("node", "no"), "nodes"),
    **dict.fromkeys(("plan", "reservationplans", "reservationplan", "reservations", "reservation"), "plans"),
    "change": "changes",
    **dict.fromkeys(("policy", "autopilotpolicies", "autopilotpolicy"), "policies"),
    **dict.fromkeys(("pod", "po"), "pods"),
    "finding": "findings",
    "forecasts": "forecast",
    **dict.fromkeys(("quota", "elasticquotas", "elasticquota", "queues"), "quotas"),
    **dict.fromkeys(("gang", "podgroups", "podgroup", "pg"), "gangs"),
}
"""Name by which pages or kubectl call a table -> the table's name in `cotenant get`."""
KINDS: Final = {
    **dict.fromkeys(("deployments", "deployment", "deploy"), "Deployment"),
    **dict.fromkeys(("statefulsets", "statefulset", "sts"), "StatefulSet"),
    **dict.fromkeys(("daemonsets", "daemonset", "ds"), "DaemonSet"),
    **dict.fromkeys(("cronjobs", "cronjob", "cj"), "CronJob"),
    **dict.fromkeys(("jobs", "job"), "Job"),
}
"""kubectl's name of a kind of workload -> the kind, by which the table of recommendations is filtered."""
OF_ONE: Final = {
    "recommendations": "explain",
    "nodes": "explain node",
    "reclaimable": "explain node",
    "pods": "explain pod",
    "plans": "reservations show",
    "policies": "autopilot preview",
    "changes": "recs explain",
    "forecast": "get forecast",
}
"""Table of `get` -> the command that shows one of its rows by name."""
FIRST_WORDS: Final = {
    **dict.fromkeys(("apply", "accept"), "recs apply"),
    **dict.fromkeys(("undo", "revert"), "recs rollback"),
    **{verb: f"recs {verb}" for verb in ("rollback", "verify", "snooze", "dismiss", "bundle", "list", "confirm")},
    **dict.fromkeys(("recommendations", "recommendation", "recommend", "workloads"), "get recommendations"),
    **dict.fromkeys(("changes", "history"), "get changes"),
    **dict.fromkeys(("nodes", "reclaim"), "get nodes"),
    **dict.fromkeys(("plans", "reservation"), "get plans"),
    **dict.fromkeys(("policies", "policy"), "get policies"),
    **{verb: f"reservations {verb}" for verb in ("approve", "reject")},
    **{verb: f"autopilot {verb}" for verb in ("act", "pause", "resume", "preview")},
    **dict.fromkeys(("describe", "show"), "explain"),
    "diff": "recs show",
    **dict.fromkeys(("edit", "patch", "scale", "set"), "recs apply"),
    **dict.fromkeys(("logs", "log", "events"), "audit export"),
    "create": "reservations plan",
    "rollout": "get changes",
    "cluster-info": "status",
    **dict.fromkeys(("ui", "web"), "dashboard"),
    **dict.fromkeys(("overview", "summary", "info"), "status"),
    **dict.fromkeys(("clusters",), "status --all-clusters"),
    **{table: f"get {table}" for table in ("quotas", "gangs", "waiting")},
    "health": "doctor",
    "agent": "node enforcer",
    "top": "get pods",
    "run": "scan --offline",
    "why": "explain pod",
    "settings": "config",
    "quota": "get quotas",
    "gang": "get gangs",
}
"""First word that users of kubectl or of similar tools type -> the command of cotenant that does the same."""
NAMED: Final = (
    "apply",
    "accept",
    "describe",
    "show",
    "diff",
    "rollback",
    "undo",
    "revert",
    "verify",
    "snooze",
    "dismiss",
)
"""Keys of FIRST_WORDS whose further arguments the command of cotenant accepts too."""
EXPLAIN: Final = (
    CommandEntry("workload", _EXPLAIN, "Why a recommendation proposes its requests and limits.", command="workload"),
    CommandEntry(
        "pod", "cotenant.scheduler_ext.extender.commands.why", "Why a pod is pending: which nodes refuse it, and why."
    ),
    CommandEntry("node", _EXPLAIN, "What a node can lend, with each term of the formula.", command="node"),
    CommandEntry("node-slo", _EXPLAIN, "Which configuration layer set each SLO value of a node.", command="node-slo"),
    CommandEntry(
        "guards",
        "cotenant.changes.commands.guards",
        "Metrics of a service that verify its accepted changes, or could verify them.",
    ),
    CommandEntry("queue", f"{_QUEUES}.quota", "Why a pod waits for its quota or its gang.", command="explain"),
)
SERVE: Final = (
    CommandEntry(
        "manager", f"{_CLI}.cluster.manager", "Controllers that publish to the Kubernetes API; default: a dry run."
    ),
    CommandEntry(
        "webhook", "cotenant.admission.commands.webhook", "Admission webhooks for pods, quotas and configuration."
    ),
    CommandEntry(
        "extender",
        "cotenant.scheduler_ext.extender.commands.extender",
        "Scheduler extender: load-aware filter and score, guard of reserved capacity.",
    ),
    CommandEntry(
        "descheduler",
        "cotenant.scheduler_ext.rebalance.commands",
        "Move pods off overloaded nodes; default: a dry run.",
    ),
    CommandEntry(
        "recorder", "cotenant.profiler.recorder.commands", "Measures usage from kubelets, for scans without Prometheus."
    ),
    CommandEntry(
        "mcp",
        "cotenant.dashboard.commands.mcp_server",
        "The results of the last scan as tools for a language model; read-only.",
    ),
)
NODE: Final = (
    CommandEntry("enforcer", f"{_NODE}.enforcer", "The agent of this node; default: a dry run."),
    CommandEntry("status", f"{_NODE}.node", "What this node's agent enforces on each pod, and why.", command="status"),
    CommandEntry(
        "enforcement", "cotenant.profiler.enforcement.commands", "Actions of node agents: list, gather, import."
    ),
    CommandEntry(
        "topology", f"{_NODE}.node", "Sockets, cores and threads of a node, and their pods.", command="topology"
    ),
    CommandEntry("replay", f"{_NODE}.node", "Repeat a node agent's decisions from a recording.", command="replay"),
    CommandEntry("cri-proxy", f"{_NODE}.cri_proxy", "Proxy between the kubelet and a runtime without NRI."),
)
CONFIG: Final = (
    CommandEntry("show", f"{_CLI}.settings", "Every setting, its value and its origin.", command="show"),
    CommandEntry("validate", f"{_CLI}.settings", "Check a settings file.", command="validate"),
    CommandEntry("schema", f"{_CLI}.settings", "The JSON schema of a settings file.", command="schema"),
    CommandEntry("docs", f"{_CLI}.settings", "The documentation page of all settings.", command="docs"),
    CommandEntry("check", f"{_CLI}.check", "Check configuration files before they reach a cluster."),
    CommandEntry("convert", f"{_PLANS}.convert", "Convert objects of old API versions."),
    CommandEntry(
        "profiles",
        "cotenant.admission.commands.profiles",
        "Colocation profiles as policies of the API server, without a webhook.",
    ),
)
COMMANDS: Final = (
    CommandEntry("demo", _OF_LAB, "A whole synthetic cluster in the browser; no network, no Kubernetes.", START),
    CommandEntry("doctor", f"{_CLI}.cluster.doctor", "Check everything that a scan needs, and name the fix.", START),
    CommandEntry(
        "scan", f"{_CLI}.analysis.scan", "Usage history from Prometheus to recommendations, read-only.", START
    ),
    CommandEntry(
        "status",
        f"{_CLI}.status.command",
        "State on one screen: components, lent capacity, risks, waiting work, next peak, savings.",
        UNDERSTAND,
    ),
    CommandEntry(
        "get",
        "",
        "Results and live objects as tables: findings, forecasts, pods, quotas ...",
        UNDERSTAND,
        children=GET,
        examples=(
            "cotenant get findings -n shop",
            "cotenant get forecast shop/Deployment/checkout",
            "cotenant get recommendations -n shop",
            "cotenant get nodes -o wide",
            "cotenant get quotas --resource cpu",
        ),
    ),
    CommandEntry(
        "explain",
        "",
        "Explain a recommendation, a pending pod, or what a node can lend.",
        UNDERSTAND,
        children=EXPLAIN,
        examples=(
            "cotenant explain shop/Deployment/checkout",
            "cotenant explain pod/shop/web-7d4b9c-x2x9z",
            "cotenant explain pod -f pod.yaml  # where would it fit? nothing is created",
            "cotenant explain node/node-07",
        ),
    ),
    CommandEntry(
        "backtest", f"{_CLI}.analysis.backtest", "Score forecasts on a trace or the stored history.", UNDERSTAND
    ),
    CommandEntry(
        "simulate", _OF_LAB, "Simulate colocation policies on your own history, before you enable one.", UNDERSTAND
    ),
    CommandEntry(
        "replay-risks",
        f"{_CLI}.analysis.background_replay",
        "Replay lending on your history at several risks, for the page Try a risk.",
        UNDERSTAND,
        hidden=True,
    ),
    CommandEntry(
        "size",
        "cotenant.scheduler_ext.cluster_size.commands",
        "Nodes that could be removed, where their pods would run, and what keeps other nodes.",
        UNDERSTAND,
    ),
    CommandEntry(
        "dashboard", "cotenant.dashboard.commands.dashboard", "The results of the last scan in the browser.", UNDERSTAND
    ),
    CommandEntry("recs", _RECS, "Accept recommendations: review, dry run, apply, verify, roll back.", ACT),
    CommandEntry("reservations", f"{_PLANS}.reservations", "Reserve capacity for workloads before they need it.", ACT),
    CommandEntry("autopilot", _AUTOPILOT, "Automatic right-sizing: status, preview, enable, pause, report.", ACT),
    CommandEntry("audit", "cotenant.changes.commands.audit", "Verify and export the audit log of who did what.", ACT),
    CommandEntry(
        "install", f"{_CLI}.cluster.install", "Install CRDs, priority classes and rights in a cluster.", OPERATE
    ),
    CommandEntry(
        "serve",
        "",
        "Run a program of the cluster: manager, webhook, extender, descheduler, mcp.",
        OPERATE,
        children=SERVE,
        examples=("cotenant serve manager --once", "cotenant serve extender --host 127.0.0.1 --port 9445"),
    ),
    CommandEntry(
        "node",
        "",
        "Run and inspect a node's agent: what it enforces, its CPUs, the runtime proxy.",
        OPERATE,
        children=NODE,
        examples=("cotenant node enforcer --once", "cotenant node status", "cotenant node topology worker-3"),
    ),
    CommandEntry(
        "config",
        "",
        "Settings, and configuration files: show, validate, check, convert.",
        OPERATE,
        children=CONFIG,
        examples=("cotenant config show", "cotenant config validate settings.yaml"),
    ),
    CommandEntry("uninstall", f"{_CLI}.cluster.uninstall", "Remove from a cluster what `install` put there.", OPERATE),
    CommandEntry(
        "version", f"{_CLI}.version", "Show the version, Python, platform and optional packages.", OPERATE, hidden=True
    ),
)
"""The commands of `cotenant`, in the order of its help."""

PROVIDERS: Final = {
    "cotenant.admission.webhook_server.registration:ShippedRegistration": (
        "cotenant.cli.cluster.installation.manifests:shipped_registration"
    ),
    "cotenant.base.settings.base:SettingSections": "cotenant.settings:Settings",
    "cotenant.dashboard.commands.dashboard:Replays": "cotenant.cli.analysis.background_replay:replays",
    "cotenant.scheduler_ext.reservations.commands.workload_history:WorkloadHistory": (
        "cotenant.pipeline.shards.work:workload_history"
    ),
}
"""What a room's command needs of a layer above it: the type that the room declares -> the function that makes one.

A command asks `session.service(Type)`. Both are text, so that nothing is imported before it is asked for.
"""


def nearest_command(word: str, rest: Sequence[str] = ()) -> str:
    """Return the command that the unknown `word` most likely means, such as "get nodes"; "" if none is likely.

    A word of another tool, such as `top` or `undo`, is translated, with `rest` (the arguments after it) if they fit.
    Any other word is compared by spelling with the names of commands and subcommands.
    """
    if word == "top" and rest and (table := SHORT_NAMES.get(rest[0], rest[0])) in {entry.name for entry in GET}:
        return f"get {table}"
    if word in FIRST_WORDS:
        return " ".join((FIRST_WORDS[word], *(rest if word in NAMED else ())))
    below = {child.name: f"{entry.name} {child.name}" for entry in COMMANDS for child in entry.children}
    names = below | FIRST_WORDS | {entry.name: entry.name for entry in COMMANDS}
    return names.get(closest_name(word.lower(), names), "")


def nearest_table(word: str) -> str:
    """Return the table, with a filter if needed, that `get WORD` most likely means; "" if no table is likely."""
    if word in KINDS:
        return f"recommendations --filter kind={KINDS[word]}"
    names = SHORT_NAMES | {entry.name: entry.name for entry in GET}
    return names.get(closest_name(word.lower(), names), "")
