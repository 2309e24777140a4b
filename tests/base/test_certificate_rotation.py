"""Certificates are replaced while callers call, with real TLS: no call fails, and none is tried again."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from cotenant.admission.webhook_server.authority import Pair
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from tests.admission.bodies import pod
from tests.admission.serving import review_of
from tests.admission.serving import serving as webhook_serving
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.serving import client_tls
from tests.scheduler_ext.extender.serving import serving as extender_serving
from tests.support.rotation_load import STEPS_SECONDS, RollingAuthority, RotationLoad, replace_files

pytestmark = pytest.mark.server
CALLS, RATE = 240, 150.0


def test_the_webhooks_authority_rolls_over_under_load(tmp_path: Path) -> None:
    with webhook_serving() as running:
        authority = RollingAuthority(tmp_path, running.server.show)
        body = json.dumps(review_of("pods", pod())).encode()

        def connect() -> http.client.HTTPSConnection:
            return running.connect(authority.trusted)

        def ask(connection: http.client.HTTPConnection) -> None:
            connection.request("POST", "/mutate-pod", body)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["response"]["allowed"]) == (200, True)

        first = authority.trusted
        outcome = RotationLoad(connect, ask, CALLS, RATE).run(lambda _: authority.step(), len(STEPS_SECONDS))
        assert outcome.failures == []
        assert outcome.answered == CALLS and outcome.connections > CALLS / 4
        with pytest.raises(ssl.SSLCertVerificationError):
            running.connect(first).connect()


@pytest.mark.slow
def test_the_extenders_certificates_are_replaced_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written one after another, so that pairs that do not fit are read on the way."""
    monkeypatch.setattr("cotenant.scheduler_ext.extender.serve.server.RELOAD_SECONDS", 0.003)
    for name in ("first", "second"):
        issue(tmp_path / name, "https://127.0.0.1:1")
    folder = tmp_path / "shown"
    shutil.copytree(tmp_path / "first" / "server", folder)
    both = b"".join((tmp_path / name / "server" / "ca.crt").read_bytes() for name in ("first", "second"))
    for name in ("first", "second"):  # whoever is rolled over trusts both authorities meanwhile
        for side in ("server", "scheduler"):
            (tmp_path / name / side / "ca.crt").write_bytes(both)
    (folder / "ca.crt").write_bytes(both)
    callers = ["first"]

    def rotate(number: int) -> None:
        name = ("second", "first")[number % 2]
        replace_files(tmp_path / name / "server", folder)
        callers[0] = name

    with extender_serving(SnapshotFeed(), ExtenderSettings(certificate_folder=str(folder))) as running:

        def connect() -> http.client.HTTPConnection:
            return running.connect(client_tls(tmp_path / callers[0]))

        def ask(connection: http.client.HTTPConnection) -> None:
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            assert (response.status, b"passed" in response.read()) == (200, True)

        outcome = RotationLoad(connect, ask, CALLS, RATE).run(rotate, 4)
    assert outcome.failures == []
    assert outcome.answered == CALLS


def test_an_authority_that_left_the_file_is_trusted_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.scheduler_ext.extender.serve.server.RELOAD_SECONDS", 0.01)
    for name in ("first", "second"):
        issue(tmp_path / name, "https://127.0.0.1:1")
    folder = tmp_path / "first" / "server"
    former = client_tls(tmp_path / "first")
    former.load_verify_locations(tmp_path / "second" / "scheduler" / "ca.crt")
    with extender_serving(SnapshotFeed(), ExtenderSettings(certificate_folder=str(folder))) as running:
        assert _status(running.connect(former)) == 200
        replace_files(tmp_path / "second" / "server", folder)
        wait_for("the new pair is shown", lambda: _status(running.connect(client_tls(tmp_path / "second"))) == 200)
        wait_for("the former caller is refused", lambda: _status(running.connect(former)) == 0)
        certificate = x509.load_pem_x509_certificate((tmp_path / "second" / "server" / "tls.crt").read_bytes())
        metric = "cotenant_extender_certificate_expiry_timestamp_seconds"
        assert running.metrics.registry.get_sample_value(metric) == certificate.not_valid_after_utc.timestamp()


def test_a_pair_that_does_not_fit_leaves_the_present_certificate_in_force(tmp_path: Path) -> None:
    with webhook_serving() as running:
        other = RollingAuthority(tmp_path, lambda _: None)
        present = running.material.serving
        with pytest.raises(ValueError, match="cannot be used"):
            running.server.show(Pair((tmp_path / "tls.crt").read_bytes(), present.key))
        assert other.trusted not in running.material.bundle
        assert _status(running.connect()) == 200


def _status(connection: http.client.HTTPConnection) -> int:
    """Of a probe on a new connection; 0 when TLS refuses either side."""
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except (ssl.SSLError, ConnectionError):
        return 0
    finally:
        connection.close()
