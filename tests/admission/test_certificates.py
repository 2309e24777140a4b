"""Our own authority: issued, renewed with overlap, shared by replicas through a folder or a Secret, never mixed up."""

from __future__ import annotations

import datetime
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.admission.webhook_server.authority import CertificatePolicy, Material, Pair, readable, renew_material
from cotenant.admission.webhook_server.certificates import (
    CertificateController,
    CertificateFileReloader,
    FolderStore,
    Injector,
)
from cotenant.base.errors import ClusterConflict, ClusterForbidden, StoreError, UsageError

NOW = 1.79e9
DAY = 86_400.0
POLICY = CertificatePolicy(("cotenant-webhook.cotenant.svc", "127.0.0.1"), 365, 90, 600)


def verifies(serving: Pair, bundle: bytes, at: float) -> bool:
    builder = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(bundle)))
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    verifier = builder.time(moment).build_server_verifier(x509.DNSName(POLICY.names[0]))
    try:
        verifier.verify(x509.load_pem_x509_certificate(serving.certificate), [])
    except VerificationError:
        return False
    return True


@dataclass
class MovingClock:
    seconds: float = NOW

    def now_seconds(self) -> float:
        return self.seconds


class SharedStore(FolderStore):
    """Versioned like a Secret, without a server."""

    def __init__(self) -> None:
        super().__init__(Path("none"))
        self.held: Material | None = None
        self.version = 0
        self.before_write = lambda: None

    def read(self) -> tuple[Material | None, str]:
        return self.held, str(self.version)

    def write(self, material: Material, version: str) -> None:
        self.before_write()
        if version != str(self.version):
            raise ClusterConflict("changed")
        self.held, self.version = material, self.version + 1


def test_a_fresh_certificate_is_for_the_names_and_verifies_for_a_late_clock_too() -> None:
    material = renew_material(None, POLICY, NOW)
    assert readable(material)
    assert verifies(material.serving, material.bundle, NOW) and verifies(material.serving, material.bundle, NOW - 3000)
    assert renew_material(material, POLICY, NOW + DAY) is material


def test_a_serving_certificate_is_renewed_in_its_last_third() -> None:
    material = renew_material(None, POLICY, NOW)
    assert renew_material(material, POLICY, NOW + 59 * DAY) is material  # two thirds of 90 days are 60
    later = renew_material(material, POLICY, NOW + 61 * DAY)
    assert later.serving != material.serving and later.authority == material.authority
    assert verifies(later.serving, material.bundle, NOW + 61 * DAY)


def test_other_names_make_a_new_serving_certificate() -> None:
    material = renew_material(None, POLICY, NOW)
    other = renew_material(material, replace(POLICY, names=("other.svc",)), NOW)
    assert other.authority == material.authority and other.serving != material.serving


def test_an_authority_is_rolled_over_in_three_steps_and_always_verifies() -> None:
    first = renew_material(None, POLICY, NOW)
    at = NOW + 250 * DAY  # the last third of 365 days begins after 243
    first = renew_material(first, POLICY, at - 10 * DAY)  # a serving certificate of those days
    second = renew_material(first, POLICY, at)
    assert second.following is not None and second.serving == first.serving
    assert renew_material(second, POLICY, at + 599) is second
    third = renew_material(second, POLICY, at + 601)
    assert third.authority == second.following and third.former == first.authority.certificate
    assert verifies(third.serving, second.bundle, at + 601), "callers that only know the bundle of the step before"
    assert verifies(second.serving, third.bundle, at + 601), (
        "replicas that still show the certificate of the step before"
    )
    assert renew_material(third, POLICY, at + 1200) is third
    fourth = renew_material(third, POLICY, at + 1202)
    assert fourth.former == b"" and fourth.serving == third.serving
    assert not verifies(first.serving, fourth.bundle, at + 1202)


def test_the_next_authority_does_not_sign_before_callers_trust_it() -> None:
    first = renew_material(None, POLICY, NOW)
    second = renew_material(first, POLICY, NOW + 250 * DAY)
    late = NOW + 251 * DAY
    assert renew_material(second, POLICY, late, trusted=first.bundle).authority == first.authority
    assert renew_material(second, POLICY, late, trusted=second.bundle).authority == second.following


