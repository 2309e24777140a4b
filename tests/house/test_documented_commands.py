"""The shell commands of README.md and docs/: what they name exists, and each is run by a test that is named here.

`cotenant` lines are parsed by the real command line in test_examples.py. docs/first-hour.md runs as printed on a real
cluster. What needs no cluster is run here on the results of a demo; the rest stands in `ELSEWHERE` with its test.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from cotenant.cli.main import root
from tests.cluster import binaries, needing
from tests.support.dashboard import WEEK, results
from tests.support.documented import PAGES, ROOT, DocumentedCommand, blocks, commands, prose_commands

ON_THE_DEMO: Final = (
    "cotenant explain pay/Deployment/checkout",
    "cotenant get forecast pay/Deployment/checkout",
    "cotenant get forecast --scope workload -o wide",
    "cotenant get reclaimable",
    "cotenant get findings",
    "cotenant status",
    "cotenant get findings -n shop -o csv --fail-on severity=critical",
    "cotenant get findings --what idle-gpu --what oversized-gpu --what unmeasured-gpu",
    "cotenant get findings -n recsys --filter finding=oversized-gpu -o csv",
    "cotenant get findings --what oversized-gpu -o patch",
    "cotenant get findings --what oversized-gpu -o kustomize",
    "cotenant get replicas",
    "cotenant config show",
    "cotenant config docs",
    "cotenant serve extender --make-certs ./pki --url https://cotenant-extender.cotenant.svc:9445",
    "cotenant serve extender --print-config --url https://10.0.0.5:9445"
    " --scheduler-kubeconfig /etc/kubernetes/scheduler.conf",
    "cotenant serve extender --print-config --url https://cotenant-extender.cotenant.svc:9445 --scheduler cotenant",
    "cotenant install --print",
    "cotenant install --print --components applier",
)
"""Run here, as printed."""
FIRST_HOUR: Final = "first-hour.md"
DESK = "acts on a cluster, or asks one"
SERVES = "serves until Ctrl-C"
NEEDS_CLUSTER = "asks a cluster"
ANALYSIS = "analyses a history anew, seconds each"
HISTORY = "needs 15 days of history or a trace"
NODE = "needs a node with a container runtime"
GO = "builds with Go and outlives the command"
ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "make demo": (SERVES, "bench/platform/fresh_clone.py"),
    "make test": ("is this suite", "bench/platform/fresh_clone.py"),
    "make release-dry": ("builds a minute", "tests/house/test_release.py"),
    "make cluster-": (GO, "tests/cluster/test_up.py"),
    "cotenant doctor ": ("needs a Prometheus", "tests/cli/test_doctor.py"),
    "cotenant scan --prometheus ": ("needs a Prometheus", "tests/cli/test_scan.py"),
    "cotenant scan --kubeconfig ": ("needs a Prometheus", "tests/cli/test_scan.py"),
    "cotenant scan --offline ": (ANALYSIS, "tests/cli/test_outputs.py"),
    "cotenant scan --store ": ("needs a Dask scheduler", "tests/pipeline/test_shards.py"),
    "dask ": ("needs machines", "tests/pipeline/test_shards.py"),
    "cotenant scan --all-clusters": ("needs a Prometheus", "tests/cli/test_clusters.py"),
    "cotenant scan --cluster ": ("needs a Prometheus", "tests/cli/test_clusters.py"),
    "cotenant get pods --all-clusters": ("needs several clusters", "tests/cli/test_clusters.py"),
    "cotenant explain pay/Deployment/checkout --all-clusters": ("needs several clusters", "tests/cli/test_clusters.py"),
    "cotenant get findings --cluster ": ("needs several clusters", "tests/cli/test_clusters.py"),
    "cotenant get forecast --resource gpu-core": ("needs usage of GPUs", "tests/cli/test_results.py"),
    "cotenant backtest": (HISTORY, "tests/cli/test_backtest.py"),
    "cotenant simulate": ("simulates for seconds", "tests/cli/test_simulate.py"),
    "cotenant dashboard": (SERVES, "tests/dashboard/test_server.py"),
    "cotenant demo --cluster ": (DESK, "tests/cluster/test_first_hour.py"),
    "cotenant install": (DESK, "tests/cli/test_install_on_cluster.py"),
    "make chart": ("writes into the checkout", "tests/cli/test_chart.py"),
    "make images": ("takes minutes", "tests/images/test_running.py"),
    "ctr ": (NODE, "tests/images/test_running.py"),
    "helm ": ("installs into a cluster", "tests/cli/test_chart_on_cluster.py"),
    "cotenant uninstall": (DESK, "tests/cli/test_install_on_cluster.py"),
    "cotenant serve recorder ": (NEEDS_CLUSTER, "tests/profiler/recorder/test_recorder_process.py"),
    "cotenant serve manager ": (DESK, "tests/cluster/test_first_hour.py"),
    "cotenant config profiles compile": (NEEDS_CLUSTER, "tests/admission/test_policies_on_a_real_cluster.py"),
    "cotenant serve webhook": (SERVES, "tests/admission/test_on_a_real_cluster.py"),
    "cotenant autopilot ": (DESK, "tests/autopilot/test_commands.py"),
    "cotenant recs ": (DESK, "tests/changes/test_recs_commands.py"),
    "cotenant reservations ": (DESK, "tests/scheduler_ext/reservations/test_commands.py"),
    "cotenant --set queues.": (DESK, "tests/scheduler_ext/queues/test_on_cluster.py"),
    "cotenant get quotas": (NEEDS_CLUSTER, "tests/scheduler_ext/queues/test_quota_commands.py"),
    "cotenant get waiting": (NEEDS_CLUSTER, "tests/scheduler_ext/queues/test_quota_commands.py"),
    "cotenant get gangs": (NEEDS_CLUSTER, "tests/scheduler_ext/queues/test_quota_commands.py"),
    "cotenant explain queue ": (NEEDS_CLUSTER, "tests/scheduler_ext/queues/test_quota_commands.py"),
    "cotenant explain node": (NEEDS_CLUSTER, "tests/cli/test_explain_node.py"),
    "cotenant size": (NEEDS_CLUSTER, "tests/scheduler_ext/cluster_size/test_stock_scheduler.py"),
    "cotenant serve descheduler ": (NEEDS_CLUSTER, "tests/scheduler_ext/rebalance/test_commands.py"),
    "cotenant explain pod ": (NEEDS_CLUSTER, "tests/scheduler_ext/extender/test_on_a_real_scheduler.py"),
    "cotenant config check slo-config ": ("reads a file of yours", "tests/cli/test_slo_config.py"),
    "cotenant serve extender --host ": (SERVES, "tests/scheduler_ext/extender/test_process.py"),
    "cotenant node enforcer ": (NODE, "tests/enforcer/test_agent_process.py"),
    "cotenant --set enforcer.": (NODE, "tests/enforcer/test_node_commands.py"),
    "cotenant node ": (NODE, "tests/enforcer/test_node_commands.py"),
    "cotenant node enforcement gather": (NEEDS_CLUSTER, "tests/profiler/test_enforcement_commands.py"),
    "cotenant node enforcement import ": ("reads a file of yours", "tests/profiler/test_enforcement_commands.py"),
    "cotenant node enforcement list ": ("lists what node agents told", "tests/profiler/test_enforcement_commands.py"),
    "cotenant node cri-proxy ": (NODE, "tests/node/test_cri_proxy.py"),
    "kubectl ": ("is the cluster's own: see its flags and files below", "tests/house/test_documented_commands.py"),
    "pip install cotenant[all,mcp]": ("changes the environment", "tests/dashboard/test_mcp.py"),
    "pip install ./examples/strategy-plugin": ("changes the environment", "tests/recommender/test_plugins.py"),
    "pip install ./examples/forecaster-plugin": ("changes the environment", "tests/forecasting/test_plugins.py"),
    "curl ": ("asks a dashboard", "tests/dashboard/test_api_acts.py"),
    "$POST ": ("asks a dashboard", "tests/dashboard/test_api_acts.py"),
}  # fmt: skip
"""Beginning of a command that is not run here -> (why not, the file that runs it)."""
TEXTS: Final = (".md", ".py", ".yaml", ".yml", ".txt", ".tpl", ".js", ".sh", ".ipynb", ".toml", "Makefile")
CLUSTER_TOOLS: Final = ("kubectl", "helm")
STANDARD: Final = frozenset({"awk", "chmod", "dirname", "hostname", "rm", "sed"})
COMMANDS: Final = tuple(command for page in PAGES for command in commands(page))
IN_PROSE: Final = tuple(command for page in PAGES for command in prose_commands(page))
MADE_BY_THE_READER: Final = frozenset({"-", "pki/server"})
"""Files of kubectl lines that an earlier line of the page makes."""


def reason_of(command: DocumentedCommand) -> str:
    """The longest beginning in ELSEWHERE; "" where there is none."""
    return max((start for start in ELSEWHERE if f"{command.text} ".startswith(start)), key=len, default="")


def test_every_command_is_run_by_a_test_that_is_named() -> None:
    assert len(COMMANDS) > 100
    untested = [
        (command.page, command.text)
        for command in COMMANDS
        if command.program not in STANDARD
        and command.page != FIRST_HOUR
        and command.text not in ON_THE_DEMO
        and not reason_of(command)
    ]
    assert untested == []
    used = {reason_of(command) for command in COMMANDS}
    assert set(ELSEWHERE) - used == set(), "reasons of commands that nobody shows"
    assert [proof for _, proof in ELSEWHERE.values() if not (ROOT / proof).is_file()] == []


def test_every_command_that_is_run_here_is_shown() -> None:
    shown = {command.text for command in (*COMMANDS, *IN_PROSE)}
    assert set(ON_THE_DEMO) - shown == set()


def test_the_first_hour_runs_whole() -> None:
    page = ROOT / "docs" / FIRST_HOUR
    steps = re.findall(r"^<!-- step: \S+ -->\n```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert [text for text in blocks(page) if text not in steps and not text.startswith("make cluster-")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_a_script_that_a_shell_can_read(page: Path) -> None:
    for text in blocks(page):
        read = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=30, check=False)
        assert read.returncode == 0, f"{text}{read.stderr}"


def test_what_make_is_asked_for_is_in_the_makefile() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+)\s*[?:]?=", text, re.MULTILINE))
    for command in (*COMMANDS, *IN_PROSE):
        for word in command.words[1:] if command.program == "make" else ():
            name, is_variable, _ = word.partition("=")
            assert name in (variables if is_variable else targets), command


def test_every_module_that_python_is_asked_to_run_exists() -> None:
    modules = [
        (command.page, command.words[command.words.index("-m") + 1])
        for command in (*COMMANDS, *IN_PROSE)
        if command.program.endswith("python") and "-m" in command.words
    ]
    assert len(modules) > 20
    assert [where for where in modules if importlib.util.find_spec(where[1]) is None] == []


def test_what_pip_installs_is_a_package_of_the_tree_or_an_extra_of_ours() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for command in (*COMMANDS, *IN_PROSE):
        if command.program != "pip":
            continue
        target = command.words[2].strip("'")
        names = re.fullmatch(r"cotenant\[([\w,]+)\]", target)
        is_there = set(names[1].split(",")) <= extras.keys() if names else (ROOT / target / "pyproject.toml").is_file()
        assert is_there, command


def test_every_file_that_kubectl_or_helm_is_given_is_in_the_tree() -> None:
    for command in COMMANDS:
        for option, value in zip(command.words, command.words[1:], strict=False):
            if command.program in CLUSTER_TOOLS and option in {"-f", "--values"} and value not in MADE_BY_THE_READER:
                assert (ROOT / value).exists(), command
            if command.program == "helm" and value.startswith(("deploy/", "./")):
                assert (ROOT / value / "Chart.yaml").is_file(), command
        for word in command.words if command.program == "kubectl" else ():
            if word.startswith("--from-file="):
                assert word.partition("=")[2] in MADE_BY_THE_READER or (ROOT / word.partition("=")[2]).exists(), command


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("program", CLUSTER_TOOLS)
def test_kubectl_and_helm_take_every_flag(program: str) -> None:
    needing.kubernetes()
    shown = {command.words for command in COMMANDS if command.program == program}
    # --help parses the flags before it, and asks no cluster.
    for arguments in sorted(shown):
        command = [str(binaries.find(program)), *arguments[1:], "--help"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert process.returncode == 0 and "Usage:" in process.stdout, (arguments, process.stderr)


@pytest.mark.slow
def test_commands_that_need_no_cluster_run_on_the_demo_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = results(tmp_path / "store", spec=WEEK).store.url
    monkeypatch.chdir(tmp_path)
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    environment = {**home, "COTENANT_STORE__URL": url, "KUBECONFIG": str(tmp_path / "none")}
    shown = {command.text: command.words for command in (*COMMANDS, *IN_PROSE)}
    for text in ON_THE_DEMO:
        done = CliRunner().invoke(root, list(shown[text][1:]), env=environment)
        assert done.exit_code == 0, (text, done.output)
        assert done.output, text
