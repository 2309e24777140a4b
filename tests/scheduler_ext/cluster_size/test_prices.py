"""Prices of nodes: what a list says, what is wrong with one, and which nodes it says nothing about."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.recommender.settings import PriceSettings
from cotenant.scheduler_ext.cluster_size.model import SizedNode
from cotenant.scheduler_ext.cluster_size.prices import TYPE_LABELS, exported_prices, node_prices, parse_price_list
from tests.scheduler_ext.cluster_size.two_nodes import AMOUNTS, node

HEAD = "machine_type,price_per_hour,currency\n"
WRONG = {
    "no header": ("m5.large,0.1,USD\n", "the header has no column"),
    "negative": (HEAD + "m5.large,-0.1,USD\n", "line 2: price_per_hour '-0.1'"),
    "not a number": (HEAD + "m5.large,0.1,USD\nc5,cheap,USD\n", "line 3: price_per_hour 'cheap'"),
    "not finite": (HEAD + "m5.large,inf,USD\n", "'inf'"),
    "no price": (HEAD + "m5.large,,USD\n", "line 2: price_per_hour ''"),
    "no type": (HEAD + ",0.1,USD\n", "line 2: machine_type is empty"),
    "no currency": (HEAD + "m5.large,0.1,\n", "line 2: currency is empty"),
    "two currencies": (HEAD + "m5.large,0.1,USD\nc5,0.1,EUR\n", "2 currencies, USD (line 2) and EUR (line 3)"),
    "two prices": (HEAD + "m5.large,0.1,USD\nm5.large,0.2,USD\n", "line 3: m5.large has two prices, 0.1 and 0.2"),
    "unknown capacity": (
        "machine_type,price_per_hour,currency,capacity_type\nm5.large,0.1,USD,reserved\n", "'reserved' is neither",
    ),
    "empty": (HEAD, "contains no price"),
    "a short line": (HEAD + "m5.large\n", "line 2: price_per_hour ''"),
}  # fmt: skip


def machine(name: str, kind: str = "", **labels: str) -> SizedNode:
    return node(name, labels={**({TYPE_LABELS[0]: kind} if kind else {}), **labels})


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_price_list_is_refused_with_its_line_and_value(case: str) -> None:
    text, phrase = WRONG[case]
    with pytest.raises(UsageError) as caught:
        parse_price_list(text, "prices.csv")
    assert phrase in caught.value.message and caught.value.message.startswith("prices.csv")
    assert caught.value.fix


def test_a_node_of_an_unknown_type_or_without_a_type_has_no_price_and_is_counted() -> None:
    listed = parse_price_list(HEAD + "m5.large,0.1,EUR\n", "prices.csv")
    nodes = (machine("a", "m5.large"), machine("b", "c9.huge"), machine("c", "c9.huge"), machine("d"))
    prices = node_prices(nodes, PriceSettings(), listed)
    # 0.1 an hour, 730 hours a month; nothing stands in for the others.
    assert prices.monthly == {"a": pytest.approx(73.0)} and prices.currency == "EUR"
    assert prices.notes == (
        "the price list has no machine type c9.huge; 2 nodes are without a price",
        "1 node is without the label node.kubernetes.io/instance-type, and so without a price",
    )


@pytest.mark.parametrize(
    "label",
    [
        {"karpenter.sh/capacity-type": "spot"},
        {"eks.amazonaws.com/capacityType": "SPOT"},
        {"cloud.google.com/gke-spot": "true"},
        {"cloud.google.com/gke-preemptible": "true"},
        {"kubernetes.azure.com/scalesetpriority": "spot"},
    ],
    ids=lambda label: next(iter(label)),
)
def test_spot_machines_have_their_own_price(label: dict[str, str]) -> None:
    text = "machine_type,price_per_hour,currency,capacity_type\nm5,1,USD,on-demand\nm5,0.25,USD,spot\n"
    prices = node_prices(
        (machine("a", "m5"), machine("b", "m5", **label)), PriceSettings(), parse_price_list(text, "p.csv")
    )
    assert prices.monthly == {"a": pytest.approx(730.0), "b": pytest.approx(182.5)}


def test_without_a_list_the_price_sheet_prices_cores_and_gib_of_the_node() -> None:
    # The node has 4 cores and 8 GiB: (4 x 0.5 + 8 x 0.25) x 730 = 2,920.
    prices = node_prices((machine("a"),), PriceSettings(per_core_hour=0.5, per_gib_hour=0.25), None)
    assert prices.monthly == {"a": pytest.approx(2_920.0)}


@pytest.mark.parametrize(
    "published",
    [
        {"nvidia.com/gpu": "2"},
        {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200"},
        {"nvidia.com/gpu": "2", "koordinator.sh/gpu": "200", "koordinator.sh/gpu-core": "200"},
    ],
)
def test_the_price_sheet_prices_the_gpus_of_a_node_once_under_whatever_names_they_are_published(
    published: dict[str, str],
) -> None:
    sheet = PriceSettings(per_core_hour=0.5, per_gib_hour=0.25, per_gpu_hour=1.5)
    # 4 cores, 8 GiB and 2 GPUs: (4 x 0.5 + 8 x 0.25 + 2 x 1.5) x 730 = 5,110.
    prices = node_prices((node("a", AMOUNTS | published),), sheet, None)
    assert prices.monthly == {"a": pytest.approx(5_110.0)}


@given(st.text(max_size=200))
def test_any_text_is_a_list_or_a_clear_refusal(text: str) -> None:
    try:
        assert parse_price_list(text, "p.csv").hourly
    except UsageError as error:
        assert error.fix


def test_prices_that_opencost_exports_count_by_node_and_each_node_without_one_has_its_reason() -> None:
    series = [
        ({"node": "a", "instance_type": "m5.large"}, 0.1),
        # Two exporters that agree are one price; a scrape without honor_labels renames the label of the priced node.
        ({"node": "b", "instance": "10.0.0.1:9003"}, 0.2),
        ({"node": "b", "instance": "10.0.0.2:9003"}, 0.2),
        ({"node": "a", "exported_node": "c"}, 0.3),
        ({"node": "two"}, 0.1),
        ({"node": "two"}, 0.4),
        ({"node": "free"}, 0.0),
        ({"node": "below"}, -1.0),
        ({"node": "unread"}, math.nan),
        ({"node": "gone"}, 9.0),
        ({"instance": "10.0.0.3:9003"}, 9.0),
    ]
    nodes = tuple(machine(name) for name in ("a", "b", "c", "two", "free", "below", "unread", "new"))
    prices = node_prices(nodes, PriceSettings(), exported_prices(series, "EUR"))
    # 730 hours a month.
    assert prices.monthly == {"a": pytest.approx(73), "b": pytest.approx(146), "c": pytest.approx(219)}
    assert (prices.currency, prices.notes) == (
        "EUR",
        (
            "OpenCost's prices have no currency: EUR is from recommender.prices.currency",
            "OpenCost exports no price of new; 1 node is without a price",
            "OpenCost exports the price -1 an hour; 1 node is without a price",
            "OpenCost exports the price 0 an hour; 1 node is without a price",
            "OpenCost exports the price nan an hour; 1 node is without a price",
            "OpenCost exports the prices 0.1 and 0.4 an hour; 1 node is without a price",
        ),
    )
