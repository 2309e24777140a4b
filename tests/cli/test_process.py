"""The command line as a process: exit codes, streams, colour, closed pipes, what it imports, how fast it starts."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.server, pytest.mark.slow]

COMPLETION = Path(__file__).resolve().parents[2] / "release" / "completion"
ENTRY = "from cotenant.cli.main import run; run()"


def cotenant(*args: str, env: dict[str, str] | None = None, code: str = ENTRY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], env=clean(env), capture_output=True, text=True, check=False, timeout=60
    )


def clean(env: dict[str, str] | None = None) -> dict[str, str]:
    """Our environment without what would change the output."""
    variables = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("COTENANT_", "NO_COLOR", "FORCE_COLOR", "XDG_", "OMP_"))
    }
    return {**variables, "TERM": "xterm-256color", "COLUMNS": "100", "HOME": "/nonexistent", **(env or {})}


def on_a_terminal(*args: str, env: dict[str, str] | None = None, code: str = ENTRY) -> tuple[int, str]:
    """Exit code and everything written, with stdin, stdout and stderr on a pseudo-terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], env=clean(env), stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # EIO: the last writer is gone
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    return process.wait(timeout=60), b"".join(chunks).decode()


def probe_entry(folder: Path, body: str) -> str:
    """Code of a program whose command `probe` has this body."""
    (folder / "probe_command.py").write_text(
        "import typer\nfrom cotenant.base.commands.session import EXIT_FINDINGS, new_app\n"
        "from cotenant.base.errors import StoreError, UsageError\napp = new_app()\n"
        f"@app.command()\ndef probe() -> None:\n    {body}\n"
    )
    return (
        "import sys; from cotenant.cli import main; sys.path.insert(0, " + repr(str(folder)) + ");"
        "main.COMMANDS = (main.CommandEntry('probe', 'probe_command', 'Probe.'),); main.run()"
    )


def test_data_goes_to_stdout_and_words_to_stderr() -> None:
    shown = cotenant("version", "-o", "json")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert json.loads(shown.stdout)["version"]
    checked = cotenant("config", "validate")
    assert (checked.returncode, checked.stdout) == (0, "")
    assert checked.stderr.startswith("valid: 0 of ")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("version",), 0),
        (("--help",), 0),
        (("config", "validate", "/missing.yaml"), 2),
        (("config", "show", "--set", "nonsense"), 2),
        (("version", "--nonsense"), 2),
        (("nonsense",), 2),
    ],
)
def test_exit_codes(args: tuple[str, ...], code: int) -> None:
    ended = cotenant(*args)
    assert ended.returncode == code
    assert (ended.stdout == "") == (code == 2)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise typer.Exit(EXIT_FINDINGS)", 3),
        ("raise StoreError('full', fix='Make room.')", 1),
        ("raise UsageError('no such cluster')", 2),
        ("raise RuntimeError('bug')", 1),
        ("raise KeyboardInterrupt", 130),
        ("pass", 0),
    ],
)
def test_what_a_command_raises_decides_the_exit_code(tmp_path: Path, body: str, code: int) -> None:
    entry = probe_entry(tmp_path, body)
    ended = cotenant("probe", code=entry)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("arguments", [["config", "docs"], ["--help"], ["config", "show", "dashboard.port"]])
