"""The documentation site: every page of it builds, and says what it should."""

import re
from html import unescape
from pathlib import Path

import pytest

import configs
import thunderkittens
from benchmarks import records
from build_tools import docs
from build_tools.settings import BuildError

REQUIRED = ("sphinx", "myst_parser", "furo")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site. Sphinx ends in an error for a link or a name that does not exist."""
    missing = [name for name in REQUIRED if not docs._is_there(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed (requirements/docs.txt)")
    return docs.build(tmp_path_factory.mktemp("docs") / "site").parent


def text(page: Path) -> str:
    """What a reader of a page reads."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text())).split())


@pytest.mark.parametrize("op", [op for kernel in configs.KERNELS for op in kernel.ops])
def test_page_of_an_op_says_what_it_is(site, op):
    page = text(site / "ops" / f"{op}.html")
    sections = ("Parameters", "Returns", "Raises", "Numerics", "Example", "Kernels")
    assert not [name for name in sections if name not in page]
    assert "NoReturn" not in page and "_foreign" not in page  # of what only refuses keywords
    for paragraph in getattr(thunderkittens, op).__doc__.partition("Args:")[0].split("\n\n"):
        assert "".join(paragraph.replace("`", "").split()) in page.replace(" ", "")


def test_ops_that_were_measured_have_their_tables(site):
    results = (docs.ROOT / "benchmarks/RESULTS.md").read_text()
    measured = records.load(records.folder())
    recorded = {
        r.op.removesuffix("_backward")
        for family, m in measured.items()
        if family != "host"  # one table of all ops
        for r in records.results(m)
    }
    for op in (op for kernel in configs.KERNELS for op in kernel.ops if op in recorded):
        tables = len(re.findall(rf"^### `{op}(?:_dropout)?(?:_backward)?`", results, re.M))
        page = (site / "ops" / f"{op}.html").read_text()
        assert page.count("<table") == tables > 0, op
        assert "clocks as found" in page, "of which run"


def test_first_page_leads_to_every_page_and_every_op(site):
    first = (site / "index.html").read_text()
    pages = {p.relative_to(site).as_posix() for p in site.rglob("*.html")}
    made = {"genindex.html", "search.html", "py-modindex.html", "index.html"}
    apart = r"source/|_modules/|ops/"
    wanted = {page for page in pages - made if not re.match(apart, page)}
    assert {"docs/tiles.html", "reference/modules.html", "benchmarks/RESULTS.html"} <= wanted
    assert not [page for page in wanted if f'href="{page}"' not in first]
    ops = {page for page in pages if page.startswith("ops/")}
    assert not [page for page in ops if f'href="{page}"' not in first]


def test_nothing_is_fetched_from_elsewhere(site):
    """No font, script or style of another host: the site is read without a network."""
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
        assert not [tag for tag in tags if re.search(r"(?:src|href)=\"(?:https?:)?//", tag)], page


def test_a_broken_anchor_fails_the_build(site, tmp_path, monkeypatch):
    """That sphinx sees mistakes in a page, with a site of two pages."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# A\n\n[b](other.md#there)\n\n```{toctree}\nother\n```\n")
    (pages / "other.md").write_text("# B\n\n## Here\n")
    monkeypatch.setattr(docs, "stage", lambda folder: pages.rename(folder))
    with pytest.raises(BuildError, match="^docs: sphinx complained"):
        docs.build(tmp_path / "site")


def test_links_to_sources_become_pages():
    pages = docs._Pages()
    here = Path("docs/tiles.md")
    given = "[a](../configs.py) [b](../csrc/kernels) [c](../demos/cpp) [d](../README.md#a) [e](#x)"
    wanted = "[a](../source/configs.py.md) b [c](../demos/cpp/README.md) [d](../index.md#a) [e](#x)"
    assert pages.relinked(here, given) == wanted
    assert pages.relinked(here, f"```\n{given}\n```") == f"```\n{given}\n```"
    assert list(pages.sources()) == ["source/configs.py"]


def test_contents_have_every_page_once(tmp_path):
    pages = {"docs/tiles": "# Tiles", "docs/other": "# Other: more", "demos/a/README": "# A"}
    for name, title in pages.items():
        docs._write(tmp_path / f"{name}.md", f"{title}\n")
    contents = docs._contents(tmp_path, [*sorted(pages), "index", "ops/op", "source/x.py"])
    listed = re.findall(r"^(?:\w.* <)?(\w+(?:/\w+)+)>?$", contents, re.M)
    assert listed == ["docs/tiles", "demos/a/README", "docs/other"]
    assert "\nOther <docs/other>\n" in contents and ":caption: More" in contents
    assert ":caption: Reference" not in contents


def test_without_sphinx_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(docs, "_is_there", lambda name: name != "sphinx")
    with pytest.raises(BuildError, match=r"^docs: found no sphinx beside .*docs.txt`$"):
        docs.build()
