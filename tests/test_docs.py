"""What the documents say is true: snippets run, names, links, commands and versions exist."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import configs
import thunderkittens
from build_tools import figures

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
]
TREES = ("benchmarks", "demos", "docs")
DOCUMENTS += [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.md"))]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


def public_modules() -> list[str]:
    """`thunderkittens.ops.*` and the like, packages included."""
    found = []
    for name in ("thunderkittens.ops", "thunderkittens.nn", "thunderkittens.distributed"):
        package = importlib.import_module(name)
        found += [name, *(f"{name}.{m.name}" for m in pkgutil.iter_modules(package.__path__))]
    return found


@pytest.mark.parametrize("name", public_modules())
def test_doctests(name):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("op", [op for kernel in configs.KERNELS for op in kernel.ops])
def test_op_is_documented(op):
    function = getattr(thunderkittens, op)
    text = inspect.getdoc(function) or ""
    for section in ("Args:", "Returns:", "Raises:", ">>> "):
        assert section in text, f"{op}: its docstring has no {section}"
    for argument in inspect.signature(function).parameters:
        if argument.startswith("_"):
            continue  # what it does not take
        assert re.search(rf"\b{argument}\b", text), f"{op}: {argument} is not documented"
    assert f"`{op}(" in (ROOT / "README.md").read_text(), f"README's table of ops lacks {op}"


@pytest.mark.parametrize("name", [n for n in thunderkittens.__all__ if not n.startswith("__")])
def test_public_name_is_documented(name):
    assert inspect.getdoc(getattr(thunderkittens, name))


@pytest.mark.parametrize("module", ["nn", "optim", "distributed"])
def test_names_of_modules_are_documented(module):
    package = getattr(thunderkittens, module)
    for name in package.__all__:
        assert inspect.getdoc(getattr(package, name)), name


WITH_PYTHON = [name for name in NAMES if blocks(ROOT / name, "python")]


def test_snippets_of_the_guides_are_among_those_that_run():
    assert {"README.md", "docs/getting_started.md", "docs/backends.md"} <= {*WITH_PYTHON}


@pytest.mark.parametrize("document", WITH_PYTHON)
def test_python_snippets_run(document, monkeypatch):
    """In one namespace, as a reader would type them; on the CPU, compiled without a C++ backend."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    compile_function = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: compile_function(f, backend="eager", **k))
    simulator = Path(thunderkittens.__file__).parent / "lib" / "_simulator.so"
    namespace: dict = {}
    for block in blocks(ROOT / document, "python"):
        if 'backend("simulator"' in block and not simulator.exists():
            continue
        exec(compile(block, document, "exec"), namespace)


@pytest.mark.parametrize("document", NAMES)
def test_links_resolve(document):
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    internal = [t for t in targets if not re.match(r"[a-z]+:", t)]
    assert not [t for t in internal if not (path.parent / t).exists()]


def anchors(path: Path) -> set[str]:
    """What a link to a heading of a document may end in."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(next(f"{words}{n}" for n in ("", "-1", "-2", "-3") if f"{words}{n}" not in found))
    return found


@pytest.mark.parametrize("document", NAMES)
def test_anchors_resolve(document):
    path = ROOT / document
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text())
    internal = [(file, anchor) for file, anchor in links if not re.match(r"[a-z]+:", file)]
    targets = [(path.parent / file if file else path, anchor) for file, anchor in internal]
    assert not [(file, anchor) for file, anchor in targets if anchor not in anchors(file)]


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("name", figures.PICTURES)
def test_picture_is_what_is_drawn(name):
    path = figures.FOLDER / f"{name}.svg"
    assert path.read_text() == figures.PICTURES[name](), "run `python -m build_tools figures`"
    assert f"](figures/{name}.svg)" in (ROOT / "docs/tiles.md").read_text()


@pytest.mark.parametrize("document", NAMES)
def test_commands_exist(document):
    text = (ROOT / document).read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.M))
    assert named <= targets, f"not in the Makefile: {named - targets}"
    modules = set(re.findall(r"python -m ([\w.]+)", text)) - {"pip", "venv"}
    missing = [m for m in modules if not importlib.util.find_spec(m)]
    assert not missing, f"no such module: {missing}"
    scripts = set(re.findall(r"python (?!-)([\w/]+\.py)", text))
    assert not [s for s in scripts if not (ROOT / s).exists()]


def operations(text: str) -> set[str]:
    """The functions that a header of the tile layer offers, macros' included."""
    inner = r"namespace (?:kittens::)?detail"
    text = re.sub(rf"^{inner} \{{.*?^\}}  // {inner}$", "", text, flags=re.M | re.S)
    text = re.sub(r"//[^\n]*", "", text)
    found = set(re.findall(r"^KITTENS_DEVICE [\w<>:&]+ (\w+)\(", text, re.M))
    for macro, name, more in re.findall(r"^ *KITTENS_([A-Z_]+)\((\w+)(.*?)\)$", text, re.M):
        if macro in ("UNARY", "BINARY", "REDUCE", "REDUCE_TILE"):
            found.add(name)
        elif macro == "BROADCAST":
            found |= {f"{name}_row", f"{name}_col"}
        elif macro in ("MMA", "PRODUCT"):
            found |= {f"mma_{name}"}
        elif macro == "PARTIAL_SUM":
            found |= set(re.findall(r"\w+", more))
    return found


def test_the_manual_has_every_operation_of_the_tile_layer():
    manual = (ROOT / "docs/tiles.md").read_text()
    headers = ROOT / "csrc/include/kittens"
    names = set()
    for folder in ("ops", "pipeline", "types"):
        names |= {n for p in (headers / folder).rglob("*.cuh") for n in operations(p.read_text())}
    assert len(names) > 80
    within = {"convert_run"}  # what the layer uses itself
    assert not [n for n in sorted(names - within) if not re.search(rf"\b{n}\b", manual)]


def test_environment_variables_are_read_somewhere():
    sources = [
        p for tree in ("build_tools", "csrc", "thunderkittens") for p in (ROOT / tree).rglob("*")
    ]
    code = "".join(p.read_text() for p in sources if p.suffix in {".py", ".cpp", ".cuh", ".h"})
    text = "".join(path.read_text() for path in DOCUMENTS if path.name != "CHANGELOG.md")
    named = set(re.findall(r"(?:THUNDERKITTENS|KITTENS)_[A-Z]+(?:_[A-Z]+)*\b", text))
    assert len(named) > 7
    assert not [name for name in named if name not in code]


def test_changelog_begins_with_this_version():
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert versions[0] == thunderkittens.__version__.split("+")[0]  # less what it was built for


def test_info_command_answers():
    command = [sys.executable, "-m", "thunderkittens", "info"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert thunderkittens.__version__ in done.stdout
