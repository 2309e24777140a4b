"""Documents as they are written by Kubernetes, kubelets, runtimes, Prometheus and people: what is mutated."""

from __future__ import annotations

from typing import Any, Final

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "0a1b",
        "creationTimestamp": "2026-11-01T10:00:00Z",
        "deletionTimestamp": None,
        "labels": {
            "app": "web",
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority-class": "koord-batch",
            "quota.scheduling.koordinator.sh/name": "team-a",
            "pod-group.scheduling.sigs.k8s.io": "train",
        },
        "annotations": {
            "scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}',
            "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "Restricted"}',
            "scheduling.koordinator.sh/resource-status": '{"cpuset": "0-3", "numaNodeResources": [{"node": 0}]}',
            "scheduling.koordinator.sh/device-allocate-hint": '{"gpu": {"requiredTopologyScope": "PCIe"}}',
            "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes": ["gpu", "rdma"]}',
            "scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector": {"a": "b"}}',
            "scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 80}',
            "gang.scheduling.koordinator.sh/name": "train",
            "gang.scheduling.koordinator.sh/min-available": "2",
            "gang.scheduling.koordinator.sh/groups": '["shop/train"]',
            "node.koordinator.sh/extended-resource-spec": (
                '{"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "500"}}}}'
            ),
            "koordinator.sh/cpuBurst": '{"policy": "auto", "cpuBurstPercent": 200}',
            "koordinator.sh/memoryQOS": '{"policy": "auto", "minLimitPercent": 10}',
            "koordinator.sh/blkioQOS": '{"enable": true, "blocks": [{"name": "sda", "type": "device"}]}',
            "koordinator.sh/eviction-policy": '["evictByRealLimit"]',
            "node.koordinator.sh/resctrl": '{"llc": {"schemata": {"range": [0, 50]}}}',
            "cotenant.dev/expected-run-seconds": "90",
            "cotenant.dev/min-cpu": "100m",
        },
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 5500,
        "priorityClassName": "koord-batch",
        "schedulerName": "default-scheduler",
        "schedulingGates": [{"name": "cotenant.dev/gang"}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30}],
        "nodeSelector": {"zone": "a"},
        "overhead": {"cpu": "10m"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "initContainers": [
            {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
        ],
        "containers": [
            {
                "name": "main",
                "image": "x",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "64Mi", "kubernetes.io/batch-cpu": "500"},
                    "limits": {"cpu": "1", "memory": "128Mi", "koordinator.sh/gpu-core": 50},
                },
            }
        ],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-01T10:00:00Z",
        "resize": "Deferred",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T10:00:00Z"}],
        "containerStatuses": [
            {
                "name": "main",
                "containerID": "containerd://abc",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-11-01T10:00:00Z"}},
                "allocatedResources": {"cpu": "500m"},
                "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-11-01T09:00:00Z"}},
            }
        ],
    },
}
NODE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "uid": "n",
        "labels": {"node.koordinator.sh/cpu-reclaim-ratio": "0.7", "kubernetes.io/os": "linux"},
        "annotations": {
            "node.koordinator.sh/colocation-strategy": '{"enable": true, "cpuReclaimThresholdPercent": 60}',
            "node.koordinator.sh/reservation": '{"resources": {"cpu": "2"}, "reservedCPUs": "0-1"}',
            "node.koordinator.sh/resource-amplification-ratio": '{"cpu": 1.5}',
            "node.koordinator.sh/raw-allocatable": '{"cpu": "8"}',
        },
    },
    "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": False},
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "kubernetes.io/batch-cpu": "4000"},
        "allocatable": {"cpu": "7900m", "memory": "31Gi", "kubernetes.io/batch-cpu": "4000", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.35.0"},
    },
}
RESERVATION: Final[dict[str, Any]] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "uid": "r", "creationTimestamp": "2026-11-01T10:00:00Z", "labels": {"a": "b"}},
    "spec": {
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]},
        "owners": [
            {"labelSelector": {"matchLabels": {"app": "web"}}},
            {"controller": {"kind": "ReplicaSet", "name": "web", "namespace": "shop"}},
            {"object": {"kind": "Pod", "name": "p", "namespace": "shop"}},
        ],
        "ttl": "1h",
        "expires": "2026-12-01T10:00:00Z",
        "allocateOnce": True,
        "allocatePolicy": "Aligned",
        "taints": [{"key": "a", "effect": "NoSchedule"}],
        "unschedulable": False,
    },
    "status": {
        "phase": "Available",
        "nodeName": "n1",
        "allocatable": {"cpu": "2"},
        "allocated": {"cpu": "1"},
        "currentOwners": [{"name": "p", "namespace": "shop", "uid": "u"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
    },
}
NODE_METRIC: Final[dict[str, Any]] = {
    "metadata": {
        "name": "n1",
        "ownerReferences": [{"uid": "n"}],
        "managedFields": [{"manager": "koordlet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}},
    "status": {
        "updateTime": "2026-11-27T10:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "3", "memory": "8Gi"}},
            "systemUsage": {"resources": {"cpu": "100m", "memory": "1Gi"}},
            "aggregatedNodeUsages": [{"usage": {"p95": {"resources": {"cpu": "4"}}}, "duration": "5m"}],
        },
        "podsMetric": [
            {
                "name": "web-0",
                "namespace": "shop",
                "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "priority": "koord-prod",
                "qos": "LS",
            }
        ],
        "hostApplicationMetric": [{"name": "h", "usage": {"resources": {"cpu": "1"}}, "qos": "BE"}],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "1", "memory": "1Gi"}}},
    },
}
QUOTA: Final[dict[str, Any]] = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {
        "name": "team-a",
        "namespace": "shop",
        "uid": "q",
        "labels": {
            "quota.scheduling.koordinator.sh/parent": "koordinator-root-quota",
            "quota.scheduling.koordinator.sh/is-parent": "false",
            "quota.scheduling.koordinator.sh/tree-id": "t",
        },
        "annotations": {
            "quota.scheduling.koordinator.sh/namespaces": '["shop"]',
            "quota.scheduling.koordinator.sh/shared-weight": '{"cpu": "10"}',
            "quota.scheduling.koordinator.sh/max-strict-check-resource-keys": '["cpu"]',
        },
    },
    "spec": {"min": {"cpu": "1", "kubernetes.io/batch-cpu": "1k"}, "max": {"cpu": 4, "memory": "8Gi"}},
    "status": {"used": {"cpu": "1"}},
}
POD_GROUP: Final[dict[str, Any]] = {
    "metadata": {
        "name": "train",
        "namespace": "shop",
        "uid": "g",
        "creationTimestamp": "2026-11-01T10:00:00Z",
        "annotations": {"gang.scheduling.koordinator.sh/mode": "Strict", "gang.scheduling.koordinator.sh/groups": "[]"},
    },
    "spec": {"minMember": 2, "scheduleTimeoutSeconds": 60},
    "status": {"phase": "Pending", "scheduled": 1},
}
MIGRATION_JOB: Final[dict[str, Any]] = {
    "metadata": {"name": "m", "uid": "m", "creationTimestamp": "2026-11-01T10:00:00Z", "annotations": {"a": "b"}},
    "spec": {
        "paused": False,
        "ttl": "5m0s",
        "mode": "ReservationFirst",
        "podRef": {"name": "p", "namespace": "shop", "uid": "u"},
        "reservationOptions": {"reservationRef": {"name": "r"}, "template": RESERVATION},
        "deleteOptions": {"gracePeriodSeconds": 30},
    },
    "status": {"phase": "Running", "status": "x", "reason": "y", "conditions": [{"type": "A", "status": "True"}]},
}
POLICY: Final[dict[str, Any]] = {
    "metadata": {"name": "p", "namespace": "shop", "uid": "p", "generation": 2},
    "spec": {
        "mode": "Preview",
        "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "objectives": [{"name": "o", "query": "up", "above": 1.0}],
    },
}
PROFILE: Final[dict[str, Any]] = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch", "annotations": {}},
    "spec": {
        "namespaceSelector": {"matchLabels": {"batch": "true"}},
        "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "probability": "50%",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "labelKeysMapping": {"a": "b"},
        "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
    },
}
NODE_SLO: Final[dict[str, Any]] = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeSLO",
    "metadata": {"name": "n1"},
    "spec": {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
        },
        "resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}},
        "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
        "systemStrategy": {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150},
        "hostApplications": [{"name": "h", "cgroupPath": {"base": "Kubepods", "relativePath": "x"}, "qos": "BE"}],
        "extensions": {"a": {"b": 1}},
    },
}
SLO_CONFIG: Final[dict[str, Any]] = {
    "colocation-config": {
        "enable": True,
        "cpuReclaimThresholdPercent": 60,
        "memoryReclaimThresholdPercent": 65,
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "cpuCalculatePolicy": "usage",
        "nodeConfigs": [{"name": "x", "nodeSelector": {"matchLabels": {"a": "b"}}, "cpuReclaimThresholdPercent": 50}],
    },
    "resource-threshold-config": {"clusterStrategy": NODE_SLO["spec"]["resourceUsedThresholdWithBE"]},
    "resource-qos-config": {"clusterStrategy": NODE_SLO["spec"]["resourceQOSStrategy"], "nodeStrategies": []},
    "cpu-burst-config": {"clusterStrategy": {"policy": "auto"}, "nodeStrategies": [{"nodeSelector": {}}]},
    "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 100}},
    "host-application-config": {"applications": [{"name": "h", "qos": "BE"}]},
}
PLAN: Final[dict[str, Any]] = {
    "metadata": {"name": "evening", "namespace": "shop", "uid": "p", "generation": 1},
    "spec": {
        "source": "Recurring",
        "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "amount": {"count": 2, "perPod": {"cpu": "500m", "memory": "1Gi"}},
        "recurring": {
            "schedule": "0 18 * * 1-5",
            "timeZone": "Europe/Berlin",
            "duration": "2h",
            "startingDeadline": "30m",
            "skip": ["2026-12-25T17:00:00Z"],
        },
        "quantile": 0.9,
        "lead": "15m",
        "allocatePolicy": "Aligned",
        "policy": {"autoApprove": True, "minimumHitRatio": 0.7, "maximumCost": 2.5},
        "approval": {"decision": "Approved", "scope": "Series", "by": "jane@example.com", "at": "2026-11-19T09:00:00Z"},
        "historyLimit": 10,
    },
    "status": {
        "phase": "Held",
        "window": {"start": "2026-11-20T17:00:00Z", "end": "2026-11-20T19:00:00Z"},
        "reserveAt": "2026-11-20T16:44:00Z",
        "expected": {"hitRatio": 0.8, "occurrences": 10, "idleCoreHours": 3.2},
        "reservations": [{"name": "evening-1", "nodeName": "n1", "phase": "Available"}],
        "history": [{"start": "2026-11-18T17:00:00Z", "held": 4, "used": 4, "missed": 1, "hitRatio": 1}],
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
QUOTA_PROFILE: Final[dict[str, Any]] = {
    "metadata": {
        "name": "profile",
        "namespace": "kube-system",
        "labels": {"quota.scheduling.koordinator.sh/tree-id": "1"},
    },
    "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}, "resourceRatio": "0.9"},
}
LIMIT_RANGE: Final[dict[str, Any]] = {
    "metadata": {"name": "limits", "namespace": "shop"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "default": {"cpu": "1"},
                "defaultRequest": {"cpu": "100m"},
                "min": {"memory": "16Mi"},
                "max": {"cpu": "4"},
                "maxLimitRequestRatio": {"cpu": "4"},
            },
            {"type": "Pod", "max": {"memory": "8Gi"}},
        ]
    },
}
RESOURCE_QUOTA: Final[dict[str, Any]] = {
    "metadata": {"name": "quota", "namespace": "shop"},
    "spec": {
        "hard": {"requests.cpu": "10", "limits.memory": "20Gi", "pods": "50"},
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]},
    },
    "status": {"hard": {"pods": "50"}, "used": {"pods": "3"}},
}
NATIVE_GROUP: Final[dict[str, Any]] = {
    "metadata": {"name": "train", "namespace": "shop", "uid": "g"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    "status": {"conditions": [{"type": "PodGroupScheduled", "status": "False", "message": "too few nodes"}]},
}
BUDGET: Final[dict[str, Any]] = {
    "metadata": {"name": "web", "namespace": "shop", "generation": 1},
    "spec": {
        "minAvailable": "50%",
        "selector": {"matchLabels": {"app": "web"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    },
    "status": {
        "disruptionsAllowed": 1,
        "currentHealthy": 3,
        "desiredHealthy": 2,
        "expectedPods": 3,
        "observedGeneration": 1,
    },
}
CLAIM: Final[dict[str, Any]] = {
    "metadata": {"name": "data", "namespace": "shop", "uid": "c", "annotations": {"a": "b"}, "labels": {"a": "b"}},
    "spec": {
        "volumeName": "pv",
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
    "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
}
EVENT: Final[dict[str, Any]] = {
    "metadata": {
        "name": "web.1",
        "namespace": "shop",
        "annotations": {
            "cotenant.dev/act": '{"time_seconds": 1.0, "node": "", "lane": "suppress", "reason": "", "pod": "shop/web"}'
        },
        "creationTimestamp": "2026-11-01T10:00:00Z",
    },
    "eventTime": "2026-11-01T10:00:00.000000Z",
    "reportingController": "cotenant-enforcer",
    "reason": "Suppressed",
    "note": "suppress: 2 cores for batch",
    "type": "Normal",
    "regarding": {"kind": "Pod", "name": "web", "namespace": "shop"},
    "series": {"count": 2, "lastObservedTime": "2026-11-01T10:01:00.000000Z"},
}
TOPOLOGY: Final[dict[str, Any]] = {
    "metadata": {"name": "n1"},
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "2"}],
            "costs": [{"name": "node-0", "value": 10}],
        }
    ],
}
MATRIX: Final[list[dict[str, Any]]] = [
    {
        "metric": {"namespace": "shop", "pod": "web-0", "container": "main", "node": "n1", "__name__": "x"},
        "values": [[1795046400, "0.5"], [1795046700, "NaN"], [1795047000, "1e3"]],
    },
    {"metric": {"id": "/", "instance": "n1:10250", "cotenant_part": "node-cpu"}, "values": [[1795046400.5, "2"]]},
]
SETTINGS: Final = """profiler:
  window_days: 14
  prometheus:
    url: http://prometheus:9090
    labels: {cluster: prod}
    timeout_seconds: 30
reclaim:
  cpu_reclaim_threshold_percent: 60
actions:
  ledger: sqlite:///x
clusters:
  prod: {profiler: {prometheus: {url: http://a}}}
"""
FILTER: Final = 'namespace=shop kind!=Job "two words" name~web-.* severity=critical,high'
KUBELET_METRICS: Final = b"""# HELP container_cpu_usage_seconds_total x
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web-0"} 12.5 1795046400000
container_memory_working_set_bytes{container="main",namespace="shop",pod="web-0"} 1.048576e+08 1795046400000
container_start_time_seconds{container="main",namespace="shop",pod="web-0"} 1.7950464e+09
container_cpu_cfs_throttled_seconds_total{container="main",id="/k",namespace="shop",pod="web-0"} 2.5 1795046400000
node_cpu_usage_seconds_total 123.4 1795046400000
node_memory_working_set_bytes 4e+09 1795046400000
"""
