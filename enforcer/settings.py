"""Settings of the node agent, of its hooks into the container runtime, and of how best effort yields on a node."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


class BestEffortSettings(Section, frozen=True):
    """The settings of best-effort strategies; they act only if the node's policy (NodeSLO) enables its thresholds."""

    protect: Annotated[
        Literal["shares", "idle", "none"],
        setting(
            "How best effort as a whole yields the CPU: shares (the smallest weight, which the kubelet sets too), idle "
            "(cpu.idle=1, if the kernel has it), or none. A quota alone does not protect latency. idle protects no "
            "better, and with it the kubelet can neither update its QoS cgroups (an idle group refuses cpu.shares and "
            "cpu.weight) nor restart: use it only on nodes without a kubelet.",
            when="there is no kubelet on the node",
        ),
    ] = "shares"
    suppress: Annotated[
        bool,
        setting(
            "Also limit best effort's CPU to a target that follows the usage of all other pods.",
            when="best effort may use all free CPU",
        ),
    ] = True
    evict: Annotated[
        bool, setting("Evict pods when CPU or memory is short, if the policy allows.", when="no pod may be evicted")
    ] = True
    suppress_target: Annotated[
        Literal["reactive", "forecast-ahead"],
        setting(
            "reactive follows the present usage; forecast-ahead also leaves capacity for the rise in the node's "
            "UsageForecast, and never gives best effort more than reactive.",
            when="production usage rises faster than suppression reacts",
        ),
    ] = "reactive"
    ahead_seconds: float = 600.0
    """How far forecast-ahead looks. One step of the forecast's grid behind the present one."""
    starve_seconds: float = 30.0
    """Best effort that wants to run and got less than cpuSuppressMinPercent for so long is lifted from the smallest
    weight to one that yields that share, until the node has had idle CPU for as long. Longer than a burst of prod,
    shorter than any liveness probe's patience.
    """

    # Evictions.
    only_evict_by_api: Annotated[
        bool,
        setting(
            "Give an evicted pod its own grace period; otherwise best-effort pods get one second.",
            when="best-effort pods need their grace period",
        ),
    ] = False
    pending_seconds: float = 60.0
    """A pod that was told to leave counts as leaving for so long; one that is still there then is passed over for as
    long again. Twice the default grace period of a pod.
    """
    memory_emergency_percent: Annotated[
        int,
        setting(
            "If less memory than this is available, or all of it would be used within the cool-down at the present "
            "rate, best effort is evicted without a cool-down, before the kernel kills any process.",
            when="the kernel's OOM killer is faster",
            unit="%",
            ge=0,
            le=50,
        ),
    ] = 5

    # Interference.
    interference: Annotated[
        Literal["off", "observe", "suppress", "evict"],
        setting(
            "What to do if a pod performs worse than its own baseline: nothing, report it, suppress best effort "
            "further, or also, if that does not help, evict the best-effort pod whose usage correlates with it.",
            when="interference is found too often, or should only be reported",
        ),
    ] = "evict"
    interference_confirm_seconds: float = 3.0
    """A pod must suffer for so long beside best effort that runs before anything is done. Three ticks: one alone may be
    chance.
    """
    interference_patience_seconds: float = 20.0
    """Each tightening is given so long to help before the next step. Pressure is a mean over 10 s. Two windows of the
    pressure's ten-second mean.
    """
    interference_samples: int = 300
    """Quiet ticks of a workload before its baseline counts. Five minutes of quiet ticks."""