def test_a_reader_that_is_gone_gets_no_traceback(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        env=clean(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [["--help"], ["get", "--help"], ["version"], ["config", "show", "-o", "json"]])
def test_an_output_that_a_full_disk_does_not_take_is_an_error_in_words(arguments: list[str]) -> None:
    # Help is printed before any command runs; what is short fails at the last flush, 260 settings on the way.
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", ENTRY, *arguments],
            env=clean(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "error: the output cannot be written: No space left on device",
        "fix: Free disk space, or write the output to another place.",
    ]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_what_is_printed_to_a_stream_that_the_caller_closed_ends_up_in_no_file(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    written = tmp_path / "kept"
    body = (
        f"file = open({str(written)!r}, 'w'); typer.echo('printed'); typer.echo('said', err=True); file.write('whole')"
    )
    redirections = " ".join(f"{number}>&-" for number in closed)
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" probe {redirections}', sys.executable, probe_entry(tmp_path, body)],
        env=clean(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0
    assert (ended.stdout, ended.stderr) == ("printed\n" * (1 not in closed), "said\n" * (2 not in closed))
    assert written.read_text() == "whole"


def test_an_interrupt_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "slow_command.py").write_text(
        "import time\nfrom base.commands.session import new_app\nfrom base.commands.output import message\n"
        "app = new_app()\n"
        "@app.command()\ndef slow() -> None:\n    message('waiting')\n    time.sleep(60)\n"
    )
    entry = (
        # a shell that starts its tests in the background lets them ignore interrupts, and that is inherited
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from cotenant.cli import main; sys.path.insert(0, " + repr(str(tmp_path)) + ");"
        "main.COMMANDS = (main.CommandEntry('slow', 'slow_command', 'Slow.'),); main.run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", entry, "slow"], env=clean(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_a_table_with_colour_and_a_pipe_gets_none() -> None:
    code, shown = on_a_terminal("config", "show", "dashboard.port")
    assert code == 0
    assert COLOUR.search(shown)
    assert "Setting" in shown  # titles as they are, not kubectl's capitals
    assert not COLOUR.search(cotenant("config", "show", "dashboard.port").stdout)


def test_a_severity_is_coloured_and_the_text_stays_the_same() -> None:
    code = (
        "from cotenant.base.table import *\nfrom cotenant.base.commands.output import *\nText = Kind.TEXT\n"
        "schema = Schema('s', (Column('name', 'Name', Text, ''), Column('severity', 'Severity', Text, '')), ())\n"
        "rows = [{'name': 'a\\x1b[2Jb', 'severity': 'critical'}, {'name': 'critical', 'severity': 'good'}]\n"
        "print_table(Table.from_rows(schema, rows), Format.TABLE)"
    )
    ended, shown = on_a_terminal(code=code)
    assert ended == 0
    assert [line.rstrip() for line in COLOUR.sub("", shown).splitlines()] == [
        "Name       Severity",
        "─" * 19,
        "a\\x1b[2Jb  critical",
        "critical   good",
    ]
    assert shown.count("\x1b[1;31mcritical") == 1, "the severity is red, the name is not"


@pytest.mark.parametrize(("args", "env"), [((), {"NO_COLOR": "1"}), (("--no-color",), {})])
@pytest.mark.parametrize("command", [("config", "show", "dashboard.port"), ("--help",), ("nonsense",)])
def test_no_color_means_no_colour(args: tuple[str, ...], env: dict[str, str], command: tuple[str, ...]) -> None:
    _, shown = on_a_terminal(*command, *args, env=env)
    codes = {code for codes_of_match in re.findall(r"\x1b\[([0-9;]*)m", shown) for code in codes_of_match.split(";")}
    assert not {c for c in codes if c.isdigit() and 30 <= int(c) <= 107}, "no colour; bold and dim may stay"


def test_an_ascii_locale_gets_escapes_instead_of_an_error(tmp_path: Path) -> None:
    file = tmp_path / "größe.yaml"
    file.write_text("dashboard: {port: 8051}")
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    ended = cotenant("config", "show", "dashboard.port", "--config", str(file), env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "gr\\xf6\\xdfe.yaml line 1" in ended.stdout


def test_a_table_wider_than_the_terminal_is_not_cut() -> None:
    _, shown = on_a_terminal("config", "show", "store", "-o", "wide", env={"COLUMNS": "40"})
    assert "fsspec URL of the store; empty means the folder cotenant in" in COLOUR.sub("", shown).replace("\r\n", "")


def test_the_completion_of_bash_is_shown_and_installed(tmp_path: Path) -> None:
    """The shell is named instead of detected: whoever runs the tests may have none."""
    env = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = cotenant("--show-completion", "bash", env=env)
    assert shown.returncode == 0
    assert "complete -o default -F _cotenant_completion cotenant" in shown.stdout
    assert cotenant("--install-completion", "bash", env=env).returncode == 0
    (script,) = tmp_path.rglob("cotenant.sh")
    assert "complete -o default -F _cotenant_completion cotenant" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(("shell", "file"), [("bash", "cotenant"), ("zsh", "_cotenant"), ("fish", "cotenant.fish")])
def test_a_wheel_carries_the_completion_that_the_program_prints(shell: str, file: str) -> None:
    """`cotenant --show-completion SHELL > release/completion/FILE` renews it."""
    shown = cotenant("--show-completion", shell, env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert shown.returncode == 0
    assert (COMPLETION / file).read_text() == shown.stdout


def test_completion_knows_commands_and_subcommands() -> None:
    def completed(line: str) -> list[str]:
        word_count = len(line.split()) - (not line.endswith(" "))
        env = {"_COTENANT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word_count)}
        return cotenant(env=env).stdout.split()

    assert "serve" in completed("cotenant se")
    assert completed("cotenant config va") == ["validate"]
    assert completed("cotenant version --output j") == ["json"]


def test_version_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pandas", "pyarrow", "kubernetes", "dash", "sklearn", "statsmodels", "requests", "yaml")
    code = (
        "import sys, atexit\nfrom cotenant.cli.main import run\n"
        f"atexit.register(lambda: print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr))\nrun()"
    )
    assert cotenant("version", code=code).stderr.strip() == "[]"
    assert cotenant("--help", code=code).stderr.strip() == "[]"


def test_threads_of_a_training_that_wait_for_each_other_leave_the_processor_to_others() -> None:
    code = f"try:\n    {ENTRY}\nfinally:\n    import sklearn.utils._openmp_helpers"
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in cotenant("version", code=code, env={"OMP_DISPLAY_ENV": "TRUE"}).stderr


def test_help_starts_fast() -> None:
    """Goal 0.5 s on an idle core: counted in processor time, and once in ten is enough: a busy machine costs some."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cotenant("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(seconds() < 0.5 for _ in range(10))


@pytest.mark.parametrize("form", ["json", "console"])
def test_log_lines_go_to_stderr_in_the_form_asked_for(tmp_path: Path, form: str) -> None:
    (tmp_path / "talk_command.py").write_text(
        "import structlog, typer\nfrom cotenant.base.commands.session import new_app, session_of\napp = new_app()\n"
        "@app.command()\ndef talk(ctx: typer.Context) -> None:\n"
        "    session_of(ctx).load()\n    structlog.get_logger('room').debug('asked', pods=3)\n    print('data')\n"
    )
    entry = (
        "import sys; from cotenant.cli import main; sys.path.insert(0, " + repr(str(tmp_path)) + ");"
        "main.COMMANDS = (main.CommandEntry('talk', 'talk_command', 'Talk.'),); main.run()"
    )
    assert cotenant("talk", "--log-format", form, code=entry).stderr == "", "debug lines are for --debug"
    ended = cotenant("talk", "--log-format", form, "--debug", code=entry)
    assert (ended.returncode, ended.stdout) == (0, "data\n")
    if form == "json":
        line = json.loads(ended.stderr)
        assert (line["msg"], line["pods"], line["level"]) == ("asked", 3, "debug")
    else:
        assert "asked" in ended.stderr
        assert "pods=3" in ended.stderr
