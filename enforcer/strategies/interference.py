"""Interference: which pods suffer from which best-effort pods, and the response: suppress first, then evict.

Victim: a pod outside best effort one of whose signals (`baseline`) stays above INTERFERENCE_FACTOR times its own
baseline for interference_confirm_seconds. Baselines are learned while best effort uses next to nothing; a workload
without one is never called a victim, and one that its own CPU limit throttles suffers from itself.

Antagonist: the BE pod whose CPU usage correlates with the suffering. With u_i the share of the pod's usage in the
window that fell into tick i, v_i the victim's signal and c its bound:

    correlation = sum_i u_i * (1 - c / v_i  if v_i > c else  v_i / c - 1),   in [-1, 1];  suspect from 0.35 on

The antagonist is the suspect that used most in the window, at least a tenth of best effort's usage: a correlation says
nothing about the amount. While best effort uses next to nothing, no pod is said to suffer from it.

Source: X. Zhang et al., CPI2: CPU performance isolation for shared compute clusters, EuroSys 2013, section 4.2.

There are three steps, each for interference_patience_seconds: best effort is limited to half its usage, then to a
quarter; if the victim still suffers, its antagonist is evicted. If there is no antagonist, or its eviction had no
effect, anything more would be a guess: the limit is lifted, and this victim is ignored for GIVE_UP_SECONDS. When the
victim has recovered, best effort gets its CPU back step by step. Only one victim is handled at a time, the one that
suffers most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import Observation, PodReading, Verdict
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.baseline import (
    LEAST,
    Baseline,
    InterferenceSignal,
    annotated_baselines,
    measured_signals,
    workload,
)
from cotenant.enforcer.strategies.eviction.victims import refused_uids
from cotenant.enforcer.strategies.suppression.suppress_target import demand, suppressible

INTERFERENCE_FACTOR: Final = 2.0
"""Factor on its baseline above which a pod suffers. Twice the baseline is beyond its usual spread."""
INTERFERENCE_QUIET_PERCENT: Final = 5
"""Baselines are learned while best effort uses no more of the node than this. Below five percent of the node best
effort cannot be what a pod suffers from."""

WINDOW_TICKS: Final = 30
READ_EVERY_TICKS: Final = 10
"""Largest age of a cgroup's pressure and waiting times, in ticks."""
CORRELATION: Final = 0.35
LEAST_SHARE: Final = 0.1
"""Least share of best effort's usage in the window that an antagonist has."""
STEPS: Final = 2
"""Number of suppression steps before an eviction; each halves best effort's usage."""
GIVE_UP_SECONDS: Final = 300.0
YOUNG_SECONDS: Final = 60.0
"""Age below which a pod's signals do not count, because it is still starting."""
MOST_BASELINES: Final = 4000


@dataclass(frozen=True, slots=True)
class Case:
    """The victim for which best effort is suppressed; `level` is how often best effort's usage was halved for it."""

    victim: str
    """The victim's uid."""
    signal: InterferenceSignal
    level: int
    base_millicores: int
    """Best effort's usage when the case began."""
    antagonist: str = ""
    """The antagonist's uid; "" if no pod is suspect."""
    correlation: float = 0.0
    others: tuple[tuple[str, float], ...] = ()
    """(uid, correlation) of the further pods with as much evidence, the heaviest user first; they are evicted in place
    of the antagonist while its eviction is refused."""
    step_seconds: float = 0.0
    """Seconds since the last step."""
    calm_seconds: float = 0.0
    evicting: bool = False


