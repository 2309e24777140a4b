"""What `make images` says about an archive: sizes, user, SBOM, and the limits that fail it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from tools.check_images import LIMIT_MEGABYTES, MEGABYTE, SBOM, Image, excess, main, read_image

PURL = "pkg:pypi/numpy@2.4.6"


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def write_archive(folder: Path, name: str, payload: bytes) -> Path:
    """An OCI archive of one compressed layer: a file `data` and an SBOM."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as inner:
        add(inner, "data", payload)
        add(inner, SBOM, json.dumps({"components": [{"purl": PURL}, {"name": "no address"}]}).encode())
    target = folder / f"{name}.oci.tar"
    with tarfile.open(target, "w") as outer:

        def blob(content: bytes, kind: str) -> dict[str, object]:
            digest = hashlib.sha256(content).hexdigest()
            add(outer, f"blobs/sha256/{digest}", content)
            return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

        config = blob(json.dumps({"config": {"User": "65532:65532", "Entrypoint": ["cotenant"]}}).encode(), "config")
        layers = [blob(gzip.compress(layer.getvalue()), "application/vnd.oci.image.layer.v1.tar+gzip")]
        manifest = blob(json.dumps({"config": config, "layers": layers}).encode(), "manifest")
        manifest["annotations"] = {"org.opencontainers.image.ref.name": f"docker.io/cotenant/{name}:0.1.0"}
        add(outer, "index.json", json.dumps({"manifests": [manifest]}).encode())
    return target


def test_an_archive_says_its_unpacked_size_user_and_components(tmp_path: Path) -> None:
    image = read_image(write_archive(tmp_path, "cotenant", bytes(100_000)))
    assert image.files["data"] == 100_000
    assert image.unpacked_bytes == 100_000 + image.files[SBOM]  # not what it takes compressed
    assert (image.user, image.entrypoint) == ("65532:65532", ("cotenant",))
    assert image.components == {PURL}


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "docker.tar", "w") as archive:
        add(archive, "manifest.json", b"[]")
    with pytest.raises(ValueError, match=r"docker\.tar: not an OCI archive, it has no index\.json"):
        read_image(tmp_path / "docker.tar")


@pytest.mark.parametrize("name", sorted(LIMIT_MEGABYTES))
def test_an_image_may_reach_its_limit_and_not_pass_it(name: str) -> None:
    limit = LIMIT_MEGABYTES[name] * MEGABYTE
    reference = f"docker.io/cotenant/{name}:0.1.0"
    assert excess(Image(reference, "", (), {"a": limit - 5, "b": 5}, {})) == ""
    assert f"the limit is {LIMIT_MEGABYTES[name]} MB" in excess(Image(reference, "", (), {"a": limit, "b": 5}, {}))
    assert "no limit is set for other" in excess(Image("docker.io/x/other:1", "", (), {}, {}))


def test_the_command_fails_when_an_image_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_archive(tmp_path, "cotenant", b"x")
    assert main(tmp_path) == 1
    printed = capsys.readouterr()
    assert "docker.io/cotenant/cotenant:0.1.0  0.0 MB unpacked" in printed.out
    assert "cotenant-node.oci.tar: no such archive; run `make images`" in printed.err
    write_archive(tmp_path, "cotenant-node", b"x")
    assert main(tmp_path) == 0
