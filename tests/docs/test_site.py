"""The site builds without a warning, asks no other host, names each public name, and fits a phone and a desk."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import peerlane
from docs_site.source_pages import linked, relinked, with_lists
from helpers.browser import NEEDS_BROWSER, running
from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What a browser fetches by itself, unlike the target of a link.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)
# A line that Markdown would have made an item, a heading, a table or a block of code.
MARKUP = re.compile(r"^(?:[*-] |##|===|~~~|```|\||::$).*", re.MULTILINE)
# The page of a program, unlike that of a text such as source/CHANGELOG.html.
BLOCK_OF_CODE = re.compile(r"source/.*\.\w+\.html$")
# The texts of a page whose colour has a contrast below 4.5 with what lies behind it, as WCAG defines it.
FAINT = """() => {
  const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
  const over = (front, back) => back.map((it, i) => front[i] * (front[3] ?? 1) + it * (1 - (front[3] ?? 1)));
  const behind = it => !it ? [255, 255, 255]
    : over(numbers(getComputedStyle(it).backgroundColor), behind(it.parentElement));
  const light = colour => colour.map(it => it / 255)
    .map(it => it <= .03928 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4)
    .reduce((sum, it, i) => sum + it * [.2126, .7152, .0722][i], 0);
  const faint = {}, texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const it = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
    if (!text || !it.checkVisibility()) continue;
    if (it.closest(".headerlink, .md-clipboard, .md-search, script, style")) continue;
    const back = behind(it), [one, other] = [light(over(numbers(getComputedStyle(it).color), back)), light(back)];
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    const least = parseFloat(getComputedStyle(it).fontSize) < 24 ? 4.5 : 3;
    if (contrast < least) faint[it.outerHTML.slice(0, 80)] = contrast;
  }
  return faint;
}"""
SHOWN = [
    "index",
    "mental-model",
    "guides/checking",
    "api/memory",
    "api/errors",
    "reference/acl",
    "errors",
    "performance",
    "state",
]


def build(config: Path, site: Path) -> tuple[int, str]:
    """Build a site strictly; return the exit code and what was said."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = ["-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    done = run_python(words, timeout=200, cwd=config.parent, env=environment)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site, which the workers of a run have in common."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = tmp_path_factory.getbasetemp()
    folder = base.parent / f"site-{run}" if run else base / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            code, messages = build(ROOT / "mkdocs.yml", folder)
            assert code == 0, messages
    return folder


@pytest.mark.takes_long
def test_site_pages_fetch_nothing_from_other_hosts(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 60
    assert [str(page) for page in pages if FETCHED.search(page.read_text())] == []
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.example/css">')


def test_page_for_a_wrong_address_leads_to_pages_of_the_site(site: Path) -> None:
    links = re.findall(r'<li><a href="/([\w/-]+\.html)">', (site / "404.html").read_text())
    assert len(links) > 3
    assert [each for each in links if not (site / each).exists()] == []


def test_site_shows_files_that_pages_link(site: Path) -> None:
    shown = (site / "source" / "examples" / "kv_transfer.py.html").read_text()
    assert "write_blocks" in shown
    assert 'href="../source/examples/kv_transfer.py.html"' in (site / "guides" / "checking.html").read_text()


def test_site_shows_native_attributes_parameters_and_links_of_roles(site: Path) -> None:
    memory = (site / "api" / "memory.html").read_text()
    assert 'id="peerlane.Buffer.device"' in memory  # an attribute that a native class provides
    assert "alignment" in memory  # a parameter of AddressRange.__new__
    assert ":meth:" not in memory
    assert 'href="devices.html#peerlane.Device.allocate"' in memory


def test_site_with_links_that_lead_nowhere_ends_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    wrong = ["gone.md", "index.md#gone", "../examples/gone.py", "/index.md"]
    (docs / "index.md").write_text("# Start\n\n" + "\n".join(f"[link]({link})" for link in wrong))
    (docs / "forgotten.md").write_text("# Not in the navigation\n")
    config = tmp_path / "mkdocs.yml"
    hook = ROOT / "scripts" / "docs_site" / "source_pages.py"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nextra_css: []\n"
        f"theme: {{custom_dir: {ROOT / 'scripts' / 'docs_site' / 'theme'}}}\n"
        f"hooks: [{hook}]\nplugins: [search]\n"
    )
    code, messages = build(config, tmp_path / "site")
    assert code == 1
    assert all(each in messages for each in ["forgotten.md", *wrong]), messages
    assert messages.count("WARNING") == 5, messages


