"""The agent as a process on real cgroups: what it writes, what it gives back, and what it does when things go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cotenant.enforcer.sources.kubelet_client import UNKNOWN
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.support import kubepods
from tests.support.kubepods import Kubepods, Pod
from tests.support.prometheus import Server
from tests.support.shipped_rules import drawn, evaluated, panel_queries, raised, rule_files, scrape_of

pytestmark = [
    pytest.mark.skipif(bool(kubepods.missing()), reason=f"no real cgroups: {kubepods.missing()}"),
    pytest.mark.slow,
    pytest.mark.server,
]
BE = "kubepods/besteffort"
CLI = "from cotenant.cli.main import run; run()"


@pytest.fixture
def node() -> Iterator[Kubepods]:
    with Kubepods() as tree:
        yield tree


@pytest.fixture
def batch(node: Kubepods) -> Pod:
    pod = node.pod("etl", qos="BE", priority=5500, resources=BATCH)
    node.pod("web", qos="LS", kube="Burstable", priority=9500, resources={"requests": {"cpu": "500m"}})
    return pod


def shares(node: Kubepods, pod: Pod) -> str:
    return node.read(pod.container, "cpu", "cpu.shares")


def test_a_dry_run_is_the_default_says_what_it_would_write_and_writes_nothing(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", options=()) as agent:
        agent.ticked(3)
        status = agent.status()
        assert status["dry_run"] is True
        values = {v["knob"]: v["value"] for p in status["pods"] if p["name"] == "etl" for v in p["values"]}
        assert values["cpu.shares"] == 1024
        assert agent.end() == 0
    assert node.values(KNOBS) == before
    assert "would-write" in (agent.folder / "state" / "actions.jsonl").read_text()


def test_it_sets_what_the_policy_says_and_gives_all_back_on_sigterm(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a") as agent:
        # 1000 batch-cpu = 1024 shares; 64 Mi of batch-memory = 67,108,864 bytes.
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        wait_for("suppression", lambda: node.read(BE, "cpu", "cpu.cfs_quota_us") != "-1")
        agent.ticked()  # the tick is over, and its status is there
        assert node.read(batch.path, "memory", "memory.limit_in_bytes") == str(64 << 20)
        values = {v["knob"]: v for p in agent.status()["pods"] if p["name"] == "etl" for v in p["values"]}
        assert (values["cpu.shares"]["original"], values["cpu.shares"]["strategy"]) == (2, "be-totals")
        assert agent.end() == 0
    assert node.values(KNOBS) == before


EAT = "x = bytearray(100 << 20); import time; time.sleep(600)"
MIB_64 = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
MIB_192 = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "192Mi"}


@pytest.mark.parametrize("kind", ["sidecar", "init"])
def test_a_batch_pods_early_containers_live_within_limits_of_their_own(
    node: Kubepods, tmp_path: Path, kind: str
) -> None:
    """Main 64 Mi, the other 192 Mi, of which it uses 100: at the main container's limit it would be ended."""
    pod = node.pod("etl", qos="BE", priority=5500, resources={"requests": MIB_64, "limits": MIB_64})
    early = node.early_container(pod, "early", kind, {"requests": MIB_192, "limits": MIB_192})
    debug = node.early_container(pod, "debug", "ephemeral")
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a") as agent:
        # a sidecar beside it: 64 + 192 = 256 Mi; an init container before it: the larger, 192 Mi
        limit_bytes = (256 if kind == "sidecar" else 192) << 20
        wait_for("the pod's limit", lambda: int(node.read(pod.path, "memory", "memory.limit_in_bytes")) == limit_bytes)
        assert int(node.read(early, "memory", "memory.limit_in_bytes")) == 192 << 20
        eating = node.enter(early, [sys.executable, "-c", EAT])
        wait_for("100 Mi in use", lambda: int(node.read(early, "memory", "memory.usage_in_bytes")) > 100 << 20)
        agent.ticked(3)
        assert eating.poll() is None
        assert "oom_kill 0" in node.read(early, "memory", "memory.oom_control")
        assert node.read(debug, "cpu", "cpu.cfs_quota_us") == "-1"
        node.kill()
        wait_for("its end", lambda: eating.poll() is not None)
        assert agent.end() == 0
    assert node.values(KNOBS) == before


