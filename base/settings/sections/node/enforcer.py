"""Settings of the node agent: where it finds the node's cgroups and policy, what it may do, how often it looks."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting
from cotenant.base.settings.sections.node.best_effort import BestEffortSettings
from cotenant.base.settings.sections.node.runtime import DraSettings


class EnforcerSettings(Section, frozen=True):
    """The agent of one node. Nothing is written to a cgroup or evicted while `dry_run` holds."""

    dry_run: Annotated[
        bool, setting("Only say what would be written and evicted. The agent then restores nothing either.")
    ] = True
    node_name: Annotated[
        str, setting("Name of the Node object; empty means the variable NODE_NAME, then the host's name.")
    ] = ""
    tick_seconds: Annotated[float, setting("Between two looks at the node.", unit="seconds", ge=0.1, le=60)] = 1.0
    strategies_off: Annotated[
        list[str], setting("Strategies that do not run, by name; what they had set is given back.")
    ] = msgspec.field(default_factory=list)

    # Where things are.
    policy_file: Annotated[
        str,
        setting(
            "NodeSLO, or its spec alone, as YAML or JSON, in place of the API server's; read again when it changes. "
            "A file that cannot be used is refused and the policy before it stays."
        ),
    ] = ""
    pods_file: Annotated[
        str,
        setting("Pods (and the Node) as YAML or JSON in Kubernetes' own form, for a machine without an API server."),
    ] = ""
    state_dir: Annotated[
        str, setting("Folder of the journal of original values, the action log and the status file.", min_length=1)
    ] = "/var/lib/cotenant/enforcer"
    cgroup_root: Annotated[str, setting("Where cgroup file systems are mounted.", min_length=1)] = "/sys/fs/cgroup"
    proc_root: Annotated[str, setting("Where the host's proc file system is mounted.", min_length=1)] = "/proc"
    cgroup_base: Annotated[
        str, setting("Folder below each hierarchy that holds kubepods: the kubelet's cgroupRoot. Empty means the root.")
    ] = ""
    cgroup_driver: Annotated[
        Literal["auto", "cgroupfs", "systemd"],
        setting("How the kubelet names cgroups; auto asks its configuration, then looks which tree exists."),
    ] = "auto"
    kubelet_config: Annotated[
        str, setting("The kubelet's configuration file, read for its cgroup driver, cgroup root and CPU manager.")
    ] = "/var/lib/kubelet/config.yaml"
    pod_resources_socket: Annotated[
        str,
        setting(
            "The kubelet's podresources service, asked for the CPUs that its static CPU manager gave out, and for its "
            "pods while the API server has not been heard of; empty means never. It needs cotenant[node]."
        ),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"

    # The API server, without a kubeconfig.
    api_server: Annotated[
        str, setting("URL of the API server; empty means the service account's: KUBERNETES_SERVICE_HOST and _PORT.")
    ] = ""
    token_file: Annotated[str, setting("File of the bearer token; it is read again as it is renewed.")] = (
        "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path, not a secret
    )
    ca_file: Annotated[str, setting("File of the certificate authority of the API server.")] = (
        "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    )

    # What it may do beyond pods' own cgroups.
    best_effort_pools: Annotated[
        bool,
        setting(
            "Place best-effort pods that the scheduler gave NUMA nodes on these nodes' CPUs; without effect while "
            "best effort is suppressed by cpuset."
        ),
    ] = False
    kernel_reserves: Annotated[
        bool,
        setting(
            "Set the machine's own kernel settings by the policy's systemStrategy: its memory reserves "
            "(vm.min_free_kbytes, vm.watermark_scale_factor), and vendor kernels' switches where the kernel has them."
        ),
    ] = False
    sysctl_root: Annotated[str, setting("Where the host's /proc/sys is mounted for writing.", min_length=1)] = (
        "/proc/sys"
    )
    sysfs_root: Annotated[
        str, setting("Where the host's /sys is mounted; written only for vendor kernels' switches.", min_length=1)
    ] = "/sys"

    # When what it knows has grown old.
    policy_ttl_seconds: Annotated[
        float,
        setting(
            "A policy that was not confirmed for so long is stale: strategies go on by it, but best effort gets no "
            "more than it has, and nobody is evicted.",
            unit="seconds",
            ge=10,
            le=86_400,
        ),
    ] = 300.0
    release_seconds: Annotated[
        float,
        setting(
            "A policy that stays stale for so long is given up: every value goes back to what stood there before.",
            unit="seconds",
            ge=10,
            le=604_800,
        ),
    ] = 3600.0
    pods_ttl_seconds: Annotated[
        float,
        setting(
            "A list of pods that was not confirmed for so long: nothing is evicted on it.",
            unit="seconds",
            ge=5,
            le=3600,
        ),
    ] = 120.0

    watchdog_seconds: Annotated[
        float,
        setting(
            "Start a small second process that gives everything back when the agent was killed or stands still for so "
            "long; 0 = none, for where something else starts it again.",
            unit="seconds",
            ge=0,
            le=3600,
        ),
    ] = 0.0
    handover_seconds: Annotated[
        float,
        setting(
            "After SIGTERM the agent works on for so long, until another one stands by to take over all values; when "
            "none comes, everything is given back. An agent that finds another one on its node stands by. 0 = give "
            "back at once, and refuse to start beside another. Keep it 15 seconds below the pod's "
            "terminationGracePeriodSeconds.",
            unit="seconds",
            ge=0,
            le=600,
        ),
    ] = 0.0
    startup_seconds: Annotated[
        float,
        setting(
            "How long a starting agent waits to hear pods and policy before its first tick; what an agent before it "
            "had set is kept meanwhile.",
            unit="seconds",
            ge=0,
            le=60,
        ),
    ] = 5.0

    # Evictions.
    evictions_per_minute: Annotated[
        int, setting("Evictions at most, over all strategies; 0 = none.", unit="pods", ge=0, le=600)
    ] = 6
    evictions_burst: Annotated[
        int, setting("Evictions that may come at once after a quiet time.", unit="pods", ge=1, le=100)
    ] = 3
    eviction_grace_seconds: Annotated[
        int,
        setting(
            "How long an evicted pod's containers may take to end; -1 leaves it to the pod.", unit="seconds", ge=-1
        ),
    ] = -1

    stop_containers: Annotated[
        bool,
        setting(
            "While memory runs out and the API server is away, does not answer or refuses (a disruption budget), let "
            "the container runtime end the containers of pods labelled BE at once. Needs the runtime's CRI socket "
            "(runtime.cri_upstream) and cotenant[node]; evictions_per_minute bounds it too."
        ),
    ] = False

    # What it tells.
    count_cycles: Annotated[
        bool,
        setting(
            "Count cycles per instruction of containers that are not best effort, as evidence of interference. Costs "
            "at each switch of tasks, needs CAP_PERFMON and a processor that counts."
        ),
    ] = False
    report_node_metric: Annotated[bool, setting("Report the node's usage as its NodeMetric.")] = True
    report_topology: Annotated[
        bool,
        setting(
            "Publish the node's CPUs as its NodeResourceTopology, for schedulers; together with the NodeMetric, "
            "never in a dry run. The definition of that kind must be installed."
        ),
    ] = False
    report_devices: Annotated[
        bool,
        setting(
            "Find the node's GPUs through NVML and publish them as its Device object, unless somebody else made that; "
            "together with the NodeMetric, never in a dry run."
        ),
    ] = False
    nvml_library: Annotated[
        str, setting("NVIDIA's management library, as the loader finds it or as a path.", min_length=1)
    ] = "libnvidia-ml.so.1"
    report_interval_seconds: Annotated[
        float, setting("Between two NodeMetrics, unless the NodeMetric's spec says.", unit="seconds", ge=10, le=3600)
    ] = 60.0
    record_file: Annotated[
        str,
        setting("Observations are recorded here, one JSON line a tick, for `cotenant node replay FILE`; empty = not."),
    ] = ""
    record_cap_bytes: Annotated[
        int, setting("Largest recording; then it is begun anew beside the old one.", unit="bytes", ge=1 << 16)
    ] = 64 << 20

    best_effort: BestEffortSettings = msgspec.field(default_factory=BestEffortSettings)
    dra: DraSettings = msgspec.field(default_factory=DraSettings)
