"""`make docs`: the Markdown and the docstrings as a site of HTML, by sphinx, without a network.

The documents are copied to a folder of the build, in which they lie to each other as in the
repository. There a link to a source file becomes a link to a page with its text, and each public
function gets a page: its docstring, its kernels, its figures. Sphinx treats every warning as an
error: a link, an anchor or a name that does not exist fails the build.
"""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import configs
from build_tools import environment, settings
from build_tools.settings import ROOT, BuildError

SITE = ROOT / "docs" / "site"
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "demos/**/*.md",
    "docs/*.md",
    "tests/**/README.md",
)
PICTURES = ("benchmarks/records/*.svg", "demos/**/*.png", "demos/**/*.svg", "docs/figures/*.svg")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
LEXERS = {".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".py": "python"}
CAPTIONS = {  # of the contents at the left: the pages below each; those of none are last
    "Start": (
        "docs/getting_started",
        "docs/install",
        "docs/integrations",
        "docs/backends",
        "docs/distributed",
    ),
    "Reference": ("reference/ops", "reference/modules", "reference/other", "reference/add-ons"),
    "Kernels of your own": ("docs/tiles", "docs/classic", "docs/simulator", "demos/cpp/README"),
    "Figures": ("benchmarks/RESULTS", "benchmarks/*"),
    "Demos": ("demos/README", "demos/*/README"),
    "Development": ("ARCHITECTURE", "CONTRIBUTING", "tests/*/README", "CHANGELOG"),
}


def build(target: Path | None = None) -> Path:
    """Builds the site.

    Args:
        target: Where; None for `build/site`.

    Returns:
        Its first page.

    Raises:
        BuildError: Sphinx is missing, or complains.
    """
    missing = [name for name in ("sphinx", "myst_parser", "furo") if not _is_there(name)]
    if missing:
        raise BuildError(
            f"docs: found no {' and no '.join(missing)} beside {sys.executable}, needed to build "
            f"the site; install what it lacks with `{sys.executable} -m pip install -r "
            "requirements/docs.txt`"
        )
    target = target or settings.build_dir() / "site"
    pages = target.with_name(f"{target.name}-pages")
    stage(pages)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q"]
    command += ["-c", SITE, "-d", target.with_name(f"{target.name}-state"), pages, target]
    variables = {**environment.variables(), "SOURCE_DATE_EPOCH": "0"}
    if subprocess.run(list(map(os.fspath, command)), cwd=ROOT, env=variables).returncode != 0:
        raise BuildError("docs: sphinx complained: the messages above name the pages and lines")
    return target / "index.html"


def stage(folder: Path) -> None:
    """Writes every page's Markdown, and the pictures, into a folder; what was there goes.

    Args:
        folder: Of the build.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pages = _Pages()
    for path in _found(PICTURES):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    for path in pages.documents:
        text = pages.relinked(path, (ROOT / path).read_text())
        _write(folder / ("index.md" if path == Path("README.md") else path), text)
    for name, text in {**_reference(), **pages.sources()}.items():
        _write(folder / f"{name}.md", text)
    index = folder / "index.md"
    names = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.md"))
    index.write_text(_with_links_to_ops(index.read_text(), set(names)) + _contents(folder, names))


class _Pages:
    """The documents, and the source files that they link to."""

    def __init__(self) -> None:
        self.documents = _found(DOCUMENTS)
        self.linked: set[Path] = set()

    def relinked(self, here: Path, text: str) -> str:
        """A document whose links to files and folders of the repository are links to pages."""

        def target(match: re.Match) -> str:
            mark, words, link, anchor = match.groups()
            if mark or not link or re.match(r"[a-z]+:", link):
                return match[0]
            path = Path(os.path.normpath(here.parent / link))
            if (ROOT / path).is_dir():
                path = path / "README.md"
            if path == Path("README.md"):
                path = Path("index.md")
            elif path not in self.documents:
                if not (ROOT / path).is_file():
                    return words  # a folder without a page
                self.linked.add(path)
                path = Path("source", f"{path}.md")
            return f"[{words}]({os.path.relpath(path, here.parent)}{anchor or ''})"

        pieces = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        pieces[::2] = [LINK.sub(target, piece) for piece in pieces[::2]]
        return "".join(pieces)

    def sources(self) -> dict[str, str]:
        """A page for each source file that a document links to."""
        fence = "`" * 8
        return {
            f"source/{path}": f"---\norphan: true\n---\n\n# {path}\n\n"
            f"{fence}{{code-block}} {LEXERS.get(path.suffix, 'text')}\n"
            f"{(ROOT / path).read_text()}\n{fence}\n"
            for path in self.linked
        }


def _reference() -> dict[str, str]:
    """The pages of docstrings: ops, modules, what else is public, and add-ons where there are."""
    package = importlib.import_module("thunderkittens")
    modules = ("distributed", "nn", "optim")
    functions = {name: getattr(package, name) for name in package.__all__ if name not in modules}
    ops = {n: f for n, f in functions.items() if ".ops." in getattr(f, "__module__", "")}
    others = [n for n in functions if n not in ops and not n.startswith("__")]
    pages = {f"ops/{name}": _op(name) for name in ops}
    groups: dict[str, list[str]] = {}
    for name, function in ops.items():
        groups.setdefault(function.__module__, []).append(name)
    families = [f"thunderkittens.ops.{kernel.name}" for kernel in configs.KERNELS]
    order = sorted(groups, key=lambda m: families.index(m) if m in families else len(families))
    ranks = [op for kernel in configs.KERNELS for op in kernel.ops]
    for names in groups.values():
        names.sort(key=lambda name: ranks.index(name) if name in ranks else len(ranks))
    parts = ["# Ops\n"]
    for module in order:
        title = (importlib.import_module(module).__doc__ or "").splitlines()[0]
        parts.append(f"**{title.rstrip('.')}**\n")
        parts += [f"- [{n}](../ops/{n}.md): {_summary(ops[n])}" for n in groups[module]]
        parts.append("")
    listed = "\n".join(f"../ops/{name}" for module in order for name in groups[module])
    pages["reference/ops"] = "\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"])
    pages["reference/modules"] = "# Modules\n\n" + _directives(
        "autoclass", [f"thunderkittens.nn.{n}" for n in package.nn.__all__], ":members: forward"
    )
    pages["reference/modules"] += "\n## Optimizers\n\n" + _directives(
        "autoclass", [f"thunderkittens.optim.{n}" for n in package.optim.__all__], ":members:"
    )
    pages["reference/modules"] += "\n## Several GPUs\n\n" + _directives(
        "autofunction", [f"thunderkittens.distributed.{n}" for n in package.distributed.__all__]
    )
    pages["reference/other"] = "# Other functions\n\n" + "".join(
        _directives(
            "autoclass" if inspect.isclass(functions[n]) else "autofunction",
            [f"{package.__name__}.{n}"],
        )
        for n in others
    )
    found = list(_add_ons())
    if found:
        pages["reference/add-ons"] = "# Integrations\n\n" + "".join(
            f"## {name.rpartition('.')[2]}\n\n" + _directives("automodule", [name], ":members:")
            for name in found
        )
    return pages


def _op(name: str) -> str:
    """A page of one function: its docstring, its kernels and its figures."""
    text = f"# {name}\n\n" + _directives("autofunction", [f"thunderkittens.{name}"])
    kernels = [kernel for kernel in configs.KERNELS if name in kernel.ops]
    for kernel in kernels:
        built = [a for a in kernel.architectures if a in configs.ARCHITECTURES]
        text += (
            f"## Kernels\n\nCUDA code for {', '.join(kernel.architectures) or 'no GPU yet'}; built "
            f"by default for {', '.join(built) or 'none'} "
            "([what is built](../docs/install.md#what-is-built)).\n\n"
        )
    text += _speed(name)
    notes = [
        n for n in (name, *(k.name for k in kernels)) if (ROOT / f"benchmarks/{n}.md").is_file()
    ]
    if notes:
        text += f"\n[What was tried, predicted and measured](../benchmarks/{notes[0]}.md).\n"
    return text


def _speed(name: str) -> str:
    """What RESULTS.md has of a function: where the figures come from, and its tables."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    text = ""
    for section in re.split(r"^## ", results, flags=re.M)[1:]:
        head, *tables = re.split(r"^### ", section, flags=re.M)
        tables = [table for table in tables if re.match(rf"`{name}(_dropout)?(_backward)?`", table)]
        if tables:
            text += head.partition("\n")[2] + "".join(f"### {table}" for table in tables)
    links = re.sub(r"\]\((?!https?:)", "](../benchmarks/", text)
    return f"## Speed\n\n{links}\n[All results](../benchmarks/RESULTS.md).\n" if text else ""


def _add_ons() -> list[str]:
    """The modules of thunderkittens.integrations, where there are some that can be imported."""
    if not _is_there("thunderkittens.integrations"):
        return []
    package = importlib.import_module("thunderkittens.integrations")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found = [f"{package.__name__}.{name}" for name in names if not name.startswith("_")]
    return [name for name in found if _can_be_imported(name)]


def _can_be_imported(module: str) -> bool:
    """Whether what a module is for is installed; says so if it is not."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"docs: no page of {module}: {error}", flush=True)
        return False
    return True


def _directives(kind: str, names: list[str], option: str = "") -> str:
    """Blocks that have sphinx write what docstrings say."""
    lines = [f".. {kind}:: {name}\n{f'   {option}' if option else ''}\n" for name in names]
    return "```{eval-rst}\n" + "\n".join(lines) + "```\n\n"


def _summary(function: object) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=\.)\s", " ".join((inspect.getdoc(function) or "").split()))[0]


def _with_links_to_ops(text: str, names: set[str]) -> str:
    """The first page, whose table names functions that have pages."""

    def linked(match: re.Match) -> str:
        words, name = match[1], match[2]
        return f"| [{words}](ops/{name}.md) |" if f"ops/{name}" in names else match[0]

    return re.sub(r"^\| (`(\w+)\([^`]*`) \|", linked, text, flags=re.M)


def _contents(folder: Path, names: list[str]) -> str:
    """The contents at the left: every page once, but for those of sources and of ops."""
    left = [name for name in names if not re.match(r"source/|ops/|index$", name)]
    text = ""
    for caption, patterns in {**CAPTIONS, "More": ("*",)}.items():
        chosen = []
        for pattern in patterns:
            chosen += [n for n in left if Path(n).match(pattern) and n not in chosen]
            left = [name for name in left if name not in chosen]
        if not chosen:
            continue
        listed = "\n".join(_entry(folder, name) for name in chosen)
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
    return text


def _entry(folder: Path, name: str) -> str:
    """A page in the contents: by its title, or, of a title with a colon, by what is before it."""
    title = (folder / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ")
    short, colon, _ = title.partition(":")
    return f"{short} <{name}>" if colon else name


def _found(patterns: tuple[str, ...]) -> list[Path]:
    """The repository's files of some patterns, relative to it."""
    return sorted({p.relative_to(ROOT) for pattern in patterns for p in ROOT.glob(pattern)})


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