def test_a_first_start_leaves_what_the_kubelet_set_alone(node: Kubepods, tmp_path: Path) -> None:
    """A pod with limits of its own, 700 m and 128 Mi, and none on its container; an infeasible resize to 100 CPUs."""
    own = node.pod("own", qos="LS", kube="Burstable")
    own.body["spec"]["resources"] = {"limits": {"cpu": "700m", "memory": "128Mi"}, "requests": {"cpu": "100m"}}
    huge = {key: {"cpu": "100", "memory": "128Mi"} for key in ("requests", "limits")}
    resized = node.pod("resized", qos="LS", kube="Guaranteed", resources=huge)
    granted = {key: {"cpu": "200m", "memory": "128Mi"} for key in ("requests", "limits")}
    resized.body["status"]["containerStatuses"][0]["resources"] = granted
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    resized.body["status"]["conditions"] = [infeasible]
    for pod, quota in ((own, 70_000), (resized, 20_000)):
        for path in (pod.path, pod.container):
            node.write(path, "cpu", "cpu.cfs_quota_us", quota)
            node.write(path, "cpu", "cpu.shares", 102)
            node.write(path, "memory", "memory.limit_in_bytes", 128 << 20)
    before = node.values(KNOBS)
    off = "resourceUsedThresholdWithBE: {enable: false}\n"
    state = tmp_path / "a" / "state"
    state.mkdir(parents=True)
    (state / "originals.json").write_text('{"version": 2, "boot": "another", "notes": []}')
    with Running(node, tmp_path / "a", policy=off) as agent:
        agent.ticked(4)
        assert node.values(KNOBS) == before
        assert agent.status()["notes"] == [UNKNOWN]  # there is no kubelet to ask
        assert agent.end() == 0
    assert node.values(KNOBS) == before


