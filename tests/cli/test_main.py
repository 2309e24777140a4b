"""The framework: global options, lazy commands, errors as words and exit codes, help with examples that parse."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cotenant.base.commands.extras import in_words
from cotenant.base.commands.session import CliSession, parse_overrides
from cotenant.base.errors import UsageError
from cotenant.base.settings.load import default_config
from cotenant.cli import main
from cotenant.cli.groups import load_command, prepend_kind
from cotenant.cli.main import GLOBAL_FLAGS, GLOBAL_VALUES, global_first, program_name
from cotenant.cli.registry import (
    ACT,
    COMMANDS,
    FIRST_WORDS,
    GET,
    OPERATE,
    PROVIDERS,
    SHORT_NAMES,
    START,
    UNDERSTAND,
    CommandEntry,
)

ROOT = typer.main.get_command(main.root)


def invoke(*args: str) -> Any:
    return CliRunner().invoke(main.root, list(args))


def leaves() -> list[tuple[str, Any]]:
    """("cotenant config show", its click command) for the root, every command and every subcommand."""
    commands = [("cotenant", ROOT)]
    for entry in COMMANDS:
        command = load_command(entry)
        commands.append((f"cotenant {entry.name}", command))
        commands += [(f"cotenant {entry.name} {n}", c) for n, c in getattr(command, "commands", {}).items()]
    return commands


def examples_of(command: Any) -> list[str]:
    """The example lines of a command's epilog, without prompt and comment."""
    lines = [line.strip() for line in (command.epilog or "").replace("\\[", "[").splitlines()]
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "command"), leaves())
def test_every_help_says_what_it_does_and_has_examples(path: str, command: Any) -> None:
    assert command.help
    assert (command.epilog or "").startswith("Examples:")
    assert examples_of(command)
    shown = invoke(*path.split()[1:], "--help")
    assert shown.exit_code == 0
    assert "Examples:" in shown.stdout
    assert shown.stderr == ""


def test_the_first_help_leads_a_newcomer_from_the_demo_to_an_explanation() -> None:
    first = [line.split()[1] for line in examples_of(ROOT)[:4]]
    assert first == ["demo", "doctor", "scan", "explain"]
    assert [name for name, _ in groupby(e.panel for e in COMMANDS)] == [START, UNDERSTAND, ACT, OPERATE]


@pytest.mark.parametrize(("path", "command"), leaves())
def test_an_example_uses_only_commands_and_options_that_some_help_lists(path: str, command: Any) -> None:
    for line in examples_of(command):
        arguments = shlex.split(line)
        if arguments[0] != "cotenant":
            continue
        _, (name, *rest) = global_first(arguments[1:])
        assert name in {entry.name for entry in COMMANDS if not entry.hidden} or path == f"cotenant {name}", line
        called = load_command(next(entry for entry in COMMANDS if entry.name == name))
        while rest and (below := getattr(called, "commands", {}).get(rest[0])):
            assert not below.hidden, line
            called, rest = below, rest[1:]
        if not hasattr(called, "commands") and not getattr(called, "entries", ()):
            listed = {option for p in called.params if not getattr(p, "hidden", False) for option in p.opts}
            used = {word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"}
            assert used <= listed, line


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("help",), ()),
        (("help", "recs"), ("recs",)),
        (("help", "recs", "list"), ("recs", "list")),
        (("recs", "help"), ("recs",)),
        (("recs", "help", "list"), ("recs", "list")),
        (("explain", "help"), ("explain",)),
        (("help", "get", "nodes"), ("get", "nodes")),
    ],
    ids=" ".join,
)
def test_the_word_help_is_the_help_of_the_command_beside_it(arguments: tuple[str, ...], shown: tuple[str, ...]) -> None:
    with_help, plain = invoke(*arguments), invoke(*shown, "--help")
    assert (with_help.exit_code, with_help.stdout, with_help.stderr) == (0, plain.stdout, "")


WITH_DRY_RUN = [
    (path, command, next(p for p in command.params if p.name in ("yes", "apply")).opts[0])
    for path, command in leaves()
    if {p.name for p in command.params} & {"yes", "apply"}
]


