"""Write deploy/chart/values.schema.json: `settings` from the settings' types, the chart's own values from what is here.

python -m tools.write_chart_schema
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.settings.docs import leave_out_constants
from cotenant.settings import Settings

TARGET = Path(__file__).resolve().parents[1] / "deploy" / "chart" / "values.schema.json"

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FREE: Schema = {"type": "object"}
SWITCH: Schema = {"type": "object", "properties": {"enabled": {"type": "boolean"}}, "additionalProperties": False}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
PORTS: Schema = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
SWITCHES = (
    "scan",
    "recorder",
    "recommendations",
    "colocation",
    "scheduling",
    "queues",
    "descheduler",
    "tainting",
    "autopilot",
    "enforcement",
    "devices",
    "webhooks",
    "applier",
)
PROCESSES = ("dashboard", "scan", "recorder", "manager", "extender", "enforcer", "webhook", "test", "uninstall")


def of(**properties: Schema) -> Schema:
    """An object of these properties and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


IMAGE = of(
    registry=TEXT,
    repository=TEXT | {"minLength": 1},
    tag=TEXT,
    digest=TEXT | {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
)
PROCESS = of(
    replicas={"type": ["integer", "null"], "minimum": 0},
    schedule=TEXT,
    env={"type": "array", "items": {"type": "object", "required": ["name"]}},
    podLabels=LABELS,
    podAnnotations=LABELS,
    pod=FREE,
    container=FREE,
)


FIXED = {
    "AdmissionSettings": ("port", "namespace"),
    "DashboardSettings": ("port",),
    "ExtenderSettings": ("port",),
    "ManagerSettings": ("namespace",),
    "TelemetrySettings": ("health_port",),
    "EnforcerSettings": ("state_dir", "cgroup_root", "proc_root", "kubelet_config"),
}
"""Settings that a manifest's ports, probes, mounts, names and rights depend on: no value changes one side alone."""


def schema() -> Schema:
    """The schema of values.yaml."""
    (settings,), definitions = msgspec.json.schema_components((Settings,), ref_template="#/$defs/{name}")
    leave_out_constants(Settings, definitions["Settings"], definitions)
    for name, fixed in FIXED.items():
        for setting in fixed:
            del definitions[name]["properties"][setting]
    properties: Schema = dict.fromkeys(SWITCHES, SWITCH) | {
        "recorder": of(enabled={"enum": [True, False, "auto"]}),
        "colocation": of(enabled={"type": "boolean"}, config={"type": "object", "additionalProperties": FREE}),
        "settings": settings,
        "clusterName": TEXT | {"pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"},
        "image": IMAGE,
        "nodeImage": IMAGE,
        "imagePullSecrets": {"type": "array", "items": of(name=TEXT)},
        "crds": of(install={"type": "boolean"}),
        "uninstallHook": SWITCH,
        "storage": of(size=TEXT, storageClass=TEXT, existingClaim=TEXT),
        "certManager": of(enabled={"type": "boolean"}, issuerRef=FREE),
        "extenderCertificate": of(days={"type": "integer", "minimum": 1, "maximum": 3650}, existingSecret=TEXT),
        "processes": of(**dict.fromkeys(PROCESSES, PROCESS)),
        "networkPolicy": of(
            enabled={"type": "boolean"},
            prometheusNamespace=TEXT | {"minLength": 1},
            prometheusPorts=PORTS,
            serverPorts=PORTS,
            dashboardFrom={"type": "array", "items": FREE},
        ),
        "monitoring": of(
            podMonitor=of(enabled={"type": "boolean"}, labels=LABELS),
            prometheusRule=of(enabled={"type": "boolean"}, labels=LABELS, runbookUrl=TEXT),
            grafana=of(enabled={"type": "boolean"}, labels=LABELS),
        ),
        "global": FREE,
    }
    top = of(**properties) | {"$defs": definitions}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of the cotenant chart"} | top


def text() -> str:
    """The file's content."""
    return json.dumps(schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
