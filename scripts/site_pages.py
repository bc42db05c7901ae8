"""A hook of mkdocs: README.md is the site's first page; CONTRIBUTING.md and CHANGELOG.md are pages, too.

The site also has the files of examples/operations, to which the pages link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent


def on_config(config: MkDocsConfig) -> None:
    """Add the records of decisions to the last part of the navigation, the internals."""
    records = sorted((ROOT / "docs" / "design").glob("*.md"))
    config.nav[-1]["Internals"].append({"Decisions": [f"design/{each.name}" for each in records]})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add these pages, with links that lead out of docs/ turned to it."""
    pages = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
    for name, page in pages.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text())
        files.append(File.generated(config, page, content=text))
    for file in sorted((ROOT / "examples" / "operations").iterdir()):
        files.append(File.generated(config, file.relative_to(ROOT).as_posix(), content=file.read_text()))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links that lead out of docs/ to the copies in the site."""
    here = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"](../{here}", f"]({here}")
