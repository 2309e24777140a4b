"""Settings of the recorder, which measures usage where no Prometheus does."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class RecorderSettings(Section, frozen=True):
    """Pace of the readings of kubelets, and how their certificates are verified."""

    interval_seconds: Annotated[
        float,
        setting(
            "Between two readings of a kubelet. Two readings in a row that fail leave a gap.",
            unit="seconds",
            ge=15,
            le=100,
            when="a reading costs kubelets too much, or short peaks matter",
        ),
    ] = 60.0
    kubelet_ca_file: Annotated[
        str,
        setting(
            "PEM file of the authorities that may sign kubelets' certificates; empty for the cluster's own.",
            when="kubelets have certificates of another authority",
        ),
    ] = ""
    kubelet_insecure: Annotated[
        bool,
        setting(
            "Do not verify kubelets' certificates: anybody on the way can answer in their place.",
            when="kubelets sign their own certificates and the network to them is trusted",
        ),
    ] = False
