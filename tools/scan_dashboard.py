"""Scan a running dashboard with Wapiti: every address that its REST description names, with every kind of attack.

    make scan-dashboard ADDRESS='http://127.0.0.1:8050/?token=...'     # what `cotenant demo` prints

It signs in by the launch token as a browser does, and writes what the demo's cluster may be written: never scan a
dashboard of a real cluster that acts. Exit code 1 where Wapiti reports a weakness, or an answer of 500.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests

MODULES: Final = (
    "cookieflags,csp,csrf,exec,file,crlf,http_headers,methods,htaccess,log4shell,permanentxss,redirect,shellshock,"
    "spring4shell,sql,xss,xxe,ldap"
)
OF_PLAIN_HTTP: Final = "Secure Flag cookie"
"""Over http, which only the loopback may use, a cookie with this flag would not come back."""
READ_BY_SCRIPT: Final = "_csrf_token"
"""Our pages send this cookie's value back in a header, which takes a script that may read it."""
SIGN_OUT: Final = "/auth/logout"


def described(session: requests.Session, origin: str) -> dict[str, Any]:
    """The REST description with the address to scan, without the way out."""
    response = session.get(f"{origin}/openapi.json", timeout=60)
    response.raise_for_status()
    document: dict[str, Any] = response.json()
    paths = {path: operations for path, operations in document["paths"].items() if path != SIGN_OUT}
    return {**document, "paths": paths, "servers": [{"url": origin}]}


def weaknesses(report: Mapping[str, Any]) -> Iterator[str]:
    """A line for each finding, but for those that a cookie of the loopback cannot do without."""
    for part in ("vulnerabilities", "anomalies"):
        for kind, findings in report[part].items():
            for finding in findings:
                expected = kind == OF_PLAIN_HTTP or (
                    kind == "HttpOnly Flag cookie" and READ_BY_SCRIPT in finding["info"]
                )
                if not expected:
                    yield f"{kind}: {finding['method']} {finding['path']}: {finding['info']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of the dashboard, with its launch token")
    parser.add_argument("--wapiti", default="wapiti", help="the program")
    parser.add_argument("--seconds", type=int, default=600, help="that one kind of attack may take")
    arguments = parser.parse_args()
    parts = urlsplit(arguments.address)
    origin = f"{parts.scheme}://{parts.netloc}"
    session = requests.Session()
    session.get(arguments.address, timeout=60).raise_for_status()
    with tempfile.TemporaryDirectory() as folder:
        description, report = Path(folder, "openapi.json"), Path(folder, "report.json")
        description.write_text(json.dumps(described(session, origin)), encoding="utf-8")
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in session.cookies)
        command = [
            arguments.wapiti,
            "-u",
            f"{origin}/",
            "--swagger",
            str(description),
            "-C",
            cookies,
            "--drop-set-cookie",
        ]
        command += ["-x", f"{origin}{SIGN_OUT}*", "-m", MODULES, "--max-attack-time", str(arguments.seconds)]
        command += ["--store-session", f"{folder}/session", "--store-config", f"{folder}/config", "--no-bugreport"]
        subprocess.run([*command, "-f", "json", "-o", str(report)], check=True)
        lines = sorted(set(weaknesses(json.loads(report.read_text(encoding="utf-8")))))
    for line in lines:
        print(line)
    print(f"{len(lines)} weaknesses" if lines else "no weakness found")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