@pytest.mark.parametrize(("path", "command", "sure"), WITH_DRY_RUN)
def test_dry_run_alone_is_listed_and_refused_beside_what_acts(path: str, command: Any, sure: str) -> None:
    assert "--dry-run" in {option for parameter in command.params for option in parameter.opts}
    required = [parameter for parameter in command.params if parameter.required]
    required_words = [
        word for p in required for word in (["1"] if p.param_type_name == "argument" else [p.opts[0], "1"])
    ]
    refused = invoke(*path.split()[1:], *required_words, "--dry-run", sure)
    assert refused.exit_code == 2
    assert f"--dry-run changes nothing, and {sure} writes" in " ".join(refused.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments", [("--dry-run", "shop/web"), ("shop/web", "--dry-run"), ("--dry-run", "none", "shop/web")]
)
def test_dry_run_takes_no_workload_for_its_mode(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = invoke("recs", "apply", *arguments, "--store", tmp_path.as_uri())
    assert "no history is stored" in done.stderr, "the words were understood: what is missing is a store"


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({line for _, command in leaves() for line in examples_of(command)}))
def test_every_example_parses(line: str) -> None:
    """Parsed by the real commands, not run: an unknown option or a value outside its choices would raise."""
    arguments = shlex.split(line)
    arguments = arguments[arguments.index("--") + 1 :] if arguments[:2] == ["kubectl", "exec"] else arguments
    arguments = arguments[arguments.index("cotenant") :]  # behind a pipe, maybe
    for stop in (">", "|"):
        arguments = arguments[: arguments.index(stop)] if stop in arguments else arguments
    root = ROOT.make_context("cotenant", arguments[1:])
    rest = [*root._protected_args, *root.args]
    command: Any = ROOT
    context = root
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        rest = [*context._protected_args, *context.args]
    assert command.callback is not None


@pytest.mark.parametrize(("path", "command"), leaves()[1:])
def test_no_command_takes_a_global_option_for_itself(path: str, command: Any) -> None:
    own = {option for parameter in command.params for option in parameter.opts}
    assert not own & {*GLOBAL_VALUES, *GLOBAL_FLAGS}


def test_every_global_option_may_stand_before_or_after_the_command() -> None:
    declared = {option for parameter in ROOT.params for option in parameter.opts}
    assert declared >= {*GLOBAL_VALUES, *GLOBAL_FLAGS}
    before = invoke("--set", "dashboard.port=8051", "config", "show", "dashboard.port", "-o", "json")
    after = invoke("config", "show", "dashboard.port", "-o", "json", "--set=dashboard.port=8051")
    assert before.stdout == after.stdout
    assert json.loads(after.stdout)[0]["value"] == "8051"


_words = st.lists(st.sampled_from(["scan", "-o", "json", "--set", "a.b=1", "--set=c.d=2", "--debug", "--config", "x"]))


@given(_words, _words)
def test_global_options_in_front_keep_every_word_and_what_stands_behind_a_double_dash(
    arguments: list[str], behind: list[str]
) -> None:
    front, rest = global_first(arguments)
    assert sorted(front + rest) == sorted(arguments)
    assert global_first(front + rest) == (front, rest)
    start, others = global_first(["scan", *arguments, "x"])
    assert global_first(["scan", *arguments, "x", "--", *behind]) == (start, [*others, "--", *behind])


def test_a_global_option_behind_a_double_dash_stays_there() -> None:
    assert global_first(["scan", "--debug", "--", "--debug"]) == (["--debug"], ["scan", "--", "--debug"])


def test_the_top_level_shows_about_fifteen_commands_of_words_that_are_no_hints() -> None:
    assert len([entry for entry in COMMANDS if not entry.hidden]) <= 19
    assert not {entry.name for entry in COMMANDS} & FIRST_WORDS.keys()


