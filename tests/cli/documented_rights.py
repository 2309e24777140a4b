"""What the documented ServiceAccounts may do and may not: (account, verb, API group, resource, namespace, name)."""

from __future__ import annotations

SYSTEM, HELD = "koordinator-system", "cotenant-reservations"
MANAGER, WEBHOOK, RECORDER = "cotenant-manager", "cotenant-webhook", "cotenant-recorder"
MAY = [
    (MANAGER, "list", "", "pods", "", ""),
    (MANAGER, "watch", "", "nodes", "", ""),
    (MANAGER, "patch", "", "nodes/status", "", "n1"),
    (MANAGER, "patch", "slo.koordinator.sh", "nodemetrics/status", "", "n1"),
    (MANAGER, "create", "slo.koordinator.sh", "nodeslos", "", "n1"),
    (MANAGER, "create", "analysis.koordinator.sh", "recommendations", "shop", "deployment-web"),
    (MANAGER, "patch", "cotenant.dev", "usageforecasts", "", "n1"),
    *[(MANAGER, verb, "coordination.k8s.io", "leases", SYSTEM, MANAGER) for verb in ("patch", "create")],
    (MANAGER, "watch", "", "configmaps", SYSTEM, "slo-controller-config"),
    (MANAGER, "create", "events.k8s.io", "events", "default", ""),
    *[(MANAGER, *right) for right in (("create", "", "pods", HELD, ""), ("patch", "", "pods", "shop", ""))],
    (WEBHOOK, "list", "config.koordinator.sh", "clustercolocationprofiles", "", ""),
    (WEBHOOK, "watch", "scheduling.sigs.k8s.io", "elasticquotas", "", ""),
    (WEBHOOK, "patch", "", "secrets", "cotenant", "cotenant-webhook-certificate"),
    (WEBHOOK, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "cotenant-webhook"),
    # Our scheduling gate alone: cotenant-reservation-writer refuses everything else (reservations/test_gates.py).
    (WEBHOOK, "patch", "", "pods", "shop", ""),
    (RECORDER, "get", "", "nodes/metrics", "", "n1"),
    *[(RECORDER, "list", "metrics.k8s.io", of, "", "") for of in ("pods", "nodes")],
    *[(RECORDER, verb, "", of, "", "") for of in ("pods", "nodes") for verb in ("get", "list", "watch")],
    *[(RECORDER, "list", "apps", of, "", "") for of in ("deployments", "statefulsets", "daemonsets", "replicasets")],
    *[(RECORDER, verb, "coordination.k8s.io", "leases", SYSTEM, RECORDER) for verb in ("get", "create", "patch")],
]
NOBODY_MAY = [
    *[(verb, "", "secrets", place, "") for verb in ("list", "get", "create") for place in ("", "cotenant", SYSTEM)],
    *[(verb, "", "pods", "shop", "") for verb in ("create", "update", "delete")],
    *[(verb, "", "nodes", "", "n1") for verb in ("patch", "update", "delete")],
    *[(verb, "rbac.authorization.k8s.io", "clusterroles", "", "") for verb in ("bind", "escalate", "create")],
    ("create", "", "pods/exec", "shop", ""),
    ("get", "", "nodes/proxy", "", "n1"),
    ("impersonate", "", "users", "", ""),
    ("create", "", "serviceaccounts/token", "cotenant", ""),
]
MAY_NOT = [
    *[(who, *right) for who in (MANAGER, WEBHOOK, RECORDER) for right in NOBODY_MAY],
    (MANAGER, "patch", "coordination.k8s.io", "leases", SYSTEM, "kube-scheduler"),
    (MANAGER, "create", "coordination.k8s.io", "leases", SYSTEM, ""),
    (MANAGER, "list", "", "configmaps", SYSTEM, ""),
    (MANAGER, "get", "", "configmaps", "shop", "slo-controller-config"),
    (MANAGER, "delete", "analysis.koordinator.sh", "recommendations", "shop", "deployment-web"),
    (MANAGER, "patch", "apps", "deployments", "shop", "web"),
    (WEBHOOK, "patch", "", "nodes/status", "shop", ""),
    (WEBHOOK, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "other"),
    (WEBHOOK, "create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""),
    (WEBHOOK, "patch", "scheduling.sigs.k8s.io", "elasticquotas", "shop", "a"),
    *[(RECORDER, verb, "", f"nodes/{of}", "", "n1") for of in ("proxy", "stats", "log") for verb in ("get", "create")],
    *[(RECORDER, "get", "", f"pods/{of}", "shop", "web") for of in ("log", "exec", "portforward")],
    *[(RECORDER, verb, "", "configmaps", place, "") for verb in ("get", "list") for place in ("", "cotenant", SYSTEM)],
    *[(RECORDER, verb, "", "pods", "shop", "web") for verb in ("patch", "delete")],
    *[(RECORDER, "patch", group, of, "", "n1") for group, of in (("", "nodes/status"), ("apps", "deployments"))],
    *[(RECORDER, verb, "coordination.k8s.io", "leases", SYSTEM, MANAGER) for verb in ("get", "create", "patch")],
    (RECORDER, "delete", "coordination.k8s.io", "leases", SYSTEM, RECORDER),
    (RECORDER, "create", "", "events", "default", ""),
]