def test_after_kill_9_the_next_agent_takes_over_and_gives_back_what_the_first_one_changed(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a") as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        agent.end(signal.SIGKILL)
        assert shares(node, batch) == "1024"
        agent.start()
        agent.ticked()
        assert shares(node, batch) == "1024"
        agent.end()
    assert node.values(KNOBS) == before


def test_sigterm_while_it_starts_gives_back_what_a_killed_one_left(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    """Its settings file is a pipe, so that it stands still before it has done anything."""
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a") as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        agent.end(signal.SIGKILL)
    config = tmp_path / "settings.yaml"
    os.mkfifo(config)
    with Running(node, tmp_path / "a", options=("--write", "--config", str(config))) as agent:
        assert agent.process is not None
        writing = wait_for("a start", lambda: opened(config))
        agent.process.terminate()
        os.close(writing)
        assert agent.process.wait(60) == 0, agent.log()
    assert node.values(KNOBS) == before


def opened(pipe: Path) -> int | None:
    """For writing, once somebody reads; None until then."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_an_agent_that_finds_no_policy_gives_back_what_a_killed_one_left(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a") as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        agent.end(signal.SIGKILL)
    with Running(node, tmp_path / "a", settings={"enforcer.policy_file": ""}) as agent:
        wait_for("the kernel's own values", lambda: node.values(KNOBS) == before)
        wait_for("a word of it", lambda: "no policy" in agent.ask("/readyz")[1])
        assert agent.ask("/readyz")[0] == 503


def test_a_policy_is_read_anew_when_its_file_changes_and_a_broken_one_is_refused(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    with Running(node, tmp_path / "a") as agent:
        wait_for("suppression", lambda: node.read(BE, "cpu", "cpu.cfs_quota_us") != "-1")
        agent.policy_file.write_text("resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 1000}")
        wait_for("a note on the file", lambda: any("1000" in note for note in agent.status().get("notes", ())))
        agent.ticked()
        assert node.read(BE, "cpu", "cpu.cfs_quota_us") != "-1"
        agent.policy_file.write_text("resourceUsedThresholdWithBE: {enable: false}")
        wait_for("no suppression", lambda: node.read(BE, "cpu", "cpu.cfs_quota_us") == "-1")
        # the status follows the writes of its tick; there is no kubelet to ask
        wait_for("no other note", lambda: agent.status().get("notes") == [UNKNOWN])
        agent.end()


def test_new_pods_are_found_and_pods_that_left_are_forgotten(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as agent:
        wait_for("the first pod's weight", lambda: shares(node, batch) == "1024")
        late = node.pod("late", qos="BE", priority=5500, resources=BATCH)
        node.remove(batch)
        node.write_pods(agent.folder / "pods.json")
        wait_for("the late pod's weight", lambda: shares(node, late) == "1024")
        wait_for("one pod less", lambda: [p["name"] for p in agent.status().get("pods", ())] == ["web", "late"])
        agent.ticked()
        originals = json.loads((agent.folder / "state" / "originals.json").read_bytes())
        assert batch.uid not in json.dumps(originals)
        assert agent.end() == 0


def test_when_it_is_killed_and_nobody_starts_it_again_its_watchdog_gives_back(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", settings={"enforcer.watchdog_seconds": 2}) as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        assert len(watchdogs(agent.folder)) == 1
        agent.end(signal.SIGKILL)
        wait_for("the kernel's own values", lambda: node.values(KNOBS) == before)
        wait_for("the watchdog's end", lambda: not watchdogs(agent.folder))
        assert node.values(KNOBS) == before


def test_the_container_beside_it_gives_back_when_it_was_killed(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    """The very command of the shipped DaemonSet, with this test's folders and a shorter wait."""
    before = node.values(KNOBS)
    text = (Path(__file__).resolve().parents[2] / "deploy" / "enforcer.yaml").read_text()
    _, shipped = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    with Running(node, tmp_path / "a", settings={}) as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        ours = {"python": sys.executable, "60": "2", "/host/proc": "/proc"}
        assert ours.keys() <= set(shipped["command"])
        argv = [ours.get(word, word) for word in shipped["command"]]
        watchdog = subprocess.Popen([*argv, "--state-dir", str(agent.folder / "state")], stdout=subprocess.DEVNULL)
        try:
            agent.end(signal.SIGKILL)
            wait_for("the kernel's own values", lambda: node.values(KNOBS) == before)
            assert watchdog.poll() is None
        finally:
            watchdog.terminate()
            assert watchdog.wait(60) == 0


def test_its_watchdog_ends_with_it(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a", settings={"enforcer.watchdog_seconds": 60}) as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        assert len(watchdogs(agent.folder)) == 1
        assert agent.end() == 0
        assert watchdogs(agent.folder) == []


def test_its_watchdog_is_started_again_when_it_dies(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", settings={"enforcer.watchdog_seconds": 2}) as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        (first,) = watchdogs(agent.folder)
        os.kill(first, signal.SIGKILL)
        wait_for("another watchdog", lambda: watchdogs(agent.folder) not in ([], [first]))
        assert "watchdog ended and is started again" in agent.log() and "exit_code=-9" in agent.log()
        agent.end(signal.SIGKILL)
        wait_for("the kernel's own values", lambda: node.values(KNOBS) == before)
        wait_for("the watchdog's end", lambda: not watchdogs(agent.folder))


def watchdogs(folder: Path) -> list[int]:
    """Processes that watch an agent of this folder."""
    process_ids = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            argv = line.read_bytes().decode(errors="replace").split("\0")
            if "cotenant.enforcer.apply.watchdog" in argv and str(folder / "state") in argv:
                process_ids.append(int(line.parent.name))
    return process_ids


def test_without_the_right_to_write_it_goes_on_to_observe_and_is_not_ready(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    """In a mount namespace of its own in which the cgroups are read-only, as in a container without the mount."""
    running = Running(node, tmp_path / "a").start()
    running.end(signal.SIGKILL)
    text = "mount --bind -o ro /sys/fs/cgroup/$h /sys/fs/cgroup/$h"
    read_only = f"mount --make-rprivate / && for h in cpu cpuset memory; do {text}; done"
    probe = subprocess.run(["unshare", "-m", "sh", "-c", read_only], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.decode().strip()}")
    node.write(batch.container, "cpu", "cpu.shares", 2)
    options = ["enforcer.cgroup_base=" + node.base, f"enforcer.state_dir={tmp_path / 'b'}", "enforcer.tick_seconds=0.2"]
    options += [f"enforcer.policy_file={running.policy_file}", f"enforcer.pods_file={running.folder / 'pods.json'}"]
    options += [f"telemetry.health_port={running.port}"]
    inner = " ".join(f"--set {word}" for word in options)
    command = f"{read_only} && exec {sys.executable} -m cotenant.enforcer --write {inner}"
    process = subprocess.Popen(["unshare", "-m", "sh", "-c", command], stderr=subprocess.DEVNULL)
    try:
        code, body = wait_for(
            "not ready",
            lambda: [r for r in [running.ask("/readyz")] if "denied" in r[1].lower() or "read-only" in r[1].lower()],
        )[0]
        running.ticked()
        assert code == 503 and running.ask("/livez")[0] == 200, body
        assert shares(node, batch) == "2"
        assert {p["name"] for p in running.status()["pods"]} == {"etl", "web"}
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_it_writes_and_gives_back_without_a_single_capability(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    """As the shipped DaemonSet runs it: as root, with every capability dropped and no way to get one."""
    drop = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    if shutil.which(drop[0]) is None:
        pytest.skip("setpriv (util-linux) is not installed")
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", before=drop) as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        wait_for("suppression", lambda: node.read(BE, "cpu", "cpu.cfs_quota_us") != "-1")
        assert agent.process is not None
        rights = Path(f"/proc/{agent.process.pid}/status").read_text().split()
        assert rights[rights.index("CapEff:") + 1] == "0" * 16
        wait_for("ready", lambda: agent.ask("/readyz")[0] == 200)
        assert agent.end() == 0
    assert node.values(KNOBS) == before


def test_a_stopped_agent_does_not_catch_up_the_ticks_it_missed(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a", settings={"enforcer.tick_seconds": 0.1}) as agent:
        agent.ticked(3)
        assert agent.process is not None
        agent.process.send_signal(signal.SIGSTOP)
        before = agent.process.pid
        subprocess.run(["sleep", "3"], check=True)  # the fault itself: an agent that gets no CPU for three seconds
        agent.process.send_signal(signal.SIGCONT)
        agent.ticked(2)
        lines = agent.ask("/metrics")[1].splitlines()
        missed = next(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith("cotenant_enforcer_ticks_missed_total"))
        # Three seconds of ticks of 0.1 s, but for the one that was late and what the machine's load adds.
        assert missed >= 25
        assert agent.end() == 0 and before


def test_without_free_files_it_skips_ticks_and_goes_on_when_there_are_some(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    with Running(node, tmp_path / "a") as agent:
        agent.ticked(3)
        assert agent.process is not None
        limits = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
        late = node.pod("late", qos="BE", priority=5500, resources=BATCH)
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        node.write_pods(agent.folder / "pods.json")
        wait_for("a word of it", lambda: "open files" in agent.log() or "no more files" in agent.log())
        assert shares(node, late) == "2" and agent.process.poll() is None
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, limits)
        wait_for("the late pod's weight", lambda: shares(node, late) == "1024")
        wait_for("good ticks again", lambda: agent.ask("/readyz")[0] == 200)
        assert agent.end() == 0


def test_before_the_kubelet_has_made_its_cgroups_it_waits_for_them_and_says_so(tmp_path: Path) -> None:
    with Kubepods(tiers=False) as empty, Running(empty, tmp_path / "a") as agent:
        wait_for("a word of it", lambda: "no kubepods cgroup" in agent.ask("/readyz")[1])
        assert agent.ask("/livez")[0] == 200 and agent.ticks() == 0
        empty.make_tiers()
        pod = empty.pod("etl", qos="BE", priority=5500, resources=BATCH)
        empty.write_pods(agent.folder / "pods.json")
        wait_for("the pod's weight", lambda: shares(empty, pod) == "1024")
        assert agent.end() == 0


def test_another_writer_every_50_ms_is_answered_once_a_tick_and_told_as_a_conflict(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    with Running(node, tmp_path / "a") as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        place = node.folder("cpu", batch.container) / "cpu.shares"
        with somebody_else(place):
            log = agent.folder / "state" / "actions.jsonl"
            wait_for("a conflict", lambda: log.exists() and '"conflict"' in log.read_text())
            before, ticks = writes_and_ticks(agent)
            agent.ticked(5)
            after, passed = (b - a for a, b in zip((0.0, ticks), writes_and_ticks(agent), strict=True))
        # The other writes four times in each tick of 0.2 s, we at most once; a tick may be under way at each look.
        assert 0 < after - before <= passed + 2, agent.log()[-2000:]
        wait_for("our value again", lambda: shares(node, batch) == "1024")
        assert agent.end() == 0


@contextlib.contextmanager
def somebody_else(place: Path) -> Iterator[None]:
    """A process that writes another weight every 50 ms."""
    other = subprocess.Popen(["sh", "-c", f"while :; do echo 7 > {place}; sleep 0.05; done"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def writes_and_ticks(agent: Running) -> tuple[float, float]:
    """Writes of cpu.shares so far, conflicts included, and ticks; of one moment."""
    lines = [x.rsplit(" ", 1) for x in agent.ask("/metrics")[1].splitlines()]
    mine = [float(n) for x, n in lines if x.startswith("cotenant_enforcer_actions_total") and 'knob="cpu.shares"' in x]
    return sum(mine), sum(float(n) for x, n in lines if x.startswith("cotenant_enforcer_ticks_total"))


def test_two_agents_of_one_node_do_not_both_run(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as first:
        first.ticked()
        second = Running(node, tmp_path / "a").start()
        assert second.process is not None
        assert second.process.wait(60) != 0
        assert first.ticks() > 0
        first.end()


def test_what_was_recorded_is_decided_again_the_same(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    record = tmp_path / "seen.jsonl"
    with Running(node, tmp_path / "a", settings={"enforcer.record_file": record}) as agent:
        agent.ticked(6)
        agent.end()
    command = [sys.executable, "-c", CLI, "node", "replay", str(record), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert "0 differ from the recording" in done.stderr
    assert {row["strategy"] for row in rows} >= {"be-totals", "cpu-suppress"}
    off = [*command[:3], "--set", "enforcer.strategies_off=[be-totals]", *command[3:]]
    assert subprocess.run(off, capture_output=True, check=False).returncode == 3


def test_node_status_shows_what_is_held_and_why(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as agent:
        wait_for("the batch pod's weight", lambda: shares(node, batch) == "1024")
        agent.ticked()
        url = f"http://127.0.0.1:{agent.port}/status"
        command = [sys.executable, "-c", CLI, "node", "status", "--url", url, "-o", "json"]
        rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        agent.end()
    mine = [
        r
        for r in rows
        if r["pod"] == "bench/etl" and r["knob"] == "cpu.shares" and r["cgroup"].endswith(batch.container)
    ]
    assert [(r["value"], r["original"], r["strategy"], r["why"]) for r in mine] == [
        ("1024", "2", "be-totals", "its batch resources")
    ]
    assert {r["pod"] for r in rows} >= {"bench/etl", "bench/web"}


def test_the_agent_loads_none_of_the_heavy_packages(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    code = (
        "import sys, cotenant.enforcer.__main__ as m; "
        "heavy = {'typer', 'pydantic', 'kubernetes', 'pandas', 'sklearn', 'statsmodels', 'dash', 'yaml', 'httpx'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


def test_a_policy_that_enables_nothing_changes_nothing_but_batch_totals(node: Kubepods, tmp_path: Path) -> None:
    node.pod("plain")
    node.pod("web", qos="LS", kube="Burstable", resources={"requests": {"cpu": "500m"}})
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", policy="resourceUsedThresholdWithBE: {enable: false}\n") as agent:
        agent.ticked(4)
        assert node.values(KNOBS) == before
        assert agent.end() == 0


def test_prometheus_draws_the_panels_of_an_agent_that_runs(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as agent:
        agent.ticked()
        scrapes = [scrape_of("cotenant-enforcer", agent.port)]
        # Best effort has no limit while it needs none, and no tick ends badly.
        empty = ('of="limit"', 'outcome!="done"')
        of_agent = [query for query in panel_queries() if "cotenant_enforcer_" in query]
        queries = [query for query in of_agent if not any(part in query for part in empty)]
        with Server(tmp_path / "prometheus", scrapes=scrapes, rules=rule_files(tmp_path)) as prometheus:
            wait_for("the panels", lambda: all(drawn(prometheus, query) for query in queries), every=0.5)
            wait_for("every alert is evaluated", lambda: evaluated(prometheus))
            # not at once: two scrapes between two ticks look like an agent that stands still
            wait_for("no alert of the agent", lambda: not any("Agent" in alert for alert in raised(prometheus)))
            assert agent.end() == 0
            wait_for("it is missed", lambda: {"CotenantDown", "CotenantAgentsAbsent"} <= raised(prometheus))