@dataclass(frozen=True, slots=True)
class InterferenceState:
    """The baselines, the signals and usage of the last ticks, for how long pods have suffered, and the open case."""

    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    windows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    uses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """CPU of each BE pod in the last ticks, by uid."""
    suffering: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which each pod and signal has suffered."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the time in `suffering` in which best effort ran."""
    given_up: Mapping[str, float] = field(default_factory=dict)
    """Monotonic time until which a victim is ignored."""
    case: Case | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """The consequences of interference for other strategies: a cap on best effort, and a pod to evict and why."""

    cap_millicores: int | None = None
    antagonist: str = ""
    """Uid of the pod to evict; "" for none."""
    why: str = ""
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Suffering:
    """A pod that suffers in this tick: the signal, its value, its bound, and its normal value."""

    pod: PodReading
    signal: InterferenceSignal
    value: float
    bound: float
    normal: float

    @property
    def key(self) -> str:
        """The key of this pod and signal in the state's maps."""
        return f"{self.pod.spec.uid}|{self.signal}"

    @property
    def sentence(self) -> str:
        """The measured and the normal value as a sentence."""
        unit = "" if self.signal is InterferenceSignal.CYCLES else " %"
        return f"{self.signal} {self.value:.3g}{unit}, {self.normal:.3g}{unit} when best effort is idle"


def detect(
    observation: Observation, state: InterferenceState, settings: BestEffortSettings
) -> tuple[Findings, InterferenceState]:
    """Return the findings of this tick and the next state; quiet ticks without an open case update the baselines."""
    use = demand(observation)
    if settings.interference == "off" or use is None:
        return Findings(), state if settings.interference != "off" else InterferenceState()
    signals = {p.spec.uid: measured_signals(p, observation.elapsed_seconds) for p in _possible_victims(observation)}
    suffering = tuple(_find_suffering(observation, signals, state, settings))
    lasting = {s.key: state.suffering.get(s.key, 0.0) + observation.elapsed_seconds for s in suffering}
    still = use.best_effort * 100 <= use.capacity * INTERFERENCE_QUIET_PERCENT
    ran_seconds = 0.0 if still else observation.elapsed_seconds
    learns = still and state.case is None
    windows = {}
    for key, value in ((f"{uid}|{s}", v) for uid, each in signals.items() for s, v in each.items()):
        # Pressure and waiting are read in turn and are means of the time since, so a new value also replaces repeats of
        # the one before: the ticks between an antagonist's start and the next reading would count in its favor.
        window, repeats = state.windows.get(key, ())[-WINDOW_TICKS + 1 :], 0
        if window and not isclose(value, window[-1]):
            last = window[-READ_EVERY_TICKS:]
            repeats = next((i for i, v in enumerate(reversed(last)) if not isclose(v, window[-1])), len(last)) - 1
        windows[key] = (*window[: len(window) - repeats], *(value,) * (repeats + 1))
    uses = {}
    for pod in _best_effort(observation):
        now = max(pod.group.cpu.millicores or 0.0, 0.0) if pod.group is not None else 0.0
        uses[pod.spec.uid] = (*state.uses.get(pod.spec.uid, ())[-WINDOW_TICKS + 1 :], now)
    after = replace(
        state,
        baselines=_learn_baselines(observation, signals, state.baselines) if learns else state.baselines,
        windows=windows,
        uses=uses,
        suffering=lasting,
        beside={key: state.beside.get(key, 0.0) + ran_seconds for key in lasting},
        given_up={k: until for k, until in state.given_up.items() if until > observation.at_seconds},
    )
    confirmed = [s for s in suffering if lasting[s.key] >= settings.interference_confirm_seconds]
    return _continue_or_open(observation, after, confirmed, 0 if still else use.best_effort, settings)


def correlation(use: Iterable[float], signal: Iterable[float], bound: float) -> float:
    """Return the correlation of a pod's usage (never negative) with suffering, -1..1; 0 without any usage."""
    pairs = list(zip(use, signal, strict=True))
    total = sum(u for u, _ in pairs)
    if total <= 0 or bound <= 0:
        return 0.0
    return sum(u / total * (1 - bound / v if v > bound else v / bound - 1) for u, v in pairs)


