"""Hooks of mkdocs: a link to a file of the repository outside of ``docs/`` leads to a page that shows this file.

So the site needs no address of the repository, and a link to a file that is gone ends the build.  A list may follow
its paragraph without an empty line, as in the repository's own view.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(\]\()([^()\s#]+)(#[^()\s]*)?(\))")
_ITEM = re.compile(r"(?:[*-]|\d+\.) ")
_LANGUAGES = {".py": "python", ".md": "markdown", ".toml": "toml", ".yml": "yaml", ".cpp": "cpp", ".h": "cpp"}


def linked(base: str, text: str) -> list[str]:
    """Return the files outside of ``docs/`` that a text links; ``base`` is the text's own file, from the root."""
    targets = [_target(base, match[2]) for match in _LINK.finditer(text)]
    return [target for target in targets if not target.startswith("docs/") and (ROOT / target).is_file()]


def relinked(base: str, page: str, text: str) -> str:
    """Return the text with links for the site: those outside of ``docs/`` lead to pages of sources.

    Parameters
    ----------
    base : str
        The text's file, from the root of the repository.
    page : str
        Its file on the site, from ``docs/``.
    text : str
    """

    def of_site(match: re.Match[str]) -> str:
        target = _target(base, match[2])
        if not (ROOT / target).is_file():
            return match[0]  # mkdocs says that it leads nowhere
        shown = target.removeprefix("docs/") if target.startswith("docs/") else page_of(target)
        link = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"{match[1]}{link}{match[3] or ''}{match[4]}"

    return _LINK.sub(of_site, text)


def with_lists(text: str) -> str:
    """Return the text with an empty line between a paragraph and a list's item, which Markdown of Python needs.

    The paragraph may stand before the list, or be the last one of the item before.
    """
    lines: list[str] = []
    is_code, block = False, ""
    for line in text.split("\n"):
        is_code ^= line.lstrip().startswith(("```", "~~~"))
        if not is_code and _ITEM.match(line) and block and not _ITEM.match(block):
            lines.append("")
            block = ""
        lines.append(line)
        block = line and (block or line)
    return "\n".join(lines)


def page_of(source: str) -> str:
    """Return the page that shows a file of the repository."""
    return f"source/{source}" if source.endswith(".md") else f"source/{source}.md"


def _target(base: str, link: str) -> str:
    return "" if ":" in link else posixpath.normpath(posixpath.join(posixpath.dirname(base), link))


def _shown(source: str) -> str:
    text = (ROOT / source).read_text()
    if source.endswith(".md"):
        return text
    return f"# `{source}`\n\n~~~~~~ {_LANGUAGES.get(Path(source).suffix, 'text')}\n{text}\n~~~~~~\n"


def on_config(config: Any) -> None:
    """Let the foot of each page lead to the repository, where its address is given."""
    if address := config.extra["repository"]:
        link = {"icon": "material/source-repository", "link": address, "name": "The repository"}
        config.extra["social"] = [link]


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each file that a page links, and for each that these link."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    waiting = [source for base, text in texts.items() for source in linked(base, text)]
    created: set[str] = set()
    while waiting:
        source = waiting.pop()
        if source in created:
            continue
        created.add(source)
        shown = _shown(source)
        files.append(
            File.generated(config, page_of(source), content=shown, inclusion=InclusionLevel.NOT_IN_NAV)
        )
        if source.endswith(".md"):
            waiting += linked(source, shown)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let the links of a page lead to pages of the site."""
    uri = page.file.src_uri
    base = uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"
    return with_lists(relinked(base, uri, markdown))
