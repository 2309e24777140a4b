"""Read container images from OCI archives: unpacked size, user, SBOM; exit code 1 when one is above its limit.

python -m tools.check_images [FOLDER]      default: ~/.cache/cotenant/images, where `make images` writes
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

MEGABYTE: Final = 1_000_000
LIMIT_MEGABYTES: Final[Mapping[str, int]] = {"cotenant": 700, "cotenant-node": 120}
"""Name of a repository -> what its image may take unpacked."""
SBOM: Final = "usr/share/sbom/cotenant.cdx.json"


@dataclass(frozen=True, slots=True)
class Image:
    """What an archive says about its image. `files`: path -> bytes of each regular file."""

    reference: str
    user: str
    entrypoint: tuple[str, ...]
    files: Mapping[str, int]
    sbom: Mapping[str, Any]

    @property
    def unpacked_bytes(self) -> int:
        """All files together."""
        return sum(self.files.values())

    @property
    def components(self) -> frozenset[str]:
        """Package URLs of the SBOM."""
        return frozenset(c["purl"] for c in self.sbom.get("components", ()) if "purl" in c)


def read_image(archive: Path) -> Image:
    """The image of an OCI archive; ValueError when it is none."""
    with tarfile.open(archive) as outer:
        index = _json(outer, "index.json")
        described = index["manifests"][0]
        manifest = _json(outer, _blob(described))
        config = _json(outer, _blob(manifest["config"]))["config"]
        files: dict[str, int] = {}
        sbom: Mapping[str, Any] = {}
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_unpacked(outer, layer)) as inner:
                for member in inner:
                    if member.isreg():
                        files[member.name] = member.size
                    if member.name == SBOM:
                        sbom = json.load(_stream(inner, member.name))
    reference = described.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
    return Image(reference, config.get("User", ""), tuple(config.get("Entrypoint") or ()), files, sbom)


def excess(image: Image) -> str:
    """What is wrong with an image's size; "" when nothing is."""
    name = image.reference.rpartition("/")[2].partition(":")[0]
    limit = LIMIT_MEGABYTES.get(name)
    if limit is None:
        return f"{image.reference}: no limit is set for {name}; add it to LIMIT_MEGABYTES"
    if image.unpacked_bytes <= limit * MEGABYTE:
        return ""
    return f"{image.reference}: {image.unpacked_bytes / MEGABYTE:.1f} MB unpacked, the limit is {limit} MB"


def main(folder: Path) -> int:
    """Print a line an image; 1 when one is above its limit or missing."""
    faults = []
    for name in LIMIT_MEGABYTES:
        archive = folder / f"{name}.oci.tar"
        if not archive.is_file():
            faults.append(f"{archive}: no such archive; run `make images`")
            continue
        image = read_image(archive)
        size = (
            f"{image.unpacked_bytes / MEGABYTE:.1f} MB unpacked, {archive.stat().st_size / MEGABYTE:.1f} MB as archive"
        )
        print(f"{image.reference}  {size}, user {image.user}, {len(image.components)} components in its SBOM")
        faults += filter(None, [excess(image)])
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return bool(faults)


def _blob(described: Mapping[str, Any]) -> str:
    return "blobs/" + str(described["digest"]).replace(":", "/")


def _stream(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(name)
    if stream is None:
        raise ValueError(str(archive.name) + f": {name} is not a file")
    return stream


def _json(archive: tarfile.TarFile, name: str) -> Any:
    try:
        return json.load(_stream(archive, name))
    except KeyError:
        raise ValueError(str(archive.name) + f": not an OCI archive, it has no {name}") from None


def _unpacked(archive: tarfile.TarFile, layer: Mapping[str, Any]) -> IO[bytes] | gzip.GzipFile:
    stream = _stream(archive, _blob(layer))
    return gzip.GzipFile(fileobj=stream) if layer["mediaType"].endswith("gzip") else stream


def default_folder() -> Path:
    """Where `make images` writes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cotenant" / "images"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else default_folder()))
