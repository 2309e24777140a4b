"""The kubelet's configuration, read without a YAML parser."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.enforcer.sources.wire import KubeletConfig, kubelet_config


def test_the_three_scalars_are_found_among_others() -> None:
    text = """apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous: {enabled: false}
  cgroupDriver: nested
cgroupDriver: systemd
cgroupRoot: "/a/b"   # below a folder
cpuManagerPolicy: 'static'
"""
    config = kubelet_config(text)
    assert config == KubeletConfig("systemd", "/a/b", static_cpus=True)
    assert config.base == ("a", "b")


def test_what_is_not_said_is_empty_and_an_absurd_driver_too() -> None:
    assert kubelet_config("cgroupDriver: docker\n") == KubeletConfig()
    assert kubelet_config("") == KubeletConfig()


_WORD = st.text("abcdefgh/-", min_size=1, max_size=8).filter(lambda w: not w.startswith("-"))


@given(root=_WORD, driver=st.sampled_from(["cgroupfs", "systemd"]), quote=st.sampled_from(['"', "'", None]))
def test_it_reads_what_a_yaml_library_writes(root: str, driver: str, quote: str | None) -> None:
    text = yaml.safe_dump(
        {"cgroupRoot": root, "cgroupDriver": driver, "deep": {"cgroupRoot": "no"}}, default_style=quote
    )
    plain = text.replace('"cgroupRoot":', "cgroupRoot:").replace('"cgroupDriver":', "cgroupDriver:")
    plain = plain.replace("'cgroupRoot':", "cgroupRoot:").replace("'cgroupDriver':", "cgroupDriver:")
    assert kubelet_config(plain) == KubeletConfig(driver, root)


@pytest.mark.parametrize(("text", "off"), [("", False), ("cpuCFSQuota: true\n", False), ("cpuCFSQuota: false\n", True)])
def test_a_kubelet_that_sets_no_quotas_is_known(text: str, off: bool) -> None:
    assert kubelet_config(text).quotas_off is off
