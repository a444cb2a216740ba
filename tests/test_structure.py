"""The rules of ARCHITECTURE.md that a program can check by reading the sources."""

import ast
import re
from pathlib import Path

import pytest

import configs

ROOT = Path(__file__).parent.parent
CXX = {".h", ".hpp", ".cuh", ".cu", ".cpp"}
TREES = ("csrc", "thunderkittens", "build_tools", "benchmarks", "demos", "tests")
SEAM, HOST = "csrc/include/kittens/arch/", "csrc/include/kittens/host/"

LAYERS = {  # of a folder; the longest prefix wins
    "csrc/sim": 0,
    "csrc/host": 0,
    "csrc/include/kittens/arch": 0,
    "csrc/include/kittens/host": 0,
    "csrc/include/kittens/types": 1,
    "csrc/include/kittens/ops": 2,
    "csrc/include/kittens/pipeline": 3,
    "csrc/include/kittens.cuh": 3,
    "csrc/include/thunderkittens": 4,
    "csrc/kernels": 4,  # but a family's folder torch is 5
    "csrc/binding": 5,
    "thunderkittens": 7,
    "thunderkittens/ops": 6,
    "benchmarks": 8,
    "demos": 8,
}
FORBIDDEN = {  # rule: (pattern, where it is looked for, where it is right all the same)
    "device asm stands in arch/ptx alone": (
        r"\b(asm|__asm__)\b",
        "csrc/",
        (f"{SEAM}ptx/", "csrc/sim/fiber"),
    ),
    "only the seam asks which compiler it is": (
        r"__CUDACC__|__CUDA_ARCH__|KITTENS_SIMULATED",
        "csrc/",
        (SEAM, HOST),
    ),
    "the process never ends": (
        r"(?<![\w.:>])(?<!void )(?:std::)?(?:exit|_exit|assert)\s*\(",
        "csrc/",
        (),
    ),
    "kittens::host launches": (r"<<<", "csrc/", ()),
    "torch starts at L5": (
        r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/|Python\.h",
        "csrc/",
        ("csrc/binding/", *(f"csrc/kernels/{kernel.name}/torch/" for kernel in configs.KERNELS)),
    ),
    "nothing is left for later": (r"\b(?:TODO|FIXME|XXX|HACK)\b", "", ("tests/test_structure.py",)),
}


def files(suffixes: set[str]) -> list[Path]:
    """Sources of the project, relative to its root."""
    found = [*ROOT.glob("*.py"), *(p for tree in TREES for p in (ROOT / tree).rglob("*"))]
    return sorted(p.relative_to(ROOT) for p in found if p.is_file() and p.suffix in suffixes)


def text(path: Path) -> str:
    return (ROOT / path).read_text()


def layer(path: Path) -> int:
    if path.parts[:2] == ("csrc", "kernels") and path.parts[3] == "torch":
        return 5
    prefixes = [p for p in LAYERS if f"{path.as_posix()}/".startswith(f"{p}/")]
    return LAYERS[max(prefixes, key=len)] if prefixes else 0


def included(path: Path) -> list[Path]:
    """The project's own files among a file's includes."""
    names = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text(path), re.M)
    bases = (path.parent, Path("csrc/include"), Path("csrc"))
    return [base / name for name in names for base in bases if (ROOT / base / name).is_file()]


def imported(path: Path) -> list[Path]:
    """The project's own files and folders among a module's imports."""
    names = []
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    paths = [Path(*name.split(".")) for name in names]
    return [p for p in paths if (ROOT / p).is_dir() or (ROOT / p).with_suffix(".py").is_file()]


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_nowhere_else(rule):
    pattern, where, allowed = FORBIDDEN[rule]
    found = []
    for path in files(CXX | {".py"}):
        name = path.as_posix()
        if name.startswith(where) and not name.startswith(allowed):
            source = re.sub(r"//[^\n]*", "", text(path)) if where else text(path)
            found += [f"{name}: {match}" for match in re.findall(pattern, source)]
    assert not found, "\n".join(found)


