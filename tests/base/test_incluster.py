"""A pod's own account, without the kubernetes package."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotenant.base.errors import ClusterError
from cotenant.base.kube import incluster
from cotenant.base.kube.incluster import AccountFiles, server_of, service_account


@pytest.fixture
def files(tmp_path: Path) -> AccountFiles:
    (tmp_path / "token").write_text("abc.def\n")
    (tmp_path / "ca.crt").write_text("-")
    return AccountFiles(str(tmp_path / "token"), str(tmp_path / "ca.crt"), "https://10.0.0.1:6443")


def test_the_token_is_sent_as_its_file_says(files: AccountFiles) -> None:
    access = service_account(files, {})
    assert (access.server, access.authorization()) == ("https://10.0.0.1:6443", "Bearer abc.def")


def test_a_renewed_token_is_read_again_after_a_minute_and_a_missing_file_leaves_the_old_one(
    files: AccountFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    access = service_account(files, {})
    Path(files.token).write_text("new")
    assert access.authorization() == "Bearer abc.def"
    now[0] += incluster.REREAD_SECONDS
    assert access.authorization() == "Bearer new"
    Path(files.token).unlink()
    now[0] += incluster.REREAD_SECONDS
    assert access.authorization() == "Bearer new"


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\nline"])
def test_a_file_that_holds_no_token_is_an_error(files: AccountFiles, text: str) -> None:
    Path(files.token).write_text(text)
    with pytest.raises(ClusterError, match="contains no token"):
        service_account(files, {})


def test_what_is_missing_is_named(files: AccountFiles) -> None:
    Path(files.ca).unlink()
    with pytest.raises(ClusterError, match="there is no file"):
        service_account(files, {})


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}, "https://10.96.0.1:443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://[fd00::1]:6443"),
    ],
)
def test_the_server_is_the_one_that_the_kubelet_names(env: dict[str, str], url: str) -> None:
    assert server_of(env) == url


def test_outside_of_a_pod_there_is_none() -> None:
    with pytest.raises(ClusterError, match="KUBERNETES_SERVICE_HOST"):
        server_of({})


@pytest.mark.server
def test_nothing_heavy_is_loaded_for_it() -> None:
    code = "import sys, cotenant.base.kube.incluster; print('kubernetes' in sys.modules, 'yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