class RuntimeSettings(Section, frozen=True):
    """The settings of the NRI plugin and the CRI proxy, both optional; on failures containers start unchanged."""

    # The NRI plugin.
    nri: Annotated[
        bool,
        setting(
            "Adjust containers as they are created, as an NRI plugin inside the node agent (containerd 2).",
            when="containers should have the agent's values from their start",
        ),
    ] = False
    nri_socket: Annotated[
        str, setting("The runtime's NRI socket.", when="the runtime's socket lies elsewhere", min_length=1)
    ] = "/var/run/nri/nri.sock"
    nri_index: Annotated[
        str,
        setting(
            "Two digits: the runtime calls plugins in this order, so the last one decides.",
            when="other NRI plugins must be called before, or after, the agent's",
            pattern=r"^\d\d$",
        ),
    ] = "90"
    nri_answer_seconds: Annotated[
        float,
        setting(
            "If a decision takes longer, the container starts unchanged. All pods of the node wait meanwhile, and the "
            "runtime disconnects a plugin after 2 seconds.",
            when="a busy node starts containers without the agent's values",
            unit="seconds",
            gt=0,
            le=1,
        ),
    ] = 0.2
    nri_register_seconds: float = 5.0
    """How long the runtime may take to accept the plugin. The runtime's own registration timeout (5 s)."""
    nri_retry_seconds: float = 10.0
    """Longest wait between two attempts to reach the runtime's NRI socket. Pacing of further tries."""

    # The CRI proxy.
    cri_socket: Annotated[
        str,
        setting(
            "Socket on which the proxy listens; the kubelet's containerRuntimeEndpoint must name it.",
            when="the kubelet expects another path",
            min_length=1,
        ),
    ] = "/run/cotenant/cri.sock"
    cri_upstream: Annotated[
        str, setting("The runtime's own CRI socket.", when="the runtime's socket lies elsewhere", min_length=1)
    ] = "/run/containerd/containerd.sock"
    cri_hook_seconds: float = 10.0
    """How long one hook, ours or a registered server's, may hold a call up; never more than a quarter of what the
    kubelet still waits for that call (2 minutes by default). A container whose decision came later is set right as soon
    as there is one. Far below a quarter of the kubelet's two minutes.
    """
    cri_hook_dir: Annotated[
        str,
        setting(
            "Folder of JSON files that register hook servers (Koordinator's RuntimeHookService); empty = none.",
            when="your hook servers register elsewhere",
        ),
    ] = "/etc/runtime/hookserver.d"


class DraSettings(Section, frozen=True):
    """The settings of the driver `node.cotenant.dev`: the scheduler allocates claims, the agent prepares them."""

    on: Annotated[
        bool,
        setting(
            "Publish the node's devices as ResourceSlices and prepare claims for the kubelet. Not in a dry run; needs "
            "cotenant[node] and Kubernetes 1.34.",
            when="pods claim devices of this node",
        ),
    ] = False
    device_file: Annotated[
        str,
        setting(
            "File with a Device object (YAML or JSON) in place of the node's own in the API server; its devices may "
            "also have env and deviceNodes for their containers.",
            when="the node's devices are not found automatically",
        ),
    ] = ""
    cpus: Annotated[
        str,
        setting(
            "CPUs whose cores are offered, such as 2-31; a core is offered if all of its threads are listed. Empty = "
            "none. Needs runtime.nri, and the kubelet must keep other pods off them (reservedSystemCPUs, or a part of "
            "the machine that it does not offer), as Kubernetes does not count a claim's cores as the node's cpu.",
            when="pods claim whole cores",
        ),
    ] = ""
    registry_dir: Annotated[
        str, setting("The kubelet's folder for plugins.", when="the kubelet's folder lies elsewhere", min_length=1)
    ] = "/var/lib/kubelet/plugins_registry"
    cdi_dir: Annotated[
        str,
        setting(
            "Folder in which the container runtime looks for CDI files (its cdi_spec_dirs).",
            when="the runtime reads other cdi_spec_dirs",
            min_length=1,
        ),
    ] = "/var/run/cdi"

    @property
    def plugin_dir(self) -> str:
        """The folder of the driver's own socket: by the kubelet's convention plugins/ next to plugins_registry/."""
        return str(PurePosixPath(self.registry_dir).parent / "plugins" / "node.cotenant.dev")


