"""The Python API on a bucket: opened by its URL, by a setting, and by a settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import cotenant
from tests.s3.conftest import Bucket

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("s3")]


def test_a_bucket_is_opened_like_a_folder(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size: dict[str, Any] = {"nodes": 2, "workloads": 8, "days": 1, "analyse": False}
    expected = cotenant.demo_store(tmp_path / "folder", **size).usage(resource="cpu")
    pd.testing.assert_frame_equal(cotenant.demo_store(bucket.url, **size).usage(resource="cpu"), expected)
    file = tmp_path / "settings.yaml"
    file.write_text(f"store:\n  url: {bucket.url}\n")
    assert len(cotenant.open_store(settings=file).usage(resource="cpu")) == len(expected)
    monkeypatch.setenv("COTENANT_STORE__URL", bucket.url)
    assert cotenant.open_store().cluster == "demo"
    with pytest.raises(cotenant.NoData, match="no history is stored at s3://"):
        cotenant.open_store(f"{bucket.url}/nothing")
