"""100,000 fuzzed AdmissionReviews, some of them over HTTPS, and pods whose patches a real API server has to accept.

.venv/bin/python -m bench.admission.webhook_fuzz [--reviews 100000] [--https 5000] [--pods 3000] [--seed 1]
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonpatch

from bench.admission.webhook_reviews import pod, profile_spec, review, view
from bench.record import Row, below, record
from cotenant.admission.review import ReviewContext, answer
from cotenant.admission.webhook_server.service import WebhookService
from tests.admission.serving import Serving, serving
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
OURS = re.compile(r"admission webhook .* denied the request")


def usable(body: bytes, status: int, response_body: bytes) -> str:
    """What is wrong with an answer, or ""."""
    if status == 400:
        return "" if response_body.strip() else "400 without words"
    if status != 200:
        return f"status {status}"
    request, response = json.loads(body)["request"], json.loads(response_body)["response"]
    if response["uid"] != request["uid"]:
        return "another uid"
    if "patch" in response:
        jsonpatch.apply_patch(request["object"], json.loads(base64.b64decode(response["patch"])))
    return ""


def in_process(count: int, seed: int) -> tuple[Counter[str], Counter[str], float]:
    """(outcomes by status and webhook, what went wrong, seconds of processor) of the function behind the server."""
    outcomes: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    spent = 0.0
    place = ("koordinator-system", "slo-controller-config")
    cluster = view(random.Random(seed))
    for number in range(count):
        draw = random.Random(seed * 10**9 + number)
        if number % 20 == 0:
            cluster = view(draw)
        path, body = review(draw)
        began = time.process_time()
        try:
            response = answer(
                path,
                body,
                ReviewContext(cluster, 1e9, record_key=b"k", config_place=place),
            )
            spent += time.process_time() - began
            trouble = usable(body, response.status, response.body)
            outcomes[f"{path} {response.status}"] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer was not usable
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            wrong[trouble[:120]] += 1
    return outcomes, wrong, spent


def over_https(count: int, seed: int) -> tuple[Counter[str], Counter[str], float]:
    """(outcomes by status and webhook, what went wrong, seconds)."""
    outcomes: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    began = time.perf_counter()
    with serving() as server:
        connection = server.connect()
        for number in range(count):
            draw = random.Random(seed * 10**9 + number)
            if number % 50 == 0:
                server.view = view(draw)
            connection, status, response_body, path, body = post_review(server, connection, draw)
            outcomes[f"{path} {status}"] += 1
            try:
                trouble = usable(body, status, response_body)
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer was not usable
                trouble = f"{type(error).__name__}: {error}"
            if trouble:
                wrong[trouble[:120]] += 1
    return outcomes, wrong, time.perf_counter() - began


def post_review(
    server: Serving, connection: http.client.HTTPSConnection, draw: random.Random
) -> tuple[http.client.HTTPSConnection, int, bytes, str, bytes]:
    """One call over a kept connection, or over a new one when that was closed."""
    path, body = review(draw)
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        return connection, response.status, response.read(), path, body
    except (OSError, http.client.HTTPException):
        connection.close()
        return server.connect(), 0, b"", path, body


def created(api: Api, namespace: str, body: dict[str, Any]) -> str:
    """ "accepted", "by us" when our own webhook refused it, else the server's words."""
    try:
        body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        api.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
    except ApiError as error:
        return "by us" if OURS.search(str(error)) else str(error)
    return "accepted"


def knows_profiles(service: WebhookService, names: list[str]) -> bool:
    return {profile.name for profile in service.state.view().profiles} >= set(names)


def on_a_server(pods: int, seed: int) -> tuple[Counter[str], list[str]]:
    """(outcomes, refusals by the API server of pods that it accepts where we are not asked)."""
    outcomes: Counter[str] = Counter()
    refused: list[str] = []
    options = Options(components=frozenset({"kube-controller-manager"}))
    with ControlPlane(Path(tempfile.mkdtemp(prefix="webhook-fuzz-")), options) as plane, running(plane) as service:
        api = plane.api()
        namespace = create_namespace(api, "fuzzed")
        draw = random.Random(seed)
        for _ in range(max(1, pods // 100)):
            names = list(profiles(api, namespace, draw))
            wait_for("profiles are known", partial(knows_profiles, service, names))
            for _ in range(min(pods, 100)):
                body = pod(draw, odd=0.03)
                before, after = created(api, "kube-system", body), created(api, namespace, body)
                kind = after if after in ("accepted", "by us") else "refused by the server"
                outcomes[kind] += 1
                if before == "accepted" and kind == "refused by the server":
                    refused.append(after)
            for name in names:
                api.delete(f"{PROFILES}/{name}")
            wait_for("profiles are gone", lambda: not service.state.view().profiles)
    return outcomes, refused


def profiles(api: Api, namespace: str, draw: random.Random) -> Iterator[str]:
    """Up to five random profiles for the namespace; those that the CRD refuses do not count."""
    for number in range(draw.randrange(1, 6)):
        name = f"p{number}"
        here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        body = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": name},
            "spec": {**profile_spec(draw), "namespaceSelector": here},
        }
        try:
            api.create(PROFILES, body)
        except ApiError:
            continue
        yield name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reviews", type=int, default=100_000)
    parser.add_argument("--https", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcomes, wrong, seconds = in_process(options.reviews, options.seed)
    print(dict(outcomes), dict(wrong))
    sent, lost, _ = over_https(options.https, options.seed + 1)
    print(dict(sent), dict(lost))
    on_server, refused = on_a_server(options.pods, options.seed)
    print(dict(on_server), refused[:5])
    answered = sum(count for key, count in outcomes.items() if key.endswith("200"))
    record(
        "webhook_fuzz",
        " ".join([".venv/bin/python -m bench.admission.webhook_fuzz", *sys.argv[1:]]),
        [
            Row("fuzzed reviews", sum(outcomes.values()), "reviews", note=f"seed {options.seed}"),
            Row("of them answered as reviews", answered, "reviews", note="the others 400 with words"),
            below("fuzzed webhook calls: crash, wrong uid or unusable patch", sum(wrong.values()), "answers", 0),
            Row("processor time per review", round(1e6 * seconds / options.reviews), "us", note="without HTTP"),
            Row("fuzzed reviews over HTTPS", sum(sent.values()), "reviews"),
            below("of them without a usable answer", sum(lost.values()), "answers", 0),
            Row("pods tried on a real API server", sum(on_server.values()), "pods", note="dry run, random profiles"),
            Row("of them accepted", on_server["accepted"], "pods"),
            Row(
                "of them refused by our rules",
                on_server["by us"],
                "pods",
                note="after the server had validated the patched pod",
            ),
            below("pods that only our patch made invalid", len(refused), "pods", 0),
        ],
    )


if __name__ == "__main__":
    main()
