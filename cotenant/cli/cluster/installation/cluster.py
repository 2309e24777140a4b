"""EDGE: reads the installed objects, and installs by server-side apply after a dry run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from cotenant.base.errors import ClusterAbsent, ClusterError, ClusterForbidden, ClusterInvalid
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.progress import Progress
from cotenant.cli.cluster.installation.manifests import InstalledParts, Manifest
from cotenant.cli.cluster.installation.plan import InstallStep, ObservedManifest, is_ours

FIELD_MANAGER: Final = "cotenant-install"
LARGEST_BODY_BYTES: Final = 1 << 20
"""Largest request body: a CRD is larger than anything that the components may write."""
WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1


def installed_parts(client: KubeClient) -> InstalledParts:
    """Return which parts of an installation the cluster has.

    If the settings' ConfigMap or the manager's Deployment may not be read, it is assumed to exist, which leads to the
    fewest writes.
    """

    def is_there(path: str, *, unless_known: bool) -> bool:
        try:
            return client.get(path) is not None
        except ClusterForbidden:
            return unless_known

    deployments = "/apis/apps/v1/namespaces/cotenant/deployments"
    return InstalledParts(
        settings=is_there("/api/v1/namespaces/cotenant/configmaps/cotenant-settings", unless_known=True),
        recorder=is_there(f"{deployments}/cotenant-recorder", unless_known=False),
        manager=is_there(f"{deployments}/cotenant-manager", unless_known=True),
    )


def observe(client: KubeClient, shipped: Sequence[Manifest], progress: Progress) -> list[ObservedManifest]:
    """Return each shipped object's live state and, if ours or absent, the result or refusal of a dry-run apply."""
    writer = Writer(client, FIELD_MANAGER, cap_bytes=LARGEST_BODY_BYTES)
    progress.stage("looking at the cluster", len(shipped))
    observations: list[ObservedManifest] = []
    absent: set[str] = set()
    for manifest in shipped:
        try:
            live, preview = client.get(manifest.address.path), None
            # In a namespace that is to be created yet, the server cannot try it.
            if (live is None or is_ours(live)) and manifest.address.namespace not in absent:
                preview = writer.send(intent(manifest), dry_run=True)
            observation = ObservedManifest(manifest, live, preview)
        except (ClusterForbidden, ClusterInvalid, ClusterAbsent) as error:
            refusal = f"{error.message.rstrip('.')}. {error.fix}".strip()
            observation = ObservedManifest(manifest, None, refusal=refusal)
        if manifest.kind == "Namespace" and observation.live is None:
            absent.add(manifest.address.name)
        observations.append(observation)
        progress.advance()
    return observations


def install(client: KubeClient, steps: Sequence[InstallStep], progress: Progress) -> None:
    """Write the objects of all steps that change the cluster, then wait until the API server serves new kinds."""
    writer = Writer(client, FIELD_MANAGER, cap_bytes=LARGEST_BODY_BYTES)
    writing = [step for step in steps if step.writes]
    progress.stage("installing", len(writing))
    for step in writing:
        writer.send(intent(step.manifest))
        progress.advance()
    definitions = [s.manifest for s in steps if s.manifest.kind == "CustomResourceDefinition"]
    if definitions:
        progress.stage("waiting until the API server serves the new kinds", len(definitions))
    for manifest in definitions:
        await_served(client, manifest)
        progress.advance()


def intent(manifest: Manifest) -> Apply:
    """Return the server-side apply request of a shipped object."""
    return Apply(manifest.address, manifest.body, why=f"component {manifest.component}")


def await_served(client: KubeClient, manifest: Manifest) -> None:
    """Wait until objects of a CRD can be written: it is Established, and its API path answers."""
    spec = manifest.body["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}?limit=1"

    def is_served() -> bool:
        conditions = ((client.get(manifest.address.path) or {}).get("status") or {}).get("conditions") or []
        is_established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
        return is_established and client.get(path) is not None

    wait_until(is_served, f"waiting for the API to serve {manifest.address}")


def wait_until(met: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Poll `met` until it returns True; raise ClusterError after `seconds`."""
    end = time.monotonic() + seconds
    while not met():
        if time.monotonic() > end:
            raise ClusterError(f"timed out after {seconds:.0f} s: {what}", fix="Check the API server's log and retry.")
        time.sleep(_PAUSE_SECONDS)
