"""Settings of the analysis' execution: where its shards are computed. They change no result."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class PipelineSettings(Section, frozen=True):
    """The executor of an analysis's shards: this process, processes of this machine, or a Dask cluster."""

    workers: Annotated[
        int,
        setting(
            "Processes on this machine; 1 computes in the process that was started.",
            when="scans of a large cluster take too long and the machine has cores",
            ge=1,
            le=256,
        ),
    ] = 1
    scheduler: Annotated[
        str,
        setting(
            "Address of a Dask scheduler, tcp://host:8786 or tls://host:8786; empty for none.",
            when="one machine is too small for the scan",
        ),
    ] = ""
    ca_file: Annotated[
        str, setting("PEM file of the authority of a tls:// scheduler.", when="the scheduler is reached by tls://")
    ] = ""
    client_cert_file: Annotated[
        str, setting("PEM file of the own certificate for it.", when="the scheduler is reached by tls://")
    ] = ""
    client_key_file: Annotated[
        str, setting("PEM file of that certificate's key.", when="the scheduler is reached by tls://")
    ] = ""