def test_a_clock_that_jumps_past_everything_begins_anew() -> None:
    first = renew_material(None, POLICY, NOW)
    material = renew_material(first, POLICY, NOW + 4000 * DAY)
    assert material.authority != first.authority and verifies(material.serving, material.bundle, NOW + 4000 * DAY)


@given(st.lists(st.floats(0, 120), min_size=1, max_size=8))
@settings(max_examples=10, deadline=None)
def test_at_any_pace_of_looking_the_certificate_verifies(pauses_days: list[float]) -> None:
    material, at = None, NOW
    for pause in pauses_days:
        at += pause * DAY
        material = renew_material(material, POLICY, at)
        while (after := renew_material(material, POLICY, at)) is not material:
            material = after
        assert verifies(material.serving, material.bundle, at)


def test_a_replica_takes_what_a_faster_one_stored() -> None:
    store = SharedStore()
    shown: list[Pair] = []
    theirs = renew_material(None, POLICY, NOW)

    def overtaken() -> None:
        store.before_write = lambda: None
        store.write(theirs, str(store.version))

    store.before_write = overtaken
    CertificateController(store, POLICY, MovingClock(), shown.append, None).step()
    assert shown == [theirs.serving] and store.version == 1


def test_a_keeper_shows_a_certificate_once_and_the_next_when_it_is_due() -> None:
    clock = MovingClock()
    shown: list[Pair] = []
    keeper = CertificateController(SharedStore(), POLICY, clock, shown.append, None)
    keeper.step()
    keeper.step()
    assert len(shown) == 1
    clock.seconds += 61 * DAY
    keeper.step()
    assert len(shown) == 2


class SilentInjector(Injector):
    """Of a cluster that does not say whom it trusts, and takes nothing."""

    def __init__(self) -> None: ...

    def trusted(self) -> bytes | None:
        raise ClusterForbidden("webhook configurations may not be read")

    def inject(self, bundle: bytes) -> int:  # noqa: ARG002 - as its base
        raise ClusterForbidden("webhook configurations may not be written")


def test_while_nobody_says_whom_callers_trust_the_present_authority_goes_on_signing() -> None:
    clock, store = MovingClock(), SharedStore()
    shown: list[Pair] = []
    keeper = CertificateController(store, POLICY, clock, shown.append, SilentInjector())
    keeper.step()
    first = store.held
    assert first is not None and isinstance(keeper.error, ClusterForbidden)
    for _ in range(10):  # past the day from which the next authority waits to sign
        clock.seconds += 30 * DAY
        keeper.step()
    material = store.held
    assert material is not None and material.following is not None and material.authority == first.authority
    assert shown[-1] == material.serving != first.serving
    assert verifies(material.serving, first.bundle, clock.seconds)


def test_what_keeps_a_certificate_from_being_stored_is_known_afterwards(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keeper = CertificateController(
        FolderStore(tmp_path / "file" / "below"), POLICY, MovingClock(), lambda _: None, None
    )
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        keeper.step()
    assert isinstance(keeper.error, StoreError)


def test_a_folder_keeps_all_parts_for_us_alone(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "pki")
    first = renew_material(None, POLICY, NOW)
    rolling = renew_material(first, POLICY, NOW + 250 * DAY)
    for material in (first, rolling, renew_material(rolling, POLICY, NOW + 251 * DAY), first):
        store.write(material, "")
        assert store.read() == (material, "")
    assert {stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "pki").iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_a_damaged_folder_counts_as_empty(tmp_path: Path, name: str) -> None:
    store = FolderStore(tmp_path)
    store.write(renew_material(None, POLICY, NOW), "")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    assert store.read() == (None, "")


def test_files_of_somebody_else_are_shown_when_they_change(tmp_path: Path) -> None:
    shown: list[Pair] = []
    keeper = CertificateFileReloader(tmp_path, shown.append)
    with pytest.raises(UsageError, match=r"tls\.crt"):
        keeper.step()
    pairs = [renew_material(None, POLICY, NOW).serving for _ in range(2)]
    for pair in (pairs[0], pairs[0], pairs[1]):
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        keeper.step()
    assert shown == pairs
    (tmp_path / "tls.key").unlink()
    keeper.step()
    assert keeper.error is not None and shown == pairs