def test_includes_and_imports_reach_no_higher_layer():
    found = []
    for path in [p for p in files(CXX | {".py"}) if layer(p)]:
        targets = included(path) if path.suffix in CXX else imported(path)
        found += [f"{path} (L{layer(path)}): {t}" for t in targets if layer(t) > layer(path)]
    for path in [p for p in files(CXX) if p.parts[0] == "csrc" and not layer(p)]:
        found += [f"{path} (L0): {t}" for t in included(path) if layer(t)]
    assert not found, "\n".join(found)


def test_families_are_strangers():
    public = Path("csrc/include/thunderkittens/kernels")
    for path in [p for p in files(CXX) if p.parts[:2] == ("csrc", "kernels")]:
        family = path.parts[2]
        for target in included(path):
            other = target.parts[1] == "kernels" and target.parts[2] != family
            other |= target.parent == public and target.stem not in (family, "common")
            assert not other, f"{path} includes another family's {target}"


@pytest.mark.parametrize("kernel", configs.KERNELS, ids=lambda kernel: kernel.name)
def test_family_has_every_leaf(kernel):
    leaves = [
        f"thunderkittens/ops/{kernel.name}.py",
        f"tests/families/{kernel.name}/test_{kernel.name}.py",
        f"benchmarks/bench_{kernel.name}.py",
        f"csrc/include/thunderkittens/kernels/{kernel.name}.h",
        f"csrc/kernels/{kernel.name}/{kernel.name}.h",
        f"csrc/kernels/{kernel.name}/{kernel.name}_plan.cpp",
        *(f"csrc/kernels/{kernel.name}/torch/{op}.cpp" for op in kernel.ops),
    ]
    assert not [leaf for leaf in leaves if not (ROOT / leaf).is_file()]
    exports = text(Path("thunderkittens/__init__.py"))
    assert not [op for op in kernel.ops if f'"{op}"' not in exports], "not exported"


def test_a_launch_says_the_bound_of_a_kernel_whose_blocks_differ():
    """Else the simulator, which does not see `__launch_bounds__`, takes what a GPU refuses."""
    sources = [text(p) for p in files(CXX) if p.parts[:2] == ("csrc", "kernels")]
    bounded = r"__launch_bounds__\(\w+::max_threads\b[^{;]*?\)\s+(\w+)\("
    kernels = {name for source in sources for name in re.findall(bounded, source)}
    launches = r"\blaunch(?:_programmatic)?\(\s*(\w+)<[^;]*;"
    found = [match for source in sources for match in re.finditer(launches, source)]
    launched = {match[1] for match in found}
    assert len(kernels) > 5
    assert kernels <= launched, "launched by something that this test does not know"
    silent = [m[0] for m in found if m[1] in kernels and ".max_threads = " not in m[0]]
    assert not silent, "\n".join(silent)


def test_every_kernel_folder_has_a_record():
    folders = {path.name for path in (ROOT / "csrc/kernels").iterdir() if path.is_dir()}
    assert folders == {kernel.name for kernel in configs.KERNELS}


def test_ops_package_exports_nothing():
    body = ast.parse(text(Path("thunderkittens/ops/__init__.py"))).body
    assert all(isinstance(node, ast.Expr) for node in body), "only a docstring belongs there"


def test_files_are_short():
    long = {str(p): n for p in files(CXX | {".py"}) if (n := len(text(p).splitlines())) > 400}
    assert not long, f"longer than 400 lines: {long}"


def test_the_tools_import_each_other_in_one_direction():
    modules = {
        path.stem: imported(path) for path in files({".py"}) if path.parts[0] == "build_tools"
    }
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' -> '.join((*above, name))}"
        if name not in order:
            for target in modules.get(name, []):
                if target.parts[0] == "build_tools" and target.stem in modules:
                    visit(target.stem, (*above, name))
            order.append(name)

    for name in modules:
        visit(name, ())
    assert len(order) > 10