class EnforcerSettings(Section, frozen=True):
    """The settings of a node's agent; while `dry_run` is on, it neither writes to cgroups nor evicts."""

    dry_run: Annotated[
        bool,
        setting(
            "Only report what would be written and evicted; nothing is restored either.",
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
            "Pods, and optionally the Node, as Kubernetes YAML or JSON, for a machine without an API server.",
            when="there is no API server",
        ),
    ] = ""
    state_dir: Annotated[
        str,
        setting(
            "Folder of the journal of original values, the action log and the status file.",
            when="the folder is lost at a restart",
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
            "Folder that has kubepods in each cgroup hierarchy: the kubelet's cgroupRoot. Empty means the root.",
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
            "Socket of the kubelet's podresources service; empty = not used. The agent reads from it the CPUs that the "
            "CPU manager assigns and, while the API server has not answered, the pods. Needs cotenant[node].",
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
        setting("File with the bearer token; it is read again after a change.", when="the agent runs outside of a pod"),
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path, not a secret
    ca_file: Annotated[
        str, setting("File with the API server's certificate authority.", when="the agent runs outside of a pod")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

    # What it may do beyond pods' own cgroups.
    best_effort_pools: Annotated[
        bool,
        setting(
            "Keep best-effort pods on the CPUs of the NUMA nodes that the scheduler assigned to them; without effect "
            "while best effort is suppressed by cpuset.",
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
            when="the API server is sometimes away for longer",
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
            "Start a small second process that restores every value if the agent is dead or hangs for this time; "
            "0 = no such process: then something else must restart the agent.",
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
            "Maximum number of evictions per minute, over all strategies; 0 = none.",
            when="there are too many evictions, or too few",
            unit="pods",
            ge=0,
            le=600,
        ),
    ] = 6
    evictions_burst: Annotated[
        int,
        setting(
            "Evictions that may be requested at once after a time without any.",
            when="more evictions are needed at once, or fewer",
            unit="pods",
            ge=1,
            le=100,
        ),
    ] = 3

    stop_containers: Annotated[
        bool,
        setting(
            "While memory runs out and the API server does not answer, or refuses an eviction (as for a disruption "
            "budget), let the container runtime end the containers of pods labelled BE at once. Needs the runtime's "
            "CRI socket (runtime.cri_upstream) and cotenant[node]; evictions_per_minute bounds these stops too.",
            when="nodes ran out of memory while the API server was away",
        ),
    ] = False

    # What it tells.
    count_cycles: Annotated[
        bool,
        setting(
            "Count cycles per instruction of containers that are not best effort, as evidence of interference. This "
            "takes time at each task switch, and needs CAP_PERFMON and a processor with such counters.",
            when="you want cycle counts as evidence of interference",
        ),
    ] = False
    report_node_metric: Annotated[
        bool, setting("Report the node's usage as its NodeMetric.", when="koordlet reports it too")
    ] = True
    report_topology: Annotated[
        bool,
        setting(
            "Publish the node's CPUs as its NodeResourceTopology, for schedulers; never in a dry run. Needs "
            "report_node_metric and the CRD.",
            when="a scheduler should place pods on CPUs",
        ),
    ] = False
    report_devices: Annotated[
        bool,
        setting(
            "Find the node's GPUs through NVML and publish them as its Device object, unless another program wrote "
            "that object; never in a dry run. Needs report_node_metric.",
            when="the node has GPUs",
        ),
    ] = False
    report_interval_seconds: Annotated[
        float,
        setting(
            "Time between two NodeMetrics, unless the NodeMetric's spec sets it.",
            when="metrics should be newer, or the API server needs less load",
            unit="seconds",
            ge=10,
            le=3600,
        ),
    ] = 60.0
    record_file: Annotated[
        str,
        setting(
            "File to record observations, one JSON line per tick, for `cotenant node replay FILE`; empty = none.",
            when="you want to replay a decision of the agent",
        ),
    ] = ""

    best_effort: BestEffortSettings = msgspec.field(default_factory=BestEffortSettings)
    dra: DraSettings = msgspec.field(default_factory=DraSettings)
