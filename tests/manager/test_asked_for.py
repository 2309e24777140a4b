"""Features that run only where they are asked for."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.manager.features import enabled_features
from cotenant.settings import Settings


@pytest.mark.parametrize(
    ("section", "features"),
    [
        ({}, set()),
        ({"enabled": True}, {"migrations", "descheduler"}),
        ({"enabled": True, "handled_by": "koordinator"}, {"descheduler"}),
    ],
)
def test_pods_are_moved_only_where_somebody_asks_for_it(section: dict[str, object], features: set[str]) -> None:
    settings = msgspec.convert({"descheduler": section}, Settings)
    assert {"migrations", "descheduler"} & set(enabled_features(settings)) == features
    off = msgspec.convert({"descheduler": section, "manager": {"features_off": ["descheduler"]}}, Settings)
    assert "descheduler" not in enabled_features(off)
