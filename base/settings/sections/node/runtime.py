"""Settings of what the node agent does beside the kubelet and the runtime: NRI plugin, CRI proxy, DRA driver."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class RuntimeSettings(Section, frozen=True):
    """NRI plugin and CRI proxy. Both are optional, and both let containers start unchanged when something fails."""

    # The NRI plugin.
    nri: Annotated[
        bool, setting("Adjust containers as they are created, as an NRI plugin inside the node agent (containerd 2).")
    ] = False
    nri_socket: Annotated[str, setting("The runtime's NRI socket.", min_length=1)] = "/var/run/nri/nri.sock"
    nri_index: Annotated[
        str, setting("Two digits: plugins are asked in this order, the last one has the last word.", pattern=r"^\d\d$")
    ] = "90"
    nri_answer_seconds: Annotated[
        float,
        setting(
            "A decision that takes longer is left out and the container starts unchanged; the runtime itself throws "
            "a plugin out after 2 seconds, and all pods of the node wait meanwhile.",
            unit="seconds",
            gt=0,
            le=1,
        ),
    ] = 0.2
    nri_register_seconds: Annotated[
        float, setting("How long the runtime may take to accept the plugin.", unit="seconds", gt=0, le=60)
    ] = 5.0
    nri_retry_seconds: Annotated[
        float,
        setting("Longest wait between two attempts to reach the runtime's NRI socket.", unit="seconds", gt=0, le=300),
    ] = 10.0

    # The CRI proxy.
    cri_socket: Annotated[
        str, setting("Where the proxy listens: the kubelet's containerRuntimeEndpoint.", min_length=1)
    ] = "/run/cotenant/cri.sock"
    cri_upstream: Annotated[str, setting("The runtime's own CRI socket.", min_length=1)] = (
        "/run/containerd/containerd.sock"
    )
    cri_hook_seconds: Annotated[
        float,
        setting(
            "How long one hook, ours or a registered server's, may hold a call up; never more than a quarter of what "
            "the kubelet still waits for that call (2 minutes by default). A container whose decision came later is "
            "set right as soon as there is one.",
            unit="seconds",
            gt=0,
            le=60,
        ),
    ] = 10.0
    cri_hook_dir: Annotated[
        str,
        setting("Folder of JSON files that register hook servers (Koordinator's RuntimeHookService); empty = none."),
    ] = "/etc/runtime/hookserver.d"


class DraSettings(Section, frozen=True):
    """The driver `node.cotenant.dev`. The cluster's scheduler allocates; the agent publishes and prepares."""

    on: Annotated[
        bool,
        setting(
            "Publish the node's devices as ResourceSlices and prepare claims for the kubelet. Not in a dry run; needs "
            "cotenant[node] and Kubernetes 1.34."
        ),
    ] = False
    device_file: Annotated[
        str,
        setting(
            "A Device object as YAML or JSON in place of the node's own from the API server; its devices may have env "
            "and deviceNodes besides, for their containers."
        ),
    ] = ""
    cpus: Annotated[
        str,
        setting(
            "CPUs whose cores are offered, such as 2-31; a core needs all of its threads in it. Empty = none. Needs "
            "runtime.nri, and the kubelet must keep other pods off them (reservedSystemCPUs, or a part of the "
            "machine that it does not offer): Kubernetes does not count a claim's cores as the node's cpu."
        ),
    ] = ""
    plugin_dir: Annotated[str, setting("Folder of the driver's own socket.", min_length=1)] = (
        "/var/lib/kubelet/plugins/node.cotenant.dev"
    )
    registry_dir: Annotated[str, setting("Where the kubelet looks for plugins.", min_length=1)] = (
        "/var/lib/kubelet/plugins_registry"
    )
    cdi_dir: Annotated[
        str, setting("Where the container runtime looks for CDI files (its cdi_spec_dirs).", min_length=1)
    ] = "/var/run/cdi"