class _Words(HTMLParser):
    """The text of a page outside of code."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._code += tag in {"code", "pre", "script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in {"code", "pre", "script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.texts.append(data)


def test_site_pages_show_no_markup_as_text(site: Path) -> None:
    shown: dict[str, list[str]] = {}
    for page in site.rglob("*.html"):
        words = _Words()
        words.feed(page.read_text())
        text = "".join(words.texts)
        assert "Apache-2.0" in text, page  # the foot: no tag of code was left open
        if markup := MARKUP.findall(text):
            shown[page.name] = markup
    assert shown == {}
    assert MARKUP.findall("it:\n* one\n## Head\n- two") == ["* one", "## Head", "- two"]


def test_link_outside_of_docs_leads_to_page_of_source() -> None:
    text = "[a](../../examples/kv_cache.py) [b](../errors.md#closed) [c](#here) [d](https://example.org/x.py)"
    assert linked("docs/guides/sharing.md", text) == ["examples/kv_cache.py"]
    assert relinked("docs/guides/sharing.md", "guides/sharing.md", text) == (
        "[a](../source/examples/kv_cache.py.md) [b](../errors.md#closed) [c](#here) [d](https://example.org/x.py)"
    )
    assert relinked("CHANGELOG.md", "source/CHANGELOG.md", "[a](docs/errors.md)") == "[a](../errors.md)"


def test_list_behind_a_paragraph_is_a_list() -> None:
    text = "these hold:\n* one\n  of it\n* two\n\n```\ncode\n* code\n```"
    assert with_lists(text) == text.replace("hold:\n", "hold:\n\n")


def test_item_behind_a_paragraph_of_an_item_is_an_item() -> None:
    text = "* one\n\n    of it\n* two\n  of it\n* three"
    assert with_lists(text) == text.replace("* two", "\n* two")


def test_reference_has_each_public_name_once() -> None:
    pages = "\n".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
    named = Counter(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    assert max(named.values()) == 1
    tops = {name.split(".")[1] for name in named if name.startswith("peerlane.")}
    assert set(peerlane.__all__) <= tops


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address at which the site is served."""
    served = functools.partial(_Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@NEEDS_BROWSER
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1440, 900)])
def test_site_in_browser_fits_the_window_and_finds_a_name(address: str, width: int, height: int) -> None:
    with running() as browser:
        context = browser.new_context(viewport={"width": width, "height": height})
        page: Any = context.new_page()
        page.set_default_timeout(30_000)
        messages: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        for name in SHOWN:
            page.goto(f"{address}{name}.html", wait_until="load")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, name
        assert page.locator("table").first.is_visible()
        page.goto(address)
        _navigate(page, is_phone=width < 1000)
        _search(page, "write_blocks", is_phone=width < 1000)
        assert messages == []
        assert [each for each in asked if not each.startswith((address, "data:", "blob:"))] == []


@NEEDS_BROWSER
@pytest.mark.takes_long
@pytest.mark.timeout(600)
def test_each_page_in_browser_fits_a_phone_and_its_pictures_can_be_read(address: str, site: Path) -> None:
    with running() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 844})
        context.route("**/search/**", lambda route: route.abort())  # each page would read the whole index
        page: Any = context.new_page()
        wide, small = [], []
        names = [file.relative_to(site).as_posix() for file in sorted(site.rglob("*.html"))]
        for name in [it for it in names if not BLOCK_OF_CODE.match(it)]:
            page.goto(f"{address}{name}", wait_until="load")
            if page.evaluate("document.documentElement.scrollWidth") > 390:
                wide.append(name)
            if page.evaluate("[...document.querySelectorAll('article p > img')].some(it => it.width < 500)"):
                small.append(name)
        assert wide == []
        assert small == []


@NEEDS_BROWSER
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_in_browser_has_texts_of_contrast_4_5_and_all_pictures(address: str, scheme: str) -> None:
    with running() as browser:
        page: Any = browser.new_context(color_scheme=scheme).new_page()
        for name in SHOWN:
            page.goto(f"{address}{name}.html", wait_until="load")
            assert page.evaluate(FAINT) == {}, name
            assert (
                page.evaluate("[...document.images].filter(it => !it.naturalWidth).map(it => it.src)") == []
            )


def _navigate(page: Any, *, is_phone: bool) -> None:
    if is_phone:
        page.click("label.md-header__button[for=__drawer]")
        page.click(".md-nav--primary a:has-text('Guides') >> visible=true")
    else:
        page.click(".md-tabs a:has-text('Guides')")
    page.wait_for_url("**/guides/index.html")
    page.click("article a:text-is('Checking')")
    page.wait_for_url("**/guides/checking.html")
    assert "Checking" in page.inner_text("h1")


def _search(page: Any, word: str, *, is_phone: bool) -> None:
    if is_phone:
        page.click("label.md-header__button[for=__search]")
    box, first = page.locator(".md-search__input"), page.locator(".md-search-result__link").first
    deadline = time.monotonic() + 60
    while not first.is_visible():  # what is typed before the page's script listens is lost
        assert time.monotonic() < deadline
        box.fill("")
        box.press_sequentially(word, delay=50)
        page.wait_for_timeout(500)
    first.click()
    page.wait_for_url("**/*.html?*h=*")
    assert word in page.inner_text("article")
