"""A silent provider holds up nobody who is known already, and strangers cannot have it asked again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant.dashboard.access.oidc import AGAIN_SECONDS, KEPT_SECONDS, LoginRefused, ProviderSilent
from cotenant.dashboard.access.oidc import Provider as Known
from tests.support import access as support
from tests.support.oidc_provider import Provider, running

ADA = "ada@example.com"
pytestmark = pytest.mark.server


class Watch:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def provider() -> Iterator[Provider]:
    oidc_provider = Provider(people=dict(support.PEOPLE))
    with running(oidc_provider):
        yield oidc_provider


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def known_provider(provider: Provider, watch: Watch, tmp_path: Path) -> Known:
    """The provider as the dashboard knows it."""
    return Known(support.by_login(provider, tmp_path).oidc, watch)


def refused(known_provider: Known, times: int) -> None:
    """So many strangers send what is no token."""
    for number in range(times):
        with pytest.raises(LoginRefused):
            known_provider.bearer(f"garbage-{number}")


def test_strangers_cost_a_silent_provider_one_question_and_the_known_go_on_with_the_old_keys(
    provider: Provider, known_provider: Known, watch: Watch
) -> None:
    token = provider.token(ADA)
    assert known_provider.bearer(token).name == ADA
    assert len(provider.paths) == 2  # its document, its keys
    refused(known_provider, 5)
    assert len(provider.paths) == 2  # the keys are young
    provider.silent = True
    watch.seconds += AGAIN_SECONDS + 1
    refused(known_provider, 20)
    assert provider.paths[2:] == ["/jwks"]
    watch.seconds += AGAIN_SECONDS + 1
    refused(known_provider, 20)
    assert provider.paths[2:] == ["/jwks"] * 2
    watch.seconds += KEPT_SECONDS  # even the document is too old now; it was asked for in vain
    assert known_provider.bearer(token).name == ADA
    provider.silent = False
    watch.seconds += AGAIN_SECONDS + 1
    question_count = len(provider.paths)
    assert known_provider.bearer(token).name == ADA
    assert sorted(provider.paths[question_count:]) == ["/.well-known/openid-configuration", "/jwks"]


def test_nobody_waits_for_a_question_that_a_stranger_caused(
    provider: Provider, known_provider: Known, watch: Watch, in_thread: Callable[[Callable[[], None]], threading.Thread]
) -> None:
    token = provider.token(ADA)
    known_provider.bearer(token)
    watch.seconds += AGAIN_SECONDS + 1
    provider.stalled = threading.Event()
    stranger = in_thread(lambda: refused(known_provider, 1))
    while len(provider.paths) < 3:
        assert stranger.is_alive()
    assert known_provider.bearer(token).name == ADA
    refused(known_provider, 5)
    assert stranger.is_alive() and len(provider.paths) == 3
    provider.stalled.set()
    stranger.join(60)
    assert not stranger.is_alive()


@pytest.fixture
def in_thread(provider: Provider) -> Iterator[Callable[[Callable[[], None]], threading.Thread]]:
    """Run something beside the test; at the end the provider answers and it is waited for."""
    threads: list[threading.Thread] = []

    def start(act: Callable[[], None]) -> threading.Thread:
        threads.append(threading.Thread(target=act))
        threads[-1].start()
        return threads[-1]

    yield start
    if provider.stalled is not None:
        provider.stalled.set()
    for thread in threads:
        thread.join(60)


def test_a_first_question_in_vain_is_remembered_for_a_while(
    provider: Provider, known_provider: Known, watch: Watch
) -> None:
    provider.silent = True
    for _ in range(5):
        with pytest.raises(ProviderSilent, match="did not answer"):
            known_provider.begin("http://127.0.0.1/auth/callback")
        with pytest.raises(ProviderSilent):
            known_provider.bearer("garbage")
    assert provider.paths == ["/.well-known/openid-configuration"]
    provider.silent = False
    watch.seconds += AGAIN_SECONDS + 1
    assert known_provider.begin("http://127.0.0.1/auth/callback").url.startswith(f"{provider.issuer}/authorize")
