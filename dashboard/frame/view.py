"""The definition of a page, and what it receives: the results, the settings and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from dash import Dash
from dash.development.base_component import Component

from cotenant.autopilot.model import AutopilotService
from cotenant.base.allocation.cpu_ownership import TopologyService
from cotenant.base.demo_clock import Steering
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person
from cotenant.base.usage.backtest import ReplayJob
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.model.service import ChangeService
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.found import Guards
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import ResultSource
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.steps import NextStep
from cotenant.recommender.settings import PriceSettings
from cotenant.scheduler_ext.queues.model.queue_service import QueueService
from cotenant.scheduler_ext.rebalance.model.move_service import MoveService
from cotenant.scheduler_ext.reservations.model.plan_service import PlanService

ServiceT = TypeVar("ServiceT")
ACT: Final = "cotenant dashboard --act"
"""The command of a dashboard that reads a cluster and acts on it."""


def in_cluster(service: ServiceT | None, command: str = "") -> ServiceT:
    """Return the service; raise UsageError if there is none, naming a `command` with the same effect."""
    if service is None:
        instead = f", or use `{command}`" if command else ""
        fix = f"Start the dashboard with `{ACT}`{instead}."
        raise UsageError("this dashboard is read-only: it has no access to a cluster", fix=fix)
    return service


@dataclass(frozen=True, slots=True)
class DashboardContext:
    """The services and settings that the process which starts the dashboard passes to it, beside its result source.

    With the defaults there are no texts to copy and no later steps of a cut, and everybody is an anonymous viewer.
    """

    patch: Callable[..., str] = lambda *_given: ""
    """A command that applies recommendations of one workload, as text to copy; empty when there is nothing to apply."""
    manifest: Callable[..., str] = lambda *_given: ""
    """A patch that applies recommendations of one workload, as YAML; empty if there is nothing to apply."""
    prices: PriceSettings = field(default_factory=PriceSettings)
    """What a core and a GiB cost."""
    current_user: Callable[[], Person] = lambda: Person("")
    """Returns the person whose request is being answered."""
    access: AccessSettings = field(default_factory=AccessSettings)
    """How people are identified; in any mode but none this replaces `current_user`."""
    launch_token: str = field(default="", repr=False)
    """The token that the first visit must have in access mode none; "" admits everybody who reaches the port."""
    changes: ChangeService | None = None
    """The service that carries out actions on recommendations; None: this dashboard is read-only."""
    plans: PlanService | None = None
    """The service that carries out actions on reservation plans; None: the page shows commands to copy."""
    queues: QueueService | None = None
    """The service that reads the cluster's quotas and gangs; None: this dashboard reads no cluster."""
    moves: MoveService | None = None
    """The service that reads and approves moves of pods; None: this dashboard reads no cluster."""
    autopilot: AutopilotService | None = None
    """The service that reads and switches the autopilot; None: this dashboard reads no cluster."""
    guards: Callable[[Person, WorkloadRef, float], Guards] | None = None
    """Returns the metrics that could verify a workload's changes, at a Unix time; None: no metric source is read."""
    topologies: TopologyService | None = None
    """The service that reads the CPUs and devices of a node; None: this dashboard reads no cluster."""
    actions: ActionSettings = field(default_factory=ActionSettings)
    """Settings of the change service, such as the soak time and the largest batch."""
    steps: Callable[[Sequence[Recommendation], float], Sequence[NextStep]] = lambda _recommendations, _now_seconds: ()
    """Returns all steps of cuts that take several steps; the first one starts at the given Unix time."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Other clusters in the switch of the top bar: address by label; empty if there is only one cluster."""
    steering: Steering | None = None
    """The clock of a demo, which can be moved ahead; None: real time."""
    computes_size: Callable[[], bool] = lambda: False
    """Returns whether the computation of which nodes could leave is running, as at the start of a demo."""
    replay: ReplayJob | None = None
    """The replay of a demo's history that runs in the background; None: a command makes it."""


@dataclass(frozen=True, slots=True)
class View:
    """The results, settings, time and services that every page and callback receives."""

    source: ResultSource
    settings: DashboardSettings
    now_seconds: Callable[[], float]
    given: DashboardContext = field(default_factory=DashboardContext)

    @property
    def prices(self) -> PriceSettings:
        """The prices of a core and of a GiB."""
        return self.given.prices

    @property
    def currency(self) -> str:
        """The currency of the price sheet."""
        return self.prices.currency


@dataclass(frozen=True, slots=True)
class Obeyed:
    """A page's use of the top bar's choices; `namespace` and `time_range` say where it ignores them, "" = nowhere."""

    namespace: str = ""
    time_range: str = ""
    forecast: bool = False
    """True if the page draws a forecast; `range=next` then shows only the forecast."""
    spans: bool = True
    """True if the page reads `since` and `until`: it filters by them, or its list reports them as invalid."""


class Place(StrEnum):
    """The top-level entries of the navigation, in their order; each groups some pages."""

    HOME = "Home"
    RIGHT_SIZE = "Right-size"
    LEND = "Lend"
    PEAKS = "Peaks"
    PLACE = "Place"
    EXPLORE = "Explore"
    FOOT = "Foot"
    """Below the places: what is about cotenant itself."""


def everywhere(_view: View) -> bool:
    """Return True: the page is available on every installation."""
    return True


def with_cluster(service: str) -> Callable[[View], bool]:
    """Return a function that says whether the dashboard has a service of `DashboardContext` (needs a cluster)."""
    return lambda view: getattr(view.given, service) is not None


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its path below the base path, title, shortcut letter (`g` + letter), drawing function and callbacks."""

    path: str
    title: str
    letter: str
    render: Callable[[View, str], Component]
    """Draws the page from the view and the URL's query string."""
    register: Callable[[Dash, View], None]
    below: Callable[[View, tuple[str, ...], str], Component] | None = None
    """Draws an address below `path` from the view, the unescaped parts after `path`, and the query string."""
    place: Place = Place.EXPLORE
    """The section of the navigation that lists the page."""
    parent: str = ""
    """Path of the page that the navigation marks instead of this one, which it then does not list; "" lists this."""
    installed: Callable[[View], bool] = everywhere
    """Returns whether the page's feature is enabled; if not, the navigation shows `switch_on` beside its name."""
    switch_on: str = ACT
    """The command that enables the page's feature."""
    obeyed: Obeyed = Obeyed()
    obeyed_below: Obeyed | None = None
    """The same as `obeyed` for addresses below the page; None: `obeyed` applies to them too."""
