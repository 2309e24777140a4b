"""Write docs/python-api.md from the docstrings of the Python API, and the signatures that a test holds stable.

python -m tools.write_python_api
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import cotenant

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "python-api.md"
SIGNATURES: Final = ROOT / "tests" / "python_api" / "signatures.txt"
INTRODUCTION: Final = """\
# Python

Generated from docstrings by `make docs`; do not edit.

`import cotenant` gives what a scan stored as pandas DataFrames, and runs forecasts, strategies and back-tests on a
DataFrame of your own. It takes `pip install cotenant[analytics]`. The [notebooks](../notebooks) use nothing else.

Every column has a type: names are `str`, whole amounts `Int64` (missing: `<NA>`), others `float64`, times UTC. The unit
of an amount is in its column's name: `_millicores`, `_bytes`, `_seconds`. Where a DataFrame holds amounts of one
resource, `resource="cpu"` or `"memory"` says which. Numbers are those of the command line; `where=` is
[the one filter grammar](filters.md).

## A worked example

```python
import cotenant

store = cotenant.open_store()  # as settings say, or a folder, or "s3://bucket/folder"; cluster= where there are several
store.recommendations("namespace=pay&severity in (critical,warning)&sort=-cpu_delta_total")
by_namespace = store.recommendations().groupby("namespace")["cpu_delta_total_millicores"].sum() / 1000

usage = store.usage("pay/Deployment/checkout", resource="cpu")  # long form: time, names, cpu_usage_millicores
tomorrow = cotenant.forecast_paths(cotenant.forecast(usage))  # q10, q50, q90, q95 of 48 half hours
tomorrow.set_index("time")[["q50_millicores", "q95_millicores"]]

ours = store.recommend(strategy="cotenant", where="namespace=pay")
krr = store.recommend(strategy="krr-simple", where="namespace=pay")
(ours["cpu_request_millicores"] - krr["cpu_request_millicores"]).describe()
```

## A DataFrame of your own

One row a series and moment. Needed are `time` and `workload`, and `cpu_usage_millicores` (mean of the slot that begins
then) or `memory_working_set_bytes` (highest of it); `namespace`, `kind`, `pod`, `container` tell series apart. Gaps are
missing rows or NaN. What is wrong is said with the column, the value, its unit and a fix:

```python
import pandas as pd

import cotenant

times = pd.date_range("2026-11-02", periods=7 * 288, freq="5min", tz="UTC")
mine = pd.DataFrame({"time": times, "workload": "api", "container": "app", "cpu_usage_cores": 0.25})
try:
    cotenant.recommend(mine, strategy="krr-simple")
except cotenant.FrameError as error:
    print(error, "-", error.fix)
mine["cpu_usage_millicores"] = 1000 * mine["cpu_usage_cores"]
cotenant.recommend(mine, strategy="krr-simple")[["workload", "cpu_request_millicores", "cpu_reason", "memory_reason"]]
```
"""


def members() -> Iterator[tuple[str, Any]]:
    """Public names and what they are, methods and properties of classes after their class."""
    for name in cotenant.__all__:
        value = getattr(cotenant, name)
        yield name, value
        if inspect.isclass(value) and not issubclass(value, Exception):
            yield from ((f"{name}.{method}", of) for method, of in vars(value).items() if not method.startswith("_"))


def signatures() -> str:
    """One line a function, method or constant: what callers depend on."""
    return "".join(f"{line}\n" for line in (_signature(name, value) for name, value in members()) if line)


def _signature(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"{name}: {inspect.signature(value.fget).return_annotation}"  # type: ignore[arg-type]
    if inspect.isclass(value):
        return f"class {name}({', '.join(base.__name__ for base in value.__bases__)})"
    if inspect.isfunction(value):
        shown = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
        return name + shown.replace("(self, ", "(").replace("(self)", "()")
    return "" if name == "__version__" else f"{name} = {value}"


def page() -> str:
    """The reference."""
    lines = [INTRODUCTION]
    errors = []
    for name, value in members():
        if inspect.isclass(value) and issubclass(value, Exception):
            errors.append(f"| `{name}` | {(value.__doc__ or '').partition(chr(10))[0]} |")
        elif inspect.isfunction(value) or inspect.isclass(value) or isinstance(value, property):
            lines += _entry(name, value)
    lines += ["## Levels", "", f"`cotenant.LEVELS`: quantile levels of every forecast, {cotenant.LEVELS}.", ""]
    lines += ["## Errors", "", "Each says what is wrong (`message`) and what helps (`fix`).", ""]
    lines += ["| error | meaning |", "|---|---|", *errors, ""]
    return "\n".join(lines)


def _entry(name: str, value: Any) -> list[str]:
    heading = "###" if "." in name else "##"
    text = inspect.getdoc(value) or ""
    signature = _signature(name, value)
    code = ["```python", signature, "```", ""] if not inspect.isclass(value) else []
    return [f"{heading} {name.rpartition('.')[2]}", "", *code, text, ""]


if __name__ == "__main__":
    PAGE.write_text(page().rstrip() + "\n", encoding="utf-8")
    SIGNATURES.write_text(signatures(), encoding="utf-8")
