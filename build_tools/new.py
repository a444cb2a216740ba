"""`make new OP=family/op`: writes the leaf of a new family, of one element-wise op that works.

The leaf is the folder build_tools/leaf, in which `@family@`, `@op@` and `@Op@` stand for names, in
paths too. Beside it, configs.py, thunderkittens/__init__.py and README.md get an entry: nothing
else changes, for all else is found by folder and name.
"""

import keyword
import re
import subprocess
from pathlib import Path

import configs
from build_tools import lint
from build_tools.settings import ROOT, BuildError

LEAF = Path(__file__).parent / "leaf"
ENDING = ".in"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
ROW = "| `{op}(x)` | x · σ(x), until you write another function | bf16, fp16, fp32; any shape |"
NEXT = """
{op} is x · σ(x) until you write another function: in {cuh} (evaluate),
in {torch} (its ATen form), and in the references of cases.py, fuzz.py, the
mutation program and the benchmark. Then
  make test ARGS="-k {family}"  (builds it, and tests it in the simulator)
  python -m tests.tools.budgets {family}  (what its kernels move)
  python -m build_tools resources  (where nvcc is: their registers)
  make bench ARGS="{family} host --record"  (on a GPU)
"""


def write(words: str, root: Path = ROOT) -> list[Path]:
    """Writes the leaf and the three entries.

    Args:
        words: `family/op`.
        root: The tree to write into.

    Returns:
        The new files, relative to the tree.

    Raises:
        BuildError: A name is none that a family or an op can have.
    """
    family, op = check(words)
    names = {"@family@": family, "@op@": op, "@Op@": "".join(map(str.capitalize, op.split("_")))}
    files = {}
    for template in sorted(LEAF.rglob(f"*{ENDING}")):
        path = _filled(str(template.relative_to(LEAF)).removesuffix(ENDING), names)
        files[Path(path)] = _filled(template.read_text(), names)
    there = [str(path) for path in files if (root / path).exists()]
    if there:
        raise BuildError(f"new: {there[0]} is there already; remove it, or choose another name")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    edit(root / "configs.py", add_record, family, op)
    edit(root / "thunderkittens/__init__.py", add_export, family, op)
    edit(root / "README.md", add_row, family, op)
    _format(root, list(files))
    return list(files)


def check(words: str) -> tuple[str, str]:
    """Returns the family and the op."""
    family, slash, op = words.partition("/")
    if not slash or not all(NAME.fullmatch(name) for name in (family, op)):
        raise BuildError(f"new: OP must be family/op, as in OP=swish/swish, got {words!r}")
    taken = {name for kernel in configs.KERNELS for name in (kernel.name, *kernel.ops)}
    for name in (family, op):
        if name in taken:
            raise BuildError(
                f"new: {name} is there already: a new op of a family goes into the files that the "
                "family has, as CONTRIBUTING.md says"
            )
        if keyword.iskeyword(name):
            raise BuildError(f"new: {name} is a word of Python, and no name for an op")
    return family, op


def edit(path: Path, change, family: str, op: str) -> None:
    """Changes a file."""
    path.write_text(change(path.read_text(), family, op))


def add_record(text: str, family: str, op: str) -> str:
    """configs.py with a record of the family, the last one."""
    head, begin, rest = text.partition("\nKERNELS: ")
    body, end, tail = rest.partition("\n)\n")
    record = f'\n    Kernel(name="{family}", ops=("{op}",)),'
    return f"{head}{begin}{body}{record}{end}{tail}"


def add_export(text: str, family: str, op: str) -> str:
    """thunderkittens/__init__.py with the op, in the order of names."""
    line = f"    from thunderkittens.ops.{family} import {op}"
    imports = re.findall(
        r"^    from thunderkittens\.ops\.[^\n(]*(?:\([^)]*\))?$", text, re.MULTILINE
    )
    text = text.replace("\n".join(imports), "\n".join(sorted([*imports, line])))
    exports = re.search(r"^__all__ = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    names = sorted([*re.findall(r'"(\w+)"', exports[1]), op])
    lines = "".join(f'    "{name}",\n' for name in names)
    return f"{text[: exports.start(1)]}{lines}{text[exports.end(1) :]}"


def add_row(text: str, family: str, op: str) -> str:
    """README.md with a row of the op, the last one of the table."""
    table = re.search(r"^\| op \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    return f"{text[: table.end()]}{ROW.format(op=op)}\n{text[table.end() :]}"


def run(words: str) -> None:
    """Writes a leaf and says what comes next."""
    family, op = check(words)
    for path in write(words):
        print(path)
    print("configs.py, thunderkittens/__init__.py and README.md have an entry")
    folder = f"csrc/kernels/{family}"
    cuh, torch = f"{folder}/{op}.cuh", f"{folder}/torch/{op}.cpp"
    print(NEXT.format(family=family, op=op, cuh=cuh, torch=torch))


def _filled(text: str, names: dict[str, str]) -> str:
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text


def _format(root: Path, files: list[Path]) -> None:
    """Breaks lines as the names' lengths ask for, where there are the tools."""
    python = [str(path) for path in files if path.suffix == ".py"]
    python += ["configs.py", "thunderkittens/__init__.py"]
    cxx = [str(path) for path in files if path.suffix in {".h", ".cuh", ".cu", ".cpp"}]
    for tool, arguments in (("ruff", ["format", "-q", *python]), ("clang-format", ["-i", *cxx])):
        path = lint.find(tool)
        if path is not None:
            subprocess.run([path, *arguments], cwd=root, check=False)