def test_every_command_of_a_module_is_in_the_list() -> None:
    """A module that several entries share has no command that none of them names."""
    groups = {entry.module for entry in COMMANDS}  # its commands are all below its own name
    entries = [c for entry in COMMANDS for c in entry.children if c.command and c.module not in groups]
    for module in {entry.module for entry in entries}:
        group = typer.main.get_command(importlib.import_module(module).app)
        assert isinstance(group, typer.core.TyperGroup)
        assert group.commands.keys() == {entry.command for entry in entries if entry.module == module}


@pytest.mark.slow
def test_help_names_values_and_not_their_types() -> None:
    for path, _ in leaves():
        shown = invoke(*path.split()[1:], "--help").stdout
        assert re.findall(r"<(?:bool|str|int|float|path)\b.*|\[\[.*", shown, re.IGNORECASE) == [], path


KINDS = ("workload", "pod", "node", "node-slo", "queue")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("pay/Deployment/checkout -o json", "workload pay/Deployment/checkout -o json"),
        ("-o json pay/checkout", "workload -o json pay/checkout"),
        ("node node-07 --from-cluster", "node node-07 --from-cluster"),
        ("--from-cluster node node-07", "node --from-cluster node-07"),
        ("node/node-07", "node node-07"),
        ("-o json node/node-07", "node -o json node-07"),
        ("-o json pod/shop/web-1", "pod -o json shop/web-1"),
        ("-o json pod/Deployment/web", "workload -o json pod/Deployment/web"),
        ("node/", "node"),
        ("pod/shop/web-1", "pod shop/web-1"),
        ("pod/Deployment/web", "workload pod/Deployment/web"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_the_address_decides_what_is_explained(line: str, meant: str) -> None:
    assert prepend_kind(line.split(), KINDS) == meant.split()


@pytest.mark.slow
@pytest.mark.parametrize("word", sorted(FIRST_WORDS))
def test_what_people_type_first_names_the_command_that_does_it(word: str) -> None:
    result = invoke(word)
    assert result.exit_code == 2
    assert f"Use `cotenant {FIRST_WORDS[word]}`" in " ".join(result.stderr.replace("│", " ").split())
    assert invoke(*FIRST_WORDS[word].split(), "--help").exit_code == 0
    assert word not in {entry.name for entry in COMMANDS}


@pytest.mark.slow
@pytest.mark.parametrize("word", sorted(SHORT_NAMES))
def test_get_knows_the_names_that_kubectl_users_type(word: str) -> None:
    assert SHORT_NAMES[word] in {entry.name for entry in GET}
    assert word not in {entry.name for entry in GET}
    assert invoke("get", word, "--help").stdout == invoke("get", SHORT_NAMES[word], "--help").stdout != ""


@pytest.mark.parametrize(
    ("listed", "same_as"),
    [
        ("get recommendations", "recs list"),
        ("get changes", "recs changes"),
        ("get plans", "reservations list"),
        ("get policies", "autopilot status"),
        ("get nodes", "get reclaimable"),
    ],
)
def test_a_table_by_kubectls_name_is_the_command_that_there_was(listed: str, same_as: str) -> None:
    first, other = (leaf(line.split()) for line in (listed, same_as))
    assert first.callback.__wrapped__ is other.callback.__wrapped__
    assert [p.name for p in first.params] == [p.name for p in other.params]


def leaf(path: list[str]) -> Any:
    """The command that these words name."""
    command: Any = typer.main.get_command(main.root)
    for word in path:
        with command.make_context(word, [], resilient_parsing=True) as context:
            _, command, _ = command.resolve_command(context, [word])
    return command


TYPED = {
    **{name: name for name in ("status", "doctor", "version", "scan", "dashboard")},
    "rollback": "recs rollback",
    "apply": "recs apply",
    "recommendations": "get recommendations",
    "nodes": "get nodes",
    "topology": "node topology",
    "enforcement": "node enforcement",
}


@pytest.mark.parametrize("word", sorted(TYPED))
def test_a_mistyped_word_is_answered_with_the_command_that_was_meant(word: str) -> None:
    """Two letters swapped, one left out, one doubled: each is refused with the right command to type."""
    swapped = word[:2] + word[3] + word[2] + word[4:]
    for typed in {swapped, word[:-2] + word[-1], word[:2] + word[1] + word[2:]} - {word}:
        result = invoke(typed)
        assert (result.exit_code, result.stdout) == (2, "")
        text = " ".join(result.stderr.replace("│", " ").split())
        assert f"No such command {typed!r}. Did you mean `cotenant {TYPED[word]}`?" in text


@pytest.mark.parametrize(
    ("typed", "meant"), [("noeds", "nodes"), ("recomendation", "recommendations"), ("plnas", "plans")]
)
def test_a_mistyped_table_is_answered_with_the_table_that_was_meant(typed: str, meant: str) -> None:
    text = " ".join(invoke("get", typed).stderr.replace("│", " ").split())
    assert f"No such command {typed!r}. Did you mean `cotenant get {meant}`?" in text


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("get rec shop/cart", "explain shop/cart"),
        ("get recs cart -n shop", "explain shop/cart"),
        ("get plan feed/deployment-rank -A", "reservations show feed/deployment-rank"),
        ("get pods shop/web-1", "explain pod shop/web-1"),
        ("get deployments", "get recommendations --filter kind=Deployment"),
        ("describe node node-07", "explain node node-07"),
        ("apply shop/cart", "recs apply shop/cart"),
        ("top no", "get nodes"),
    ],
)
def test_what_kubectl_users_type_of_one_object_is_answered_with_the_command_for_it(typed: str, meant: str) -> None:
    result = invoke(*typed.split())
    text = " ".join(result.stderr.replace("│", " ").split())
    assert (result.exit_code, result.stdout) == (2, "") and f"`cotenant {meant}`" in text
    assert invoke(*meant.split()[:2], "--help").exit_code == 0