def _possible_victims(observation: Observation) -> Iterator[PodReading]:
    for pod in observation.pods:
        spec = pod.spec
        if spec.phase == "Running" and not spec.deleting and not suppressible(spec):
            yield pod


def _best_effort(observation: Observation) -> Iterator[PodReading]:
    return (p for p in observation.pods if p.spec.qos_class is QosClass.BE and p.spec.phase == "Running")


def _learn_baselines(
    observation: Observation, signals: Mapping[str, Mapping[InterferenceSignal, float]], before: Mapping[str, Baseline]
) -> Mapping[str, Baseline]:
    """Return baselines with this tick's signals, by "workload|signal", without young pods; the oldest are dropped."""
    baselines = dict(before)
    for pod in _possible_victims(observation):
        if observation.wall_seconds - pod.spec.created_seconds < YOUNG_SECONDS:
            continue
        for signal, value in signals[pod.spec.uid].items():
            key = f"{workload(pod.spec)}|{signal}"
            baselines[key] = baselines.get(key, Baseline()).add(value, observation.at_seconds)
    if len(baselines) <= MOST_BASELINES:
        return baselines
    newest = sorted(baselines, key=lambda key: baselines[key].at_seconds, reverse=True)[:MOST_BASELINES]
    return {key: baselines[key] for key in newest}


def _find_suffering(
    observation: Observation,
    signals: Mapping[str, Mapping[InterferenceSignal, float]],
    state: InterferenceState,
    settings: BestEffortSettings,
) -> Iterator[Suffering]:
    """Yield signals above max(LEAST, INTERFERENCE_FACTOR x baseline); pods without a baseline are skipped."""
    for pod in _possible_victims(observation):
        for signal, value in signals[pod.spec.uid].items():
            if value <= LEAST[signal]:
                continue
            normal = annotated_baselines(pod.spec).get(signal)
            if normal is None:
                baseline = state.baselines.get(f"{workload(pod.spec)}|{signal}")
                if baseline is None or baseline.samples < settings.interference_samples:
                    continue
                normal = baseline.level()
            bound = max(LEAST[signal], INTERFERENCE_FACTOR * normal)
            if value > bound:
                yield Suffering(pod, signal, value, bound, normal)


def _continue_or_open(
    observation: Observation,
    state: InterferenceState,
    confirmed: list[Suffering],
    best_effort: int,  # 0 = next to nothing
    settings: BestEffortSettings,
) -> tuple[Findings, InterferenceState]:
    """Continue the open case while its victim runs, or open one for the pod that suffers most beside best effort."""
    acts = settings.interference != "observe"
    if not acts or (state.case is not None and not _is_pod_running(observation, state.case.victim)):
        state = replace(state, case=None)
    if state.case is not None:
        state = _advance_case(observation, state, state.case, settings)
    elif acts and best_effort > 0:
        beside = [s for s in confirmed if state.beside[s.key] >= settings.interference_confirm_seconds]
        open_ones = (s for s in beside if s.key not in state.given_up)
        worst = max(open_ones, key=lambda s: (s.value / s.bound, s.key), default=None)
        if worst is not None:
            # The evidence of before any action, which our own actions would distort later.
            (uid, value), *others = _suspects(observation, state, worst) or [("", 0.0)]
            case = Case(worst.pod.spec.uid, worst.signal, 1, best_effort, uid, value, tuple(others))
            state = replace(state, case=case)
    names, current = {p.spec.uid: p.spec.key for p in observation.pods}, state.case
    verdicts = []
    for suffering in confirmed:
        subject = suffering.pod.spec.key
        if current and (current.victim, current.signal) == (suffering.pod.spec.uid, suffering.signal):
            who = "no best-effort pod's usage correlates with this"
            if current.antagonist in names:
                who = f"the usage of {names[current.antagonist]} correlates with this (r = {current.correlation:.2f})"
            done = f"best effort is limited to {current.base_millicores >> current.level} m"
            verdicts.append(Verdict(subject, "Interference", f"{suffering.sentence}; {who}; {done}", warning=True))
        elif suffering.key in state.given_up:
            text = f"{suffering.sentence}; suppressing best effort did not help, no best-effort pod's usage correlates"
            verdicts.append(Verdict(subject, "NotBestEffort", text))
        else:
            idle = "" if best_effort else "; best effort uses almost no CPU"
            verdicts.append(Verdict(subject, "Suffers", f"{suffering.sentence}{idle}", warning=True))
    return _findings(observation, state, tuple(verdicts)), state


