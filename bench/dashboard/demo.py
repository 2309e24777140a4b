"""From `cotenant demo` to the first drawn chart in a real browser, and what the demo costs.

.venv/bin/python -m bench.dashboard.demo
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from bench.record import Row, below, record

COMMAND = ".venv/bin/python -m bench.dashboard.demo"
COTENANT = Path(sys.executable).with_name("cotenant")
CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def first_chart(url: str) -> None:
    """Open the overview and wait until a figure is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(CHROMIUM_FLAGS))
        page = browser.new_page(bypass_csp=True)
        page.goto(url)
        page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
        browser.close()


def await_answer(url: str) -> None:
    """Wait for an answer, whatever it is."""
    with suppress(HTTPError):
        urlopen(url, timeout=30).close()


def peak_rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def started(home: str) -> list[float]:
    """Seconds to the first answer, to the page and to its first chart, peak MiB and exit code of one start."""
    began = time.perf_counter()
    command = [str(COTENANT), "demo", "--no-browser", "--port", "0"]
    env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "XDG_STATE_HOME": f"{home}/state"}
    demo = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert demo.stderr is not None
    early = next(urls[0] for line in demo.stderr if (urls := re.findall(r"(http://\S+) shows", line)))
    await_answer(early)
    answered = time.perf_counter() - began
    url = next(urls[0] for line in demo.stderr if (urls := re.findall(r"open (http://\S+)", line)))
    served = time.perf_counter() - began
    first_chart(url)
    drawn = time.perf_counter() - began
    rss = peak_rss_mib(demo.pid)
    demo.send_signal(signal.SIGINT)
    return [answered, served, drawn, rss, demo.wait(timeout=30)]


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        answered, served, drawn, rss, code = started(home)
        _, _, drawn_again, _, code_again = started(home)
    record(
        "demo",
        COMMAND,
        [
            below("cotenant demo to the first answer, a page with its progress", answered, "s", 3),
            below("make demo (installed) to the first chart", drawn, "s", 75, "60 nodes, 900 workloads, 28 days"),
            Row("of it: until the page is served", served, "s"),
            below("the second time, from the analysis that was kept", drawn_again, "s", 20),
            Row("peak RSS of the demo", rss, "MiB"),
            below("exit code after Ctrl-C", max(code, code_again), "", 0),
        ],
    )


if __name__ == "__main__":
    main()