def test_a_word_that_is_close_to_nothing_gets_no_wrong_hint() -> None:
    result = invoke("xyzzy")
    assert result.exit_code == 2
    assert "No such command 'xyzzy'" in result.stderr and "Did you mean" not in result.stderr


def test_settings_that_do_not_exist_are_not_an_empty_table() -> None:
    result = invoke("config", "show", "colocation.cup")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: no setting begins with 'colocation.cup'" in result.stderr


def test_an_unknown_command_is_a_usage_error_with_the_nearest_name() -> None:
    result = invoke("versoin")
    assert result.exit_code == 2
    assert "Did you mean `cotenant version`" in result.stderr
    assert result.stdout == ""


def test_a_wrong_choice_is_a_usage_error() -> None:
    result = invoke("version", "-o", "xml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "xml" in result.stderr


def test_a_wrong_setting_is_said_on_stderr_with_its_fix() -> None:
    result = invoke("config", "show", "--set", "dashboard.prt=1")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first == "error: a flag: unknown setting 'dashboard.prt'; did you mean 'dashboard.port'?"
    assert second.startswith("fix: ")


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command `faulty` whose module raises a fault of its own."""
    source = (
        "from cotenant.base.commands.session import new_app\napp = new_app()\n"
        "@app.command()\ndef faulty() -> None:\n    raise ZeroDivisionError('a\\x1b[2Jb')\n"
    )
    (tmp_path / "faulty_command.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(main, "COMMANDS", (CommandEntry("faulty", "faulty_command", "Fail."),))


@pytest.mark.usefixtures("faulty")
def test_an_unexpected_error_is_one_line_and_a_hint() -> None:
    result = invoke("faulty")
    assert (result.exit_code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first == "error: unexpected ZeroDivisionError: a\\x1b[2Jb"
    assert "--debug" in second


@pytest.mark.usefixtures("faulty")
def test_debug_lets_the_traceback_through() -> None:
    result = invoke("faulty", "--debug")
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_missing_package_is_said_with_the_line_that_installs_it() -> None:
    error = in_words(ModuleNotFoundError("No module named 'sklearn.ensemble'", name="sklearn.ensemble"))
    assert error is not None
    assert (error.message, error.fix) == (
        "the package scikit-learn is not installed",
        'Run pip install "cotenant[analytics]".',
    )
    assert in_words(ModuleNotFoundError("No module named 'cotenant.nothing'", name="cotenant.nothing")) is None
    assert in_words(ValueError("x")) is None


def test_a_file_that_the_system_denies_is_named_with_its_reason(tmp_path: Path) -> None:
    result = invoke("node", "replay", str(tmp_path))
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert f"{tmp_path}" in result.output and "unexpected" not in result.output
    error = in_words(PermissionError(13, "Permission denied", "/etc/notes"))
    assert error is not None and (error.message, error.exit_code) == ("/etc/notes: Permission denied", 2)
    assert in_words(OSError("no file is meant")) is None


def test_overrides_are_pairs() -> None:
    assert parse_overrides(["a.b=1", "c.d=x=y", "e.f="]) == {"a.b": "1", "c.d": "x=y", "e.f": ""}
    for wrong in ("a.b", "=1", " =1"):
        with pytest.raises(UsageError, match=r"is not section\.key=value"):
            parse_overrides([wrong])


def test_the_settings_file_is_named_or_the_users_own(tmp_path: Path) -> None:
    assert default_config({"COTENANT_CONFIG": "/x.yaml", "HOME": str(tmp_path)}) == Path("/x.yaml")
    assert default_config({"HOME": str(tmp_path)}) is None
    assert default_config({}) is None
    own = tmp_path / ".config" / "cotenant" / "settings.yaml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert default_config({"HOME": str(tmp_path)}) == own
    assert default_config({"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / ".config")}) == own


@pytest.mark.parametrize(
    ("called", "shown"),
    [("/usr/bin/cotenant", "cotenant"), ("/x/kubectl-cotenant", "kubectl cotenant"), ("-c", "cotenant")],
)
def test_usage_shows_the_name_we_were_called_by(called: str, shown: str) -> None:
    assert program_name(called) == shown


def test_version_names_the_version_python_and_packages() -> None:
    described = json.loads(invoke("version", "-o", "json").stdout)
    assert described["version"] == "0.1.0"
    assert described["python"].startswith("3.")
    assert described["packages"]["base"]["numpy"]
    assert invoke("--version").stdout == "cotenant 0.1.0\n"


@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_service_of_a_layer_above_is_made_for_the_room_that_declares_it(kind: str) -> None:
    module, _, name = kind.partition(":")
    declared = getattr(importlib.import_module(module), name)
    assert isinstance(CliSession(providers=PROVIDERS).service(declared), declared)


def test_the_command_line_gives_every_session_its_providers() -> None:
    """The declared type is imported by the room alone; a session without providers has none of it."""
    from cotenant.scheduler_ext.reservations.commands.workload_history import WorkloadHistory

    with pytest.raises(KeyError, match="WorkloadHistory"):
        CliSession().service(WorkloadHistory)


def test_the_modules_of_a_features_commands_are_in_its_room() -> None:
    """Of what `cotenant/cli` lists, these were once in it (docs/decisions/0031-commands-are-in-their-rooms.md)."""
    modules = {name: importlib.import_module(entry.module).__name__ for name, entry in listed().items() if entry.module}
    rooms = {name: module.removeprefix("cotenant.").partition(".commands")[0] for name, module in modules.items()}
    assert {name: rooms[name] for name in ROOM_OF_COMMAND} == ROOM_OF_COMMAND


ROOM_OF_COMMAND = {
    "recs": "changes",
    "audit": "changes",
    "autopilot": "autopilot",
    "reservations": "scheduler_ext.reservations",
    "convert": "scheduler_ext.reservations",
    "quotas": "scheduler_ext.queues",
    "waiting": "scheduler_ext.queues",
    "gangs": "scheduler_ext.queues",
    "queue": "scheduler_ext.queues",
    "descheduler": "scheduler_ext.rebalance",
    "extender": "scheduler_ext.extender",
    "pod": "scheduler_ext.extender",
}


def listed() -> dict[str, CommandEntry]:
    """Each command's entry by its own name."""
    return {entry.name: entry for top in COMMANDS for entry in (top, *top.children)}
