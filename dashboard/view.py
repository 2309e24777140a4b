"""What a page is, and what it is given: the source, the settings and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dash import Dash
from dash.development.base_component import Component

from cotenant.settings.dashboard import DashboardSettings
from cotenant.settings.recommender import PriceSettings
from dashboard.source import Source


@dataclass(frozen=True, slots=True)
class View:
    """What every page and callback sees of the outside."""

    source: Source
    settings: DashboardSettings
    now_seconds: Callable[[], float]
    patch: Callable[..., str]
    """A command that applies recommendations of one workload, as text to copy; empty when there is nothing to apply."""
    manifest: Callable[..., str]
    """The same as YAML."""
    prices: PriceSettings
    """What a core and a GiB cost."""

    @property
    def currency(self) -> str:
        """What the price sheet is in."""
        return self.prices.currency


@dataclass(frozen=True, slots=True)
class Page:
    """One page: path below the base path, title, letter for `g` + letter, how it looks and which callbacks it has."""

    path: str
    title: str
    letter: str
    render: Callable[[View, str], Component]
    """From the view and the URL's query string."""
    register: Callable[[Dash, View], None]
    below: Callable[[View, tuple[str, ...], str], Component] | None = None
    """An address below the page's: from the view, the unescaped parts after `path`, and the query string."""
    parent: str = ""
    """Path of the page that is marked in the navigation in this one's place; such a page is not listed itself."""
