"""Rules that hold for every manifest that is shipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def volumes() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file, volume) of every pod template in deploy/."""
    for file in sorted(f for f in DEPLOY.glob("**/*.yaml") if f.relative_to(DEPLOY).parts[0] != "chart"):
        for document in yaml.safe_load_all(file.read_text()):
            template = ((document or {}).get("spec") or {}).get("template") or {}
            for volume in (template.get("spec") or {}).get("volumes") or ():
                yield str(file.relative_to(DEPLOY)), volume


@pytest.mark.slow
def test_a_path_of_the_node_says_what_it_is_so_that_no_folder_is_made_in_a_files_place() -> None:
    """Without a type a runtime makes a folder where nothing is: a file's name is then taken on that node."""
    typed = {(file, v["name"]): v["hostPath"].get("type", "") for file, v in volumes() if "hostPath" in v}
    assert ("enforcer.yaml", "kubelet-config") in typed
    assert [place for place, kind in typed.items() if not kind] == []
    assert typed["enforcer.yaml", "kubelet-config"] in ("File", "FileOrCreate")
