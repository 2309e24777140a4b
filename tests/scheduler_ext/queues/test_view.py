"""What the queue controller sees, read from objects."""

from __future__ import annotations

import pytest

from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.queues.view import QuotaProfile

PROFILE = {
    "metadata": {"namespace": "kube-system", "name": "gpu-pool"},
    "spec": {"quotaName": "gpu-root", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, "resourceRatio": "0.9"},
}


def test_a_profile_is_read_from_its_object() -> None:
    profile = QuotaProfile.parse(PROFILE)
    assert (profile.quota, profile.ratio) == ("gpu-root", 0.9)
    assert profile.selector.matches({"pool": "gpu"}) and not profile.selector.matches({"pool": "cpu"})


def test_a_tree_without_an_id_is_named_by_the_hash_of_its_profile() -> None:
    """64-bit FNV-1a, which its authors' test vectors define."""
    unnamed = QuotaProfile.parse({"metadata": {"namespace": "", "name": ""}, "spec": {"quotaName": "q"}})
    assert unnamed.tree_id == str(0xAF63A24C860189FE)  # of "/"
    labelled = {**PROFILE, "metadata": {"labels": {"quota.scheduling.koordinator.sh/tree-id": "t"}}}
    assert QuotaProfile.parse(labelled).tree_id == "t"


@pytest.mark.parametrize(("ratio", "read"), [("0", 1.0), ("1.5", 1.0), ("x", 1.0), (None, 1.0), ("0.25", 0.25)])
def test_a_ratio_that_is_none_counts_as_one(ratio: str | None, read: float) -> None:
    assert QuotaProfile.parse({**PROFILE, "spec": {"quotaName": "q", "resourceRatio": ratio}}).ratio == read


def test_a_profile_without_a_quota_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"gpu-pool: spec\.quotaName"):
        QuotaProfile.parse({**PROFILE, "spec": {}})