def _suspects(observation: Observation, state: InterferenceState, suffering: Suffering) -> list[tuple[str, float]]:
    """Return uid and correlation of each pod that correlates and uses enough CPU, the heaviest user first."""
    signal = state.windows[suffering.key]
    suspects: list[tuple[float, str, float]] = []
    everything = 0.0
    for pod in _best_effort(observation):
        # The ticks of the signal; a pod used nothing before it was there.
        use = state.uses[pod.spec.uid][-len(signal) :]
        use = (0.0,) * (len(signal) - len(use)) + use
        everything += sum(use)
        value = correlation(use, signal, suffering.bound)
        if value >= CORRELATION:
            suspects.append((sum(use), pod.spec.uid, value))
    heaviest_first = sorted(suspects, reverse=True)
    return [(uid, value) for used, uid, value in heaviest_first if used >= LEAST_SHARE * everything]


def _advance_case(
    observation: Observation, state: InterferenceState, case: Case, settings: BestEffortSettings
) -> InterferenceState:
    """Advance a case by one tick: suppress more, suppress less, evict, or close it."""
    key, patience = f"{case.victim}|{case.signal}", settings.interference_patience_seconds
    case = replace(case, step_seconds=case.step_seconds + observation.elapsed_seconds)
    if key not in state.suffering:  # the victim is well
        case = replace(case, calm_seconds=case.calm_seconds + observation.elapsed_seconds, evicting=False)
        if case.calm_seconds < patience:
            return replace(state, case=case)
        eased = replace(case, level=case.level - 1, calm_seconds=0.0, step_seconds=0.0)
        return replace(state, case=eased if eased.level > 0 else None)
    case = replace(case, calm_seconds=0.0)
    after: Case | None = case
    if case.step_seconds >= patience and case.level < STEPS:
        after = replace(case, level=case.level + 1, step_seconds=0.0)
    elif case.step_seconds >= patience:
        acts = settings.interference == "evict" and case.antagonist
        if acts and _is_pod_running(observation, case.antagonist):
            after = replace(case, evicting=True, step_seconds=patience)
        elif not case.evicting or case.step_seconds >= 2 * patience:  # after an eviction its going is waited for
            after = None
    until = observation.at_seconds + GIVE_UP_SECONDS
    return replace(state, case=after, given_up=state.given_up if after else {**state.given_up, key: until})


def _findings(observation: Observation, state: InterferenceState, verdicts: tuple[Verdict, ...]) -> Findings:
    """Return the open case's demands: a cap halved `level` times, then a pod whose eviction was not refused."""
    case = state.case
    if case is None:
        return Findings(verdicts=verdicts)
    cap = case.base_millicores >> case.level
    if not (case.evicting and _is_pod_running(observation, case.antagonist)):
        return Findings(cap, verdicts=verdicts)
    refused = refused_uids(observation)
    prime_suspect = (case.antagonist, case.correlation)
    those = (prime_suspect, *(suspect for suspect in case.others if _is_pod_running(observation, suspect[0])))
    uid, value = next((suspect for suspect in those if suspect[0] not in refused), prime_suspect)
    why = f"the pod disturbs another one ({case.signal}, correlation {value:.2f}); suppression did not help"
    return Findings(cap, uid, why, verdicts)


def _is_pod_running(observation: Observation, uid: str) -> bool:
    return any(p.spec.uid == uid and p.spec.phase == "Running" for p in observation.pods)
