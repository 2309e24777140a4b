"""Hooks of mkdocs.yml: pages of the site that are files outside docs/, links that leave docs/, folders in `nav`.

Notebooks are shown with the outputs that are stored in them; the site's environment has no Jupyter.

A link keeps the form that is right in the repository. On the site, a link to a file that is no page leads to the
repository when COTENANT_REPOSITORY names one (https://host/owner/name/blob/main), and is plain text otherwise.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
OUTSIDE: Final = {
    "index.md": "README.md",
    "benchmarks.md": "bench/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    **{f"notebooks/{file.stem}.md": f"notebooks/{file.name}" for file in sorted((ROOT / "notebooks").glob("*.ipynb"))},
}
"""Page of the site -> the file of the repository that it shows."""
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


FENCE: Final = "````"
"""Longer than what a cell of a notebook may contain."""
_STYLE: Final = re.compile(r"<style.*?</style>|<script.*?</script>", re.DOTALL)


def page_of(notebook: str) -> str:
    """The Markdown of a notebook's JSON: its texts, its code, and below each code what it gave."""
    cells = json.loads(notebook)["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"{FENCE}python\n{source}\n{FENCE}"
    for output in cell.get("outputs", ()):
        yield _shown(output)


def _shown(output: Mapping[str, Any]) -> str:
    data = output.get("data", {})
    if picture := data.get("image/png"):
        return f'<img alt="output of the cell above" src="data:image/png;base64,{"".join(picture).strip()}">'
    if table := data.get("text/html"):
        lines = _STYLE.sub("", "".join(table)).splitlines()  # a blank line would end the block for Markdown
        return "\n".join(line for line in lines if line.strip())
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return f"{FENCE}text\n{text.rstrip()}\n{FENCE}"


def expanded(nav: Any, docs: Path) -> Any:
    """The navigation with each "folder/" replaced by its pages. nav: as in mkdocs.yml."""
    if isinstance(nav, dict):
        return {title: expanded(entry, docs) for title, entry in nav.items()}
    if isinstance(nav, list):
        return [expanded(entry, docs) for entry in nav]
    if nav == "notebooks/":  # they stand outside docs/
        return [page for page in OUTSIDE if page.startswith(nav)]
    if nav.endswith("/"):
        pages = sorted((page.name for page in (docs / nav).glob("*.md")), key=lambda name: (name != "index.md", name))
        return [f"{nav}{name}" for name in pages]
    return nav


def relinked(markdown: str, page: str, repository: str) -> str:
    """The text of a page with its links as the site needs them. page: its name on the site."""
    source = OUTSIDE.get(page, f"docs/{page}")

    def link(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = next((name for name, shown in OUTSIDE.items() if shown == file), None)
        if on_site is None and file.startswith("docs/"):
            on_site = file.removeprefix("docs/")
        if on_site is not None:
            near = posixpath.relpath(on_site, posixpath.dirname(page) or ".")
            return f"{image}[{text}]({near}{hash_sign}{anchor})"
        if not (ROOT / file).exists():
            return match[0]  # mkdocs says that it leads nowhere
        return f"[{text}]({repository}/{file}{hash_sign}{anchor})" if repository else text

    return _LINK.sub(link, markdown)


def on_config(config: Any) -> Any:
    """Folders in `nav`; anchors made of headings as the repository's viewers make them."""
    from pymdownx.slugs import slugify

    config.nav = expanded(config.nav, Path(config.docs_dir))
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside docs/."""
    from mkdocs.structure.files import File

    for page, file in OUTSIDE.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        content = page_of(text) if file.endswith(".ipynb") else text
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - mkdocs names them
    """Links as the site needs them."""
    return relinked(markdown, page.file.src_uri, config.extra["repository"])
