"""What cannot be simulated is refused with the argument, its value and a fix, before anything is computed."""

from __future__ import annotations

from typing import Any

import pytest

import cotenant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "nodes=0 is not a whole number of at least 1"),
        ({"pods": 0}, "pods=0 is not a whole number of at least 1"),
        ({"days": 1}, "days=1 is not a whole number of at least 2"),
        ({"days": 2.5}, "days=2.5 is not a whole number of at least 2"),
        ({"seeds": ()}, r"seeds=\(\) is empty"),
        ({"ways": []}, r"ways=\[\] is empty"),
        ({"ways": None}, "ways=None is not a sequence of texts"),
        ({"ways": [["none"]]}, r"ways=\[\['none'\]\] are not known"),
        ({"seeds": 1}, "seeds=1 is not a sequence of numbers"),
        ({"seeds": ["a"]}, "seed='a' is not a whole number of at least 0"),
        ({"seeds": [-1]}, "seed=-1 is not a whole number of at least 0"),
    ],
)
def test_a_run_of_nothing_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(cotenant.UsageError, match=message) as refused:
        cotenant.simulate(**arguments)
    assert refused.value.fix


@pytest.mark.parametrize("arguments", [{"nodes": 0}, {"pods": -1}, {"days": 1}])
def test_an_incident_on_nothing_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(cotenant.UsageError, match="is not a whole number of at least"):
        cotenant.simulate_incident("flash-crowd", **arguments)
