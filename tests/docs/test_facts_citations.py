"""Each citation, as ``facts/acl 2.7``, names a section of docs/facts, and each page there has sources."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs" / "facts").glob("*.md"))}
SCANNED = ("src", "native", "tests", "docs", "examples", "scripts")
SUFFIXES = frozenset({".py", ".pyi", ".pyx", ".h", ".hpp", ".cpp", ".md", ".txt", ".toml", ".cfg", ".pat"})

SECTION = r"\d+(?:\.\d+)*"
HEADING = re.compile(rf"^#{{2,4}} ({SECTION}) \S", re.MULTILINE)
# "facts/acl 2.7", "facts/hip 3.1, 3.2" and "facts/hcomm 3.8 to 3.10"; any other text that begins so is malformed.
CITATION = re.compile(
    rf"facts/(acl|cuda|hip|hcomm|links|mooncake|nixl|torch|ucx)\s+({SECTION}(?:(?:,| and| to)\s+{SECTION})*)"
)
BEGINNING = re.compile(r"facts/(?:acl|cuda|hip|hcomm|links|mooncake|nixl|torch|ucx)\b(?!\.md(?! \d))")
# Forms of citations from before the facts were in the repository.
OLD = re.compile(r"\bspec`{0,2},?\s+(?:acl|hip|hcomm)\b|\bseed document\b")
SECTIONS = {page: HEADING.findall(text) for page, text in PAGES.items()}


def unresolved(text: str) -> list[str]:
    """Return the citations of a text that are malformed, name an unknown section, or have an old form."""
    cited = {citation.start(): citation for citation in CITATION.finditer(text)}
    malformed = [
        text[citation.start() : citation.end() + 10]
        for citation in BEGINNING.finditer(text)
        if citation.start() not in cited
    ]
    unknown = [
        f"facts/{citation[1]} {section}"
        for citation in cited.values()
        for section in re.findall(SECTION, citation[2])
        if section not in SECTIONS[citation[1]]
    ]
    return malformed + unknown + [citation[0] for citation in OLD.finditer(text)]


def scanned() -> list[Path]:
    inside = (path for folder in SCANNED for path in (ROOT / folder).rglob("*"))
    files = [path for path in (*inside, *ROOT.glob("*.md")) if path.suffix in SUFFIXES and path.is_file()]
    return [path for path in files if path != Path(__file__).resolve()]


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("(facts/acl 2.7)", []),
        ("the rows of facts/hip 3.1 and 3.2, and facts/hip 4.", []),
        ("(facts/hcomm 3.8 to 3.10)", []),
        ("(facts/hip 3.7,\n    facts/acl 2.7)", []),
        ("see docs/facts/acl.md", []),
        ("(facts/acl 2.7, 9.9)", ["facts/acl 9.9"]),
        ("(facts/acl)", ["facts/acl)"]),
        ("docs/facts/acl.md 2.7", ["facts/acl.md 2.7"]),
        ("(spec acl 2.7)", ["spec acl"]),
        ("(``spec`` hip 3.7)", ["spec`` hip"]),
        ("(spec\n    hcomm 3.9)", ["spec\n    hcomm"]),
        ("(spec acl, head)", ["spec acl"]),
        ("seed document 1", ["seed document"]),
    ],
)
def test_unresolved_of_a_text_returns_what_names_no_section(text: str, citation: list[str]) -> None:
    assert unresolved(text) == citation


def test_citations_of_the_repository_name_sections_that_exist() -> None:
    files = scanned()
    wrong = {str(path.relative_to(ROOT)): unresolved(path.read_text()) for path in files}
    assert {name: citation for name, citation in wrong.items() if citation} == {}
    assert any(CITATION.search(path.read_text()) for path in files)


def test_facts_have_a_page_for_each_vendor_and_for_libraries() -> None:
    assert list(PAGES) == ["acl", "cuda", "hcomm", "hip", "links", "mooncake", "nixl", "torch", "ucx"]


@pytest.mark.parametrize("page", PAGES)
def test_sections_of_a_page_are_numbered_in_order_and_once(page: str) -> None:
    numbers = [tuple(map(int, each.split("."))) for each in SECTIONS[page]]
    assert numbers
    assert all(one < other for one, other in pairwise(numbers))


@pytest.mark.parametrize("page", PAGES)
def test_references_within_a_page_name_its_sections(page: str) -> None:
    named = re.findall(rf"\b(?:[Ss]ee|sections?) ({SECTION})", PAGES[page])
    assert named
    assert set(named) <= set(SECTIONS[page])


@pytest.mark.parametrize("page", PAGES)
def test_sources_of_a_page_define_each_mark_that_it_uses(page: str) -> None:
    _, head, rest = PAGES[page].partition("\n## Sources\n")
    assert head
    sources = rest.partition("\n## ")[0]
    defined = dict(re.findall(r"^\| (?!mark |name |-)([^|]+?) \| ([^|]+?) \|$", sources, re.MULTILINE))
    assert len(defined) >= 5
    marks = set(re.findall(r"(?<!\w)\[(\?|[A-Za-z]\w*)[^\]]*\]", re.sub(r"`[^`]*`", "", rest)))
    assert marks
    assert marks <= set(defined)
