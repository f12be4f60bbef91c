"""The documentation as a site: it is built without a network, its links lead somewhere, and its pages load nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.documents import ROOT

pytestmark = pytest.mark.slow

BUILD = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise ConnectionError(f"no network here: {event} {args[-1]}")

sys.addaudithook(refuse)
sys.dont_write_bytecode = True
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]])
"""

LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
LOADED_BY_SCRIPTS = re.compile(r'class="mermaid"|data-md-component="source"')
"""What the theme's script would fetch from elsewhere: a library for diagrams, facts about a repository."""


@dataclass
class Page(HTMLParser):
    """One page: the ids of its elements, where its links lead, and what it loads."""

    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "link" and LOADING_LINKS & set(given.get("rel", "").split()):
            self.loads.add(given["href"])
        elif tag == "a" and "href" in given:
            self.links.add(given["href"])
        self.loads |= {given[name] for name in ("src", "srcset", "data", "poster") if name in given and tag != "a"}


def read_pages(site: Path) -> dict[Path, Page]:
    """Return the pages of a site by their paths."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def broken(pages: dict[Path, Page]) -> Iterator[str]:
    """Yield the links within a site whose page or anchor is missing."""
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].ids if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield f"{path}: {link}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs").resolve() / "site"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", BUILD, str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    built = {path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")}
    assert built == sources - {"index"} | {"."}
    memory = (site / "reference" / "memory" / "index.html").read_text(encoding="utf-8")
    assert "Return the prompt for a question" in memory, "the reference comes from the docstrings"


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    pages = read_pages(site)
    assert sum(len(page.links) for page in pages.values()) > 500
    assert list(broken(pages)) == []


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    for path, page in read_pages(site).items():
        for load in page.loads:
            assert load.startswith("data:") or not urlsplit(load).netloc, f"{path}: {load}"
        assert not LOADED_BY_SCRIPTS.search(path.read_text(encoding="utf-8")), path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r"(?:@import|url\(|<(?:image|script)[^>]*href=)\s*[\"']?((?:https?:)?//[^\"')]+)", text)
        assert fetched == [], path
