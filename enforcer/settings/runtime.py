"""Settings of what the node agent does beside the kubelet and the runtime: NRI plugin, CRI proxy, DRA driver."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from cotenant.base.settings.base import Section, setting


class RuntimeSettings(Section, frozen=True):
    """NRI plugin and CRI proxy. Both are optional, and both let containers start unchanged when something fails."""

    # The NRI plugin.
    nri: Annotated[
        bool,
        setting(
            "Adjust containers as they are created, as an NRI plugin inside the node agent (containerd 2).",
            when="containers should start with their values",
        ),
    ] = False
    nri_socket: Annotated[
        str, setting("The runtime's NRI socket.", when="the runtime's socket lies elsewhere", min_length=1)
    ] = "/var/run/nri/nri.sock"
    nri_index: Annotated[
        str,
        setting(
            "Two digits: plugins are asked in this order, the last one has the last word.",
            when="other plugins must come before, or after",
            pattern=r"^\d\d$",
        ),
    ] = "90"
    nri_answer_seconds: Annotated[
        float,
        setting(
            "A decision that takes longer is left out and the container starts unchanged; the runtime itself "
            "disconnects a plugin after 2 seconds, and all pods of the node wait meanwhile.",
            when="a busy node starts containers without their values",
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
            "Where the proxy listens: the kubelet's containerRuntimeEndpoint.",
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
    """The driver `node.cotenant.dev`. The cluster's scheduler allocates; the agent publishes and prepares."""

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
            "A Device object as YAML or JSON in place of the node's own from the API server; its devices may have env "
            "and deviceNodes besides, for their containers.",
            when="the node's devices are not found automatically",
        ),
    ] = ""
    cpus: Annotated[
        str,
        setting(
            "CPUs whose cores are offered, such as 2-31; a core needs all of its threads in it. Empty = none. Needs "
            "runtime.nri, and the kubelet must keep other pods off them (reservedSystemCPUs, or a part of the "
            "machine that it does not offer): Kubernetes does not count a claim's cores as the node's cpu.",
            when="pods claim whole cores",
        ),
    ] = ""
    registry_dir: Annotated[
        str, setting("Where the kubelet looks for plugins.", when="the kubelet's folder lies elsewhere", min_length=1)
    ] = "/var/lib/kubelet/plugins_registry"
    cdi_dir: Annotated[
        str,
        setting(
            "Where the container runtime looks for CDI files (its cdi_spec_dirs).",
            when="the runtime reads other cdi_spec_dirs",
            min_length=1,
        ),
    ] = "/var/run/cdi"

    @property
    def plugin_dir(self) -> str:
        """Folder of the driver's own socket: by the kubelet's convention plugins/ beside plugins_registry/."""
        return str(PurePosixPath(self.registry_dir).parent / "plugins" / "node.cotenant.dev")
