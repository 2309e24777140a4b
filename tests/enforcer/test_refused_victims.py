"""A victim whose eviction the API server refuses: the next one is asked for at once, whatever the refusal and the task.

The answers come over HTTP from a server that says what a real one says, because most of these refusals cannot be had
from a real one at will; `test_agent_on_cluster` has a real one with real budgets.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.apply.eviction_worker import Evictor
from cotenant.enforcer.apply.pod_evictions import PodEvictions
from cotenant.enforcer.contract import CpuUse, Evict, KubeQos, MemoryUse, Observation, PodReading
from cotenant.enforcer.decide.evictions import AGAIN_SECONDS, LONGEST_REST_SECONDS, RefusedPod, after_refusal
from cotenant.enforcer.decide.loop import Ages, Memory, decide
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.settings import BestEffortSettings, EnforcerSettings
from cotenant.enforcer.strategies.baseline import BASELINE_ANNOTATION
from cotenant.enforcer.strategies.best_effort import BestEffort
from tests.cluster.waiting import wait_for
from tests.enforcer.readings import GIB, container, node, observation_of, pod, policy
from tests.enforcer.test_best_effort import job, web


def status(code: int, message: str, reason: str = "", causes: Sequence[str] = ()) -> dict[str, Any]:
    details = {"causes": [{"reason": cause, "message": "The budget needs 1 healthy pods"} for cause in causes]}
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason,
            "details": details}  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """An answer to POST .../eviction."""

    code: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
REFUSALS = {
    "budget": Refusal(429, status(429, BUDGET, "TooManyRequests", ["DisruptionBudget"])),
    "budget that is counted just now": Refusal(
        429, status(429, BUDGET, "TooManyRequests", ["DisruptionBudget"]), (("Retry-After", "10"),)
    ),
    "busy": Refusal(429, status(429, "too many requests", "TooManyRequests"), (("Retry-After", "1"),)),
    "two budgets": Refusal(
        500,
        status(500, TWO_BUDGETS),
    ),
    "a webhook forbids it": Refusal(
        403, status(403, 'admission webhook "keep.it" denied the request: no', "Forbidden")
    ),
    "no right": Refusal(403, status(403, 'pods "a" is forbidden: User "x" cannot create', "Forbidden")),
    "conflict": Refusal(409, status(409, "Operation cannot be fulfilled on pods", "Conflict")),
    "invalid": Refusal(422, status(422, "Pod is invalid", "Invalid")),
    "bad": Refusal(400, status(400, "bad", "BadRequest")),
    "a webhook is away": Refusal(
        500, status(500, "failed calling webhook: context deadline exceeded", "InternalError")
    ),
    "unavailable": Refusal(503, status(503, "apiserver is shutting down", "ServiceUnavailable")),
    "no status": Refusal(502, {}),
}


@dataclass
class Answers:
    """What the server says by pod; permitted without one. evicted: pods in the order of the requests."""

    refusals: dict[str, Refusal]
    evicted: list[str] = field(default_factory=list)


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """The address of a server that says so."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {}, ())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            name = self.path.split("/pods/")[1].split("/")[0]
            answers.evicted.append(name)
            refusal = answers.refusals.get(name, Refusal(201, {"kind": "Status", "status": "Success", "metadata": {}}))
            self._send(refusal.code, refusal.body, refusal.headers)

        def _send(self, code: int, body: dict[str, Any], headers: Sequence[tuple[str, str]]) -> None:
            text = json.dumps(body).encode()
            self.send_response(code)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(text))), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Agent:
    """A node's decisions and evictions, tick by tick of one second; every request is answered before the next tick."""

    answers: Answers
    server: str
    policy: NodePolicy
    settings: BestEffortSettings = field(default_factory=BestEffortSettings)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def tell(eviction: Evict, outcome: str, *_: object) -> None:
            self.outcomes.append((eviction.name, outcome))

        client = KubeClient(Access("test", self.server, lambda: None), KubeSettings(retries=0))
        self.evictions = PodEvictions(EnforcerSettings(dry_run=False), tell, Evictor(client))
        self.evictions.start()
        self.memory, self.strategies = Memory(), (BestEffort(self.settings),)

    def tick(self, moment: Observation) -> list[str]:
        """Pods that are asked to leave in this tick."""
        before = len(self.answers.evicted)
        observation = replace(moment, eviction_refusals=self.evictions.refusals(moment))
        decided, self.memory = decide(observation, self.policy, self.memory, self.strategies, Ages())
        self.verdicts = [verdict.message for verdict in decided.verdicts if verdict.reason == "NobodyToEvict"]
        put = len(self.outcomes)
        self.evictions.step(decided, observation)
        sent = [e for e in decided.evictions if self.evictions._admission.by_uid.get(e.uid) == moment.at_seconds]
        assert self.evictions.evictor is not None
        wait_for("the answers", lambda: self.evictions.evictor._answers.qsize() + len(self.outcomes) - put >= len(sent))  # type: ignore[union-attr]
        return self.answers.evicted[before:]


