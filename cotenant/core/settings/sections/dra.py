"""Settings of dynamic resource allocation: the node agent as the driver of its node's devices and cores."""

from __future__ import annotations

from typing import Annotated

from cotenant.core.settings.base import Section, setting


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
