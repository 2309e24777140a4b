"""An object on which the webhook stands still is answered unread by the next process; all others are judged."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.profile import Profile
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.base.kube import connect
from cotenant.base.kube.reflection import Item
from cotenant.base.process.in_hand import STILL_SECONDS
from cotenant.base.settings.sections import KubeSettings
from tests.admission.serving import review_of
from tests.cluster.waiting import wait_for

PROGRAM = """
import json, re, sys
import structlog
from cotenant.admission.profile import Profile
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.view import ClusterView
from cotenant.admission.webhook_server.app import WebhookApp
from cotenant.base.http.http_connection import Request
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.base.process.in_hand import keep_notes

class Demands(dict):  # a rule that is exponential in what one tenant wrote, in C that never lets go of the interpreter
    def get(self, namespace, default=None):
        return re.match("(a+)+b", "a" * 60) if namespace == "evil" else default

def pods_of_quota(name):
    return len(re.findall("(a+)+b", "a" * 60)) if name == "evil" else 0

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
keep_notes("test")
quotas = QuotaTree.of({("shop", name): QuotaNode(name, "shop") for name in ("evil", "good")})
view = ClusterView((Profile(name="all", labels={"told": "yes"}),), {"shop": {}}, quotas=quotas, demands=Demands())
app = WebhookApp(lambda: view, pods_of_quota, AdmissionSettings(), SystemClock(), Metrics("t", "3"))
for line in sys.stdin:
    path, body = json.loads(line)
    answer = app.answer(Request("POST", path, {}, json.dumps(body).encode(), last=False))
    print(json.dumps([answer.status, answer.body.decode()]), flush=True)
"""


def pod(namespace: str, number: int = 0, **labels: str) -> tuple[str, dict[str, Any]]:
    """A pod as a ReplicaSet asks for it again and again: the API server names its volume anew each time."""
    metadata = {"generateName": "web-", "namespace": namespace, "labels": labels}
    spec = {"containers": [{"name": "main", "image": "i"}], "volumes": [{"name": f"kube-api-access-{number:05}"}]}
    return "/mutate-pod", review_of("pods", {"metadata": metadata, "spec": spec}, uid=f"u-{number}")


def quota(name: str) -> tuple[str, dict[str, Any]]:
    return "/validate-quota", review_of(
        "elasticquotas", old={"metadata": {"name": name, "namespace": "shop"}}, operation="DELETE"
    )


class Webhook:
    """The program, and its answers."""

    def __init__(self, folder: Path) -> None:
        file = folder / "program.py"
        file.write_text(PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, str(file)],
            env={"TMPDIR": str(folder), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, request: tuple[str, dict[str, Any]]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def ask(self, request: tuple[str, dict[str, Any]]) -> tuple[int, str]:
        self.send(request)
        assert self.process.stdout is not None
        status, text = json.loads(self.process.stdout.readline())
        return status, text

    def kill(self) -> None:
        self.process.kill()  # as a kubelet does once /livez is silent
        self.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("evil", "good"), [(pod("evil"), pod("shop")), (quota("evil"), quota("good"))])
def test_the_next_process_answers_without_judging_what_the_last_one_stood_still_on(
    evil: tuple[str, Any], good: tuple[str, Any], tmp_path: Path
) -> None:
    first = Webhook(tmp_path)
    try:
        assert first.ask(good)[0] == 200
        first.send(evil)
        (notes,) = tmp_path.glob("cotenant-test-*")
        wait_for("the timer that needs no interpreter", lambda: (notes / "still").stat().st_size > 0)
    finally:
        first.kill()
    second = Webhook(tmp_path)
    try:
        again = pod("evil", 1) if evil[0] == "/mutate-pod" else evil
        status, text = second.ask(again)
        assert f"hung for {STILL_SECONDS:.0f} s" in text
        # a pod passes with a warning, a deleted quota is refused
        assert status == (200 if evil[0] == "/mutate-pod" else 500)
        assert second.ask(good)[0] == 200
        if status == 200:
            assert json.loads(text)["response"]["allowed"] and "patch" not in text
            second.send(pod("evil", 2, changed="yes"))  # it differs, so it is judged, and the program stands still anew
            threading.Event().wait(1)
            assert second.process.poll() is None
    finally:
        second.kill()


def test_one_object_on_which_the_view_fails_is_missing_from_it_and_all_others_are_there(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    state = WebhookMirrors(connect(KubeSettings(kubeconfig=str(file))))  # of which nothing is asked
    names: dict[str, Any] = {"a": "a", "b": "b", "bad": 7}  # names are sorted, and a number is no name
    items = {("", key): Item("u", "1", Profile(name=name)) for key, name in names.items()}
    state.mirrors["profiles"]._state.replace(items)
    assert [profile.name for profile in state.view().profiles] == ["a", "b"]
    assert state.view() is state.view()  # it is not searched for again
