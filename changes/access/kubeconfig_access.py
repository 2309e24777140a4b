"""EDGE: access to the cluster of a kubeconfig for one person, with the kubeconfig's rights or with the person's own.

The person at this machine has the kubeconfig's rights and the user name that the cluster gives it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from cotenant.base.commands.output import message
from cotenant.base.errors import ClusterError
from cotenant.base.people import Grant, Person, Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.access.settings import AccessSettings

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.audited_acts import ClusterAccess

PATIENCE_SECONDS: Final = 3.0
"""How long the start waits for the cluster to return our user name."""
CALL_SECONDS: Final = 5.0
"""Longest wait for the API server while a page is open."""
ANSWER_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 20.0
"""A connection idle for longer may be closed at the other end, so it is not used for a write."""


def door_of(settings: SettingSections) -> ClusterAccess:
    """Return access by the configured login: kubeconfig, the person's own token, or a `ReviewedClient`."""
    from cotenant.changes.access.cluster_access import by_way

    kube = settings.section(KubeSettings)
    return by_way(interactive_kube_settings(kube), settings.section(AccessSettings), kubeconfig_door(kube))


def interactive_kube_settings(settings: KubeSettings) -> KubeSettings:
    """Return the settings with shorter timeouts and fewer retries, for requests that an open page waits for."""
    return msgspec.structs.replace(
        settings,
        timeout_seconds=min(settings.timeout_seconds, CALL_SECONDS),
        deadline_seconds=min(settings.deadline_seconds, ANSWER_SECONDS),
        retries=min(settings.retries, 1),
    )


def kubeconfig_door(settings: KubeSettings) -> ClusterAccess:
    """Return cluster access that gives everybody on this machine the kubeconfig's rights; idle clients are reused."""
    from cotenant.base.kube import connect

    hasty = interactive_kube_settings(settings)
    idle: list[tuple[float, KubeClient]] = []
    lock = threading.Lock()

    def lent() -> KubeClient:
        with lock:
            while idle:
                since, client = idle.pop()
                if time.monotonic() - since < IDLE_SECONDS:
                    return client
                client.close()
        return connect(hasty)

    @contextmanager
    def door(_who: Person) -> Iterator[KubeClient]:
        client = lent()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with lock:
            idle.append((time.monotonic(), client))

    return door


def at_this_machine(settings: KubeSettings) -> Callable[[], Person]:
    """Return a function that gives the kubeconfig's user as administrator, without a name if the cluster is silent."""
    from cotenant.base.kube import connect
    from cotenant.changes.live_context import who

    patience = PATIENCE_SECONDS
    hasty = msgspec.structs.replace(settings, timeout_seconds=patience, deadline_seconds=patience, retries=0)
    name, groups = "", tuple[str, ...]()
    try:
        with closing(connect(hasty)) as client:
            person = who(client)
        name, groups = person.name, person.groups
    except ClusterError as error:
        message(f"the cluster does not say who you are: {error}. {error.fix}", style="yellow")
    someone = Person(name, groups, grants=(Grant(Role.ADMIN),))
    return lambda: someone
