"""Which pods a ResourceQuota counts."""

from __future__ import annotations

from typing import Any

from cotenant.admission.namespace_limits.demands import QuotaDemand


class _Unread(dict[str, Any]):
    """A pod that must not be looked into."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError(key)


def test_a_quota_without_scopes_counts_a_pod_without_working_out_its_qos_class() -> None:
    assert QuotaDemand("all", "limits.cpu").counts(_Unread())
