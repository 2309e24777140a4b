"""Our reading of Kubernetes quantities against a real API server's, text by text.

Texts that we accept are asked together, as many containers of one pod (a dry run); the server must accept them all and
give the same values back. Texts that we refuse are asked one by one, because one of them refuses a whole pod. Beyond
the documented caps of length and exponent the server is not asked: it may take minutes there.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.quantity import EXPONENT_CAP, LARGEST, LENGTH_CAP, parse_bytes, parse_millicores
from tests.cluster.api import client_tls
from tests.cluster.control_plane import ControlPlane

Text = str | int | float
BATCH = 400
_PATH = "/api/v1/namespaces/default/pods?dryRun=All"
_SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENTS = ("e0", "E3", "e+2", "e-9", "e-10", "e-30", "e30", "e05")
_WRONG = ("e", "e+", "i", "K", "B", "mi", "KI", "Zi", "e3Ki", "nn", "e1.5")
_BLANKS = (" ", "  ", "\xa0", "\u2009", "\u3000", "\x1f", "\u200b", "\t", "\n")
_SERVER = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@dataclass(slots=True)
class Comparison:
    """How many texts were asked, and those that were read differently: (text, ours, the server's)."""

    accepted: int = 0
    refused: int = 0
    capped: int = 0
    slowest_refusal_seconds: float = 0.0
    different: list[tuple[Text, object, object]] = field(default_factory=list)


def texts(count: int, seed: int) -> list[Text]:
    """Quantities and near misses: signs, lost digits, points, all suffixes, blanks, foreign digits, JSON numbers."""
    rng = random.Random(seed)
    return [_text(rng) for _ in range(count)]


def compare(plane: ControlPlane, texts: Sequence[Text]) -> Comparison:
    """Ask the server about every text within the caps."""
    comparison, server = Comparison(), _Server(plane)
    accepted: list[tuple[Text, tuple[int, int]]] = []
    for text in texts:
        clock_start = time.perf_counter()
        ours = read(text)
        if ours is None:
            comparison.slowest_refusal_seconds = max(
                comparison.slowest_refusal_seconds, time.perf_counter() - clock_start
            )
        if beyond_caps(text):
            comparison.capped += 1
            if ours is not None:
                comparison.different.append((text, ours, "beyond our caps"))
        elif ours is None:
            comparison.refused += 1
            if (theirs := server.ask([text])) is not None:
                comparison.different.append((text, None, theirs[0]))
        else:
            accepted.append((text, ours))
    comparison.accepted = len(accepted)
    for start in range(0, len(accepted), BATCH):
        comparison.different.extend(_differences(server, accepted[start : start + BATCH]))
    return comparison


def read(text: Text) -> tuple[int, int] | None:
    """(bytes, millicores) by our reading; None when refused."""
    try:
        return parse_bytes(text), parse_millicores(text)
    except QuantityError:
        return None


def beyond_caps(text: Text) -> bool:
    """Whether it is longer, or its exponent larger, than what we read at all."""
    exponent = re.search(r"[eE]([+-]?[0-9]+)\s*$", str(text))
    return len(str(text)) > LENGTH_CAP or bool(exponent and abs(int(exponent[1])) > EXPONENT_CAP)


def _differences(server: _Server, batch: list[tuple[Text, tuple[int, int]]]) -> list[tuple[Text, object, object]]:
    """A batch with a refused text is halved until it is found."""
    theirs = server.ask([text for text, _ in batch])
    if theirs is None:
        if len(batch) == 1:
            return [(*batch[0], None)]
        half = len(batch) // 2
        return _differences(server, batch[:half]) + _differences(server, batch[half:])
    return [(text, ours, their) for (text, ours), their in zip(batch, theirs, strict=True) if ours != their]


class _Server:
    """Asks in UTF-8: the server's quantities see the raw text of the JSON, so that an escaped blank is none to them."""

    def __init__(self, plane: ControlPlane) -> None:
        pair = plane.authority.issue("quantities", "quantities", ["system:masters"])
        tls = client_tls(str(plane.authority.certificate), *map(str, pair))
        self._connection = http.client.HTTPSConnection(urlsplit(plane.server).netloc, context=tls, timeout=120)

    def ask(self, texts: Sequence[Text]) -> list[tuple[int, int]] | None:
        """(bytes, millicores) of each text; None when the server refuses the pod."""
        containers = [
            {"name": f"c{i}", "image": "x", "resources": {"requests": {"cpu": text, "memory": text}}}
            for i, text in enumerate(texts)
        ]
        pod = {"metadata": {"generateName": "quantities-"}, "spec": {"containers": containers}}
        body = json.dumps(pod, ensure_ascii=False).encode()
        self._connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        document: dict[str, Any] = json.loads(response.read())
        if response.status in (400, 422):
            return None
        assert response.status == 201, document
        requests = [container["resources"]["requests"] for container in document["spec"]["containers"]]
        return [(_value(r["memory"], 1), _value(r["cpu"], 1000)) for r in requests]


def _value(text: str, units: int) -> int:
    """The server's own text of a quantity as a whole number of units, rounded up; read by code of the test's own."""
    match = _SERVER.fullmatch(text)
    assert match, text
    number, suffix, exponent = match[1], match[2] or "", match[3]
    if suffix.endswith("i"):
        factor = Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    else:
        factor = Fraction(10) ** (int(exponent) if exponent else _POWERS.get(suffix, 0))
    return min(math.ceil(Fraction(number) * factor * units), LARGEST)


def _text(rng: random.Random) -> Text:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice([rng.randrange(10**6), rng.randrange(10**19), rng.uniform(0, 1e6), rng.random() * 1e-6, -1])
    if kind < 0.75:
        ending = rng.choice(_EXPONENTS) if rng.random() < 0.25 else rng.choice(_SUFFIXES)
        return _number(rng) + ending
    if kind < 0.8:
        return _blank(rng) + _number(rng) + rng.choice(_SUFFIXES) + _blank(rng)
    if kind < 0.9:
        return rng.choice(["", "+", "-", "--"]) + _number(rng) + rng.choice(_WRONG + _SUFFIXES)
    if kind < 0.92:
        return rng.choice(["1e999999", "1e-31", "e31", "0" * 100_000, "9" * 65, "1e999999999999"])
    return "".join(rng.choice("0123456789.+-eEkKMGTPinum _٣") for _ in range(rng.randint(0, 8)))


def _number(rng: random.Random) -> str:
    def digits() -> str:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 9, 18, 19, 25])))

    return rng.choice(["", "", "", "", "+", "-"]) + digits() + rng.choice(["", "", f".{digits()}"])


def _blank(rng: random.Random) -> str:
    return rng.choice(["", rng.choice(_BLANKS)])
