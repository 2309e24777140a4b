"""`import cotenant`: it costs nothing, its signatures are stable, and the pages that show it run as printed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import cotenant
from tests.support.dashboard import WEEK, results
from tools.write_python_api import PAGE, ROOT, SIGNATURES, page, signatures

EXAMPLES = [
    (path.name, number, code)
    for path in (ROOT / "README.md", PAGE)
    for number, code in enumerate(
        re.findall(r"^```python\n(import .*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    )
]


def after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_module_alone_imports_neither_pandas_nor_numpy() -> None:
    assert not after("import cotenant; cotenant.NoData") & {"pandas", "numpy", "pyarrow", "sklearn"}


@pytest.mark.slow
def test_the_api_is_imported_with_its_first_name_and_without_a_web_framework() -> None:
    modules = after("import cotenant; cotenant.open_store")
    assert "pandas" in modules
    assert not modules & {"dash", "plotly", "fastapi", "typer", "kubernetes"}


def test_without_pandas_the_extra_is_named() -> None:
    code = "import sys; sys.modules['pandas'] = None\nimport cotenant\ntry:\n    cotenant.recommend\n"
    code += "except ImportError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "cotenant.recommend needs the package pandas: pip install 'cotenant[analytics]'\n"


def test_without_the_lab_the_extra_is_named() -> None:
    code = "import sys; sys.modules['cotenant_lab'] = None\nimport cotenant\ntry:\n    cotenant.demo_store\n"
    code += "except ImportError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "cotenant.demo_store needs the package cotenant_lab: pip install 'cotenant[demo]'\n"


def test_every_public_name_is_there_and_no_other() -> None:
    assert [name for name in cotenant.__all__ if not hasattr(cotenant, name)] == []
    assert set(cotenant.__all__) <= set(dir(cotenant))
    with pytest.raises(AttributeError, match="has no attribute 'open_shop'"):
        cotenant.open_shop  # type: ignore[attr-defined]  # noqa: B018


def test_what_type_checkers_see_is_what_is_looked_up() -> None:
    tree = ast.parse(Path(cotenant.__file__).read_text())
    conditions = (node for node in tree.body if isinstance(node, ast.If))
    guarded = next(node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING")
    homes = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert homes == cotenant._HOMES
    assert {*homes, "__version__"} == set(cotenant.__all__)


def test_signatures_are_those_that_callers_depend_on() -> None:
    """`python -m tools.write_python_api` renews them; CHANGELOG.md then says what changed."""
    assert SIGNATURES.read_text() == signatures()


def test_the_reference_is_what_the_docstrings_say() -> None:
    """`make docs` renews it."""
    assert PAGE.read_text() == page().rstrip() + "\n"


def test_every_function_and_method_says_what_it_gives() -> None:
    assert [line for line in page().split("\n### ")[1:] if len(line.split("\n\n")) < 3] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "code"), EXAMPLES, ids=[f"{name}-{number}" for name, number, _ in EXAMPLES])
def test_an_example_runs_as_printed(
    name: str,
    number: int,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    demo_results = results(tmp_path, spec=WEEK)
    monkeypatch.setenv("COTENANT_STORE__URL", demo_results.store.url)
    module = types.ModuleType("example")
    exec(compile(code, f"{name} {number}", "exec"), vars(module))
    printed = capsys.readouterr().out
    if "mine" in vars(module):
        # the mistake of the example is said with its fix
        assert printed == (
            "the DataFrame has no column 'cpu_usage_millicores', only 'cpu_usage_cores' in another unit - "
            "frame['cpu_usage_millicores'] = 1000 * frame['cpu_usage_cores']\n"
        )
    else:
        assert len(module.store.recommendations()) > 0


def test_both_pages_have_an_example() -> None:
    assert {name for name, _, _ in EXAMPLES} == {"README.md", "python-api.md"}