def full(*pods: PodReading, at: float) -> Observation:
    """87 % of 8 GiB is used: more than the 70 % that are allowed, and no emergency."""
    return observation_of(*pods, machine=replace(node(10, 1000.0), memory_available_bytes=GIB), at=at)


def batch(name: str, **others: Any) -> PodReading:
    fields: dict[str, Any] = {"qos": QosClass.BE, "kube": KubeQos.BEST_EFFORT, **others}
    return pod(name, container(), cpu=CpuUse(10.0), memory=MemoryUse(2 * GIB, 2 * GIB), **fields)


MEMORY = policy({"resourceUsedThresholdWithBE": {"enable": True}})
"""Down to 68 %, the threshold of 70 less 2: (87 - 68) % of 8 GiB = 1.52 GiB, one of the pods of 2 GiB."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSALS)
def test_however_a_memory_eviction_is_refused_the_next_victim_is_asked_in_the_next_tick(kind: str) -> None:
    jobs = [batch(name) for name in "abcdefgh"]
    # the order is by priority, memory, then the name descending: h first
    answers = Answers(dict.fromkeys("hgfedc", REFUSALS[kind]))
    with serving(answers) as server:
        agent = Agent(answers, server, MEMORY)
        all_texts = [agent.tick(full(*jobs, at=float(second))) for second in range(8)]
        # one refusal a tick; a burst of three and six a minute would have stopped at the fourth, were refusals counted
        assert all_texts == [["h"], ["g"], ["f"], ["e"], ["d"], ["c"], ["b"], []]
        # b leaves: its 2 GiB cover the 1.52 GiB, and nobody else is asked
        quiet = [agent.tick(full(*jobs, at=float(second))) for second in range(8, 30)]
        assert quiet == [[]] * 22
        agent.evictions.stop()
    assert Counter(outcome for _, outcome in agent.outcomes) == {"refused": 6, "asked": 1}


def test_a_refused_pod_is_asked_again_after_a_rest_that_doubles_and_never_counts_as_leaving() -> None:
    answers = Answers({"a": REFUSALS["budget"]})
    with serving(answers) as server:
        agent = Agent(answers, server, MEMORY)
        at = [second for second in range(400) if agent.tick(full(batch("a"), at=float(second)))]
        # refusals are known a tick later: rest 30, 60, 120 s from then on
        assert at == [0, 31, 92, 213]
        assert "refused: 1 eviction, that of default/a because" in agent.verdicts[0]
        assert BUDGET in agent.verdicts[0]
        answers.refusals.clear()
        later = [second for second in range(400, 520) if agent.tick(full(batch("a"), at=float(second)))]
        assert later[0] == 213 + 1 + 240
        agent.evictions.stop()


def test_a_pod_of_a_higher_order_gets_its_turn_again_before_the_ones_after_it() -> None:
    answers = Answers({"b": REFUSALS["two budgets"]})
    with serving(answers) as server:
        agent = Agent(answers, server, MEMORY)
        assert agent.tick(full(batch("a"), batch("b"), at=0.0)) == ["b"]
        assert agent.tick(full(batch("a"), batch("b"), at=1.0)) == ["a"]
        answers.refusals.clear()
        # a has gone, another pod came; b has rested
        assert agent.tick(full(batch("0"), batch("b"), at=1.0 + AGAIN_SECONDS + 1)) == ["b"]
        agent.evictions.stop()


def test_the_cool_down_begins_with_who_leaves_and_not_with_who_is_refused() -> None:
    jobs = [batch(name) for name in "abcd"]
    answers = Answers({"d": REFUSALS["budget"]})
    with serving(answers) as server:
        agent = Agent(answers, server, MEMORY)
        assert [agent.tick(full(*jobs, at=t)) for t in (0.0, 1.0)] == [["d"], ["c"]]
        rest = [batch(name) for name in "abd"]  # c has gone, the need has not
        # memory_cooldown_seconds is 4: from c's eviction at 1 on
        all_texts = [agent.tick(full(*rest, at=t)) for t in (2.0, 3.0, 4.0, 5.0)]
        assert all_texts == [[], [], [], ["b"]]
        agent.evictions.stop()


SATISFACTION = policy(
    {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "cpuSuppressThresholdPercent": 99,
            "cpuEvictBESatisfactionLowerPercent": 40,
            "cpuEvictBESatisfactionUpperPercent": 60,
        }
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["budget", "two budgets", "a webhook forbids it", "conflict"])
def test_a_refused_eviction_for_best_effort_s_satisfaction_goes_to_the_next(kind: str) -> None:
    # left 1000 of 10000: 4500 * 60 % - 1000 = 1700 m of requests shall leave, one of 1500 and one more
    jobs = [job("a", 300.0, 1500), job("b", 400.0, 1500), job("c", 300.0, 1500)]
    answers = Answers({"b": REFUSALS[kind]})
    with serving(answers) as server:
        agent = Agent(answers, server, SATISFACTION)

        def tick(at: float) -> list[str]:
            return agent.tick(
                observation_of(
                    web(9000.0), *jobs, machine=replace(node(10, 10_000.0), memory_available_bytes=6 * GIB), at=at
                )
            )

        # the heaviest user of its request first
        assert tick(0.0) == ["b", "a"]
        # a's cool-down for CPU holds (20 s): b frees nothing, c comes after it
        assert [tick(at) for at in (1.0, 19.0)] == [[], []]
        assert tick(20.0) == ["c"]
        agent.evictions.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["budget", "two budgets", "a webhook forbids it", "busy"])
def test_a_refused_eviction_of_opted_in_pods_goes_to_the_next(kind: str) -> None:
    rules = policy(
        {
            "resourceUsedThresholdWithBE": {
                "enable": True,
                "memoryEvictThresholdPercent": 70,
                "evictEnabledPriorityThreshold": 7999,
            }
        }
    )
    mid = {"priority_class": PriorityClass.MID, "qos": QosClass.LS, "kube": KubeQos.BURSTABLE,
           "labels": {"koordinator.sh/eviction-enabled": "true"}}  # fmt: skip
    pods = [batch("first", priority=7000, **mid), batch("second", priority=7001, **mid)]
    answers = Answers({"first": REFUSALS[kind]})
    with serving(answers) as server:
        agent = Agent(answers, server, rules)
        assert [agent.tick(full(*pods, at=at)) for at in (0.0, 1.0)] == [["first"], ["second"]]
        agent.evictions.stop()


def test_an_antagonist_that_may_not_leave_gives_its_turn_to_the_next_with_the_same_evidence() -> None:
    settings = BestEffortSettings(interference_samples=10, interference_patience_seconds=5.0)
    answers = Answers({"a": REFUSALS["two budgets"]})

    def world(at: float, wait: float, *uses: float) -> Observation:
        victim = web(1000.0, wait)
        victim = replace(victim, spec=replace(victim.spec, annotations={BASELINE_ANNOTATION: '{"cpu-wait": 1}'}))
        jobs = [job(name, use, memory=1) for name, use in zip("abc", uses, strict=True)]
        machine = replace(node(10, 1000.0 + sum(uses)), memory_available_bytes=6 * GIB)
        return observation_of(victim, *jobs, machine=machine, at=at)

    with serving(answers) as server:
        agent = Agent(answers, server, policy({"resourceUsedThresholdWithBE": {"enable": True}}), settings)
        all_texts = [agent.tick(world(float(at), 1.0, 0.0, 0.0, 300.0)) for at in range(20)]
        # a and b begin when the victim begins to suffer; c always ran, and nothing speaks against it
        all_texts += [agent.tick(world(20.0 + at, 40.0, 2000.0, 1500.0, 300.0)) for at in range(20)]
        agent.evictions.stop()
    assert [names for names in all_texts if names] == [["a"], ["b"]]
    first = all_texts.index(["a"])
    assert all_texts.index(["b"]) == first + 1


def test_who_is_never_asked_by_us_does_not_stop_the_others() -> None:
    own = batch("z", priority=-1)
    own = replace(own, spec=replace(own.spec, namespace="cotenant"))
    answers = Answers({})
    with serving(answers) as server:
        agent = Agent(answers, server, MEMORY)
        # z comes first by its priority and is our own: the decision learns of it, and takes a
        assert [agent.tick(full(batch("a"), own, at=at)) for at in (0.0, 1.0)] == [[], ["a"]]
        agent.evictions.stop()


@given(
    answers=st.lists(st.tuples(st.floats(0, 1000), st.booleans(), st.floats(0, 1e6)), min_size=1, max_size=40),
)
def test_a_rest_is_never_shorter_than_a_repeat_nor_longer_than_five_minutes(
    answers: list[tuple[float, bool, float]],
) -> None:
    at, before = 0.0, None
    for passed, answered, retry_after in answers:
        at += passed
        after = after_refusal(before, "why", at, answered=answered, retry_after_seconds=retry_after)
        rest = after.until_seconds - at
        assert AGAIN_SECONDS - 1e-6 <= rest <= LONGEST_REST_SECONDS + 1e-6
        assert rest >= min(retry_after, LONGEST_REST_SECONDS) - 1e-6
        if before is not None and answered:
            assert after.times == before.times + 1
        before = after
    assert isinstance(before, RefusedPod)
