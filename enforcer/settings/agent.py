"""Settings of the node agent: where it finds the node's cgroups and policy, what it may do, how often it looks."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting
from cotenant.enforcer.settings.best_effort import BestEffortSettings
from cotenant.enforcer.settings.runtime import DraSettings


class EnforcerSettings(Section, frozen=True):
    """The agent of one node. Nothing is written to a cgroup or evicted while `dry_run` holds."""

    dry_run: Annotated[
        bool,
        setting(
            "Only report what would be written and evicted. The agent then restores nothing either.",
            when="the dry run has shown what you expect",
        ),
    ] = True
    node_name: Annotated[
        str,
        setting(
            "Name of the Node object; empty means the variable NODE_NAME, then the host's name.",
            when="the Node object has another name than the host",
        ),
    ] = ""
    tick_seconds: Annotated[
        float,
        setting(
            "Time between two readings of the node.",
            when="the agent should cost less, or react sooner",
            unit="seconds",
            ge=0.1,
            le=60,
        ),
    ] = 1.0
    strategies_off: Annotated[
        list[str],
        setting(
            "Strategies that do not run, by name; their values are restored.", when="a strategy does not suit the node"
        ),
    ] = msgspec.field(default_factory=list)

    # Where things are.
    policy_file: Annotated[
        str,
        setting(
            "NodeSLO, or its spec alone, as YAML or JSON, in place of the API server's; read again when it changes. "
            "A file that is not valid is refused, and the previous policy stays.",
            when="there is no API server, or you test a policy",
        ),
    ] = ""
    pods_file: Annotated[
        str,
        setting(
            "Pods (and the Node) as YAML or JSON in Kubernetes' own form, for a machine without an API server.",
            when="there is no API server",
        ),
    ] = ""
    state_dir: Annotated[
        str,
        setting(
            "Folder of the journal of original values, the action log and the status file.",
            when="the folder does not outlive a restart",
            min_length=1,
        ),
    ] = "/var/lib/cotenant/enforcer"
    cgroup_root: Annotated[
        str,
        setting(
            "Where cgroup file systems are mounted.", when="the host's file systems are mounted elsewhere", min_length=1
        ),
    ] = "/sys/fs/cgroup"
    proc_root: Annotated[
        str,
        setting(
            "Where the host's proc file system is mounted.",
            when="the host's file systems are mounted elsewhere",
            min_length=1,
        ),
    ] = "/proc"
    cgroup_base: Annotated[
        str,
        setting(
            "Folder below each hierarchy that holds kubepods: the kubelet's cgroupRoot. Empty means the root.",
            when="the kubelet's configuration cannot be read",
        ),
    ] = ""
    cgroup_driver: Annotated[
        Literal["auto", "cgroupfs", "systemd"],
        setting(
            "How the kubelet names cgroups; auto finds the tree with pods, or else reads the kubelet's configuration.",
            when="two trees have pods, and the kubelet's configuration cannot be read",
        ),
    ] = "auto"
    kubelet_config: Annotated[
        str,
        setting(
            "The kubelet's configuration file, read for its cgroup driver, cgroup root and reserved CPUs.",
            when="the file lies elsewhere",
        ),
    ] = "/var/lib/kubelet/config.yaml"
    pod_resources_socket: Annotated[
        str,
        setting(
            "The kubelet's podresources service, asked whether and to which pods its CPU manager assigns CPUs, and "
            "for its pods while the API server has not answered; empty means never. It needs cotenant[node].",
            when="the kubelet's folder lies elsewhere",
        ),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"

    # The API server, without a kubeconfig.
    api_server: Annotated[
        str,
        setting(
            "URL of the API server; empty means the service account's: KUBERNETES_SERVICE_HOST and _PORT.",
            when="the agent runs outside of a pod",
        ),
    ] = ""
    token_file: Annotated[
        str,
        setting("File of the bearer token; it is read again as it is renewed.", when="the agent runs outside of a pod"),
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path, not a secret
    ca_file: Annotated[
        str, setting("File of the certificate authority of the API server.", when="the agent runs outside of a pod")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

    # What it may do beyond pods' own cgroups.
    best_effort_pools: Annotated[
        bool,
        setting(
            "Place best-effort pods that the scheduler gave NUMA nodes on these nodes' CPUs; without effect while "
            "best effort is suppressed by cpuset.",
            when="best effort should stay on its NUMA nodes",
        ),
    ] = False
    kernel_reserves: Annotated[
        bool,
        setting(
            "Set the machine's own kernel settings by the policy's systemStrategy: its memory reserves "
            "(vm.min_free_kbytes, vm.watermark_scale_factor), and vendor kernels' switches where the kernel has them.",
            when="the policy's systemStrategy should act",
        ),
    ] = False
    sysctl_root: Annotated[
        str,
        setting(
            "Where the host's /proc/sys is mounted for writing.",
            when="the host's file systems are mounted elsewhere",
            min_length=1,
        ),
    ] = "/proc/sys"
    sysfs_root: Annotated[
        str,
        setting(
            "Where the host's /sys is mounted; written only for vendor kernels' switches.",
            when="the host's file systems are mounted elsewhere",
            min_length=1,
        ),
    ] = "/sys"

    # When what it knows has grown old.
    policy_ttl_seconds: Annotated[
        float,
        setting(
            "A policy that was not confirmed for this time is stale: strategies still follow it, but best effort "
            "gets no more capacity, and no pod is evicted.",
            when="the API server is away for longer, now and then",
            unit="seconds",
            ge=10,
            le=86_400,
        ),
    ] = 300.0
    release_seconds: Annotated[
        float,
        setting(
            "A policy that stays stale for this time is dropped: every original value is restored.",
            when="values should be restored sooner, or later, without an API server",
            unit="seconds",
            ge=10,
            le=604_800,
        ),
    ] = 3600.0
    pods_ttl_seconds: float = 120.0
    """A list of pods that was not confirmed for so long: nothing is evicted on it. Two missed bookmarks of an API
    server.
    """

    watchdog_seconds: Annotated[
        float,
        setting(
            "Start a small second process that restores everything when the agent was killed or hangs for this time; "
            "0 = none, if something else restarts the agent.",
            when="nothing restarts a killed agent",
            unit="seconds",
            ge=0,
            le=3600,
        ),
    ] = 0.0
    handover_seconds: Annotated[
        float,
        setting(
            "After SIGTERM the agent keeps running for this time, until another one stands by to take over all "
            "values; if none starts, everything is restored. An agent that finds another one on its node stands by. "
            "0 = restore at once, and refuse to start beside another. Keep it 15 seconds below the pod's "
            "terminationGracePeriodSeconds.",
            when="upgrades must not restore original values",
            unit="seconds",
            ge=0,
            le=600,
        ),
    ] = 0.0

    # Evictions.
    evictions_per_minute: Annotated[
        int,
        setting(
            "Maximum of evictions, over all strategies; 0 = none.",
            when="evictions are too many, or too slow",
            unit="pods",
            ge=0,
            le=600,
        ),
    ] = 6
    evictions_burst: Annotated[
        int,
        setting(
            "Evictions that may come at once after a quiet time.",
            when="evictions come in bursts, or must never",
            unit="pods",
            ge=1,
            le=100,
        ),
    ] = 3

    stop_containers: Annotated[
        bool,
        setting(
            "While memory runs out and the API server is away, does not answer or refuses (a disruption budget), let "
            "the container runtime end the containers of pods labelled BE at once. Needs the runtime's CRI socket "
            "(runtime.cri_upstream) and cotenant[node]; evictions_per_minute bounds it too.",
            when="nodes ran out of memory while the API server was away",
        ),
    ] = False

    # What it tells.
    count_cycles: Annotated[
        bool,
        setting(
            "Count cycles per instruction of containers that are not best effort, as evidence of interference. Costs "
            "at each switch of tasks, needs CAP_PERFMON and a processor that counts.",
            when="you want that evidence, and the kernel allows it",
        ),
    ] = False
    report_node_metric: Annotated[
        bool, setting("Report the node's usage as its NodeMetric.", when="koordlet reports, too")
    ] = True
    report_topology: Annotated[
        bool,
        setting(
            "Publish the node's CPUs as its NodeResourceTopology, for schedulers; together with the NodeMetric, "
            "never in a dry run. The definition of that kind must be installed.",
            when="a scheduler should place pods on CPUs",
        ),
    ] = False
    report_devices: Annotated[
        bool,
        setting(
            "Find the node's GPUs through NVML and publish them as its Device object, unless another program wrote "
            "that; together with the NodeMetric, never in a dry run.",
            when="the node has GPUs",
        ),
    ] = False
    report_interval_seconds: Annotated[
        float,
        setting(
            "Time between two NodeMetrics, unless the NodeMetric's spec sets it.",
            when="metrics should be fresher, or the API server spared",
            unit="seconds",
            ge=10,
            le=3600,
        ),
    ] = 60.0
    record_file: Annotated[
        str,
        setting(
            "File for observations, one JSON line a tick, for `cotenant node replay FILE`; empty = none.",
            when="you want to replay a decision of the agent",
        ),
    ] = ""

    best_effort: BestEffortSettings = msgspec.field(default_factory=BestEffortSettings)
    dra: DraSettings = msgspec.field(default_factory=DraSettings)
