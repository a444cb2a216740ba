"""The rules of ARCHITECTURE.md that a program can check by reading the sources."""

import ast
import re
from pathlib import Path

import pytest

import configs

ROOT = Path(__file__).parent.parent
ARCHITECTURE = Path("ARCHITECTURE.md")
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
    "csrc/include/kittens/classic.cuh": 3,
    "csrc/include/thunderkittens": 4,
    "csrc/kernels": 4,  # but a family's folder torch is 5
    "csrc/binding": 5,
    "thunderkittens": 7,
    "thunderkittens/_C.py": 5,  # csrc/binding for Python
    "thunderkittens/_loader.py": 5,
    "thunderkittens/ops": 6,
    "benchmarks": 8,
    "demos": 8,
}
MEMBERS = {  # of a family's modules of tests: what tools look for in them (CONTRIBUTING.md)
    "cases.py": ("Case", "EXAMPLE", "BUDGETS", "SMALL", "make", "run_case", "check_case"),
    "calls.py": ("CALLS",),
    "mistakes.py": ("MISTAKES",),
    "mutation.py": ("TARGETS", "LEFT_OUT", "HOST_SIDE", "LISTED"),
    "machine_code.py": ("SOURCES", "DEPENDENT"),
    "fuzz.py": ("OPS", "make"),
    "benchmark.py": ("make_small", "PEERS"),
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
    "nothing is assumed of pointers: arch/ptx/memory.cuh says why": (
        r"__builtin_assume|__is(?:Shared|Global|Local|Constant)\s*\(",
        "csrc/",
        (),
    ),
    "torch starts at L5": (
        r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/|Python\.h",
        "csrc/",
        ("csrc/binding/", *(f"csrc/kernels/{kernel.name}/torch/" for kernel in configs.KERNELS)),
    ),
    # The simulator would build them. In a header a kernel is a template, or static.
    "nvcc refuses inline kernels (#20050-D)": (
        r"__global__\s+inline\b|\binline\s+__global__",
        "",
        ("tests/test_structure.py",),
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
    modules = [path.with_suffix(".py") for path in paths]
    return [p for p in (*paths, *modules) if (ROOT / p).is_dir() or (ROOT / p).is_file()]


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


USES = {kernel.name: kernel.uses for kernel in configs.KERNELS}


def test_families_are_strangers():
    public = Path("csrc/include/thunderkittens/kernels")
    for path in [p for p in files(CXX) if p.parts[:2] == ("csrc", "kernels")]:
        family = path.parts[2]
        known = {family, *USES.get(family, ())}
        for target in included(path):
            other = target.parts[1] == "kernels" and target.parts[2] not in known
            other |= target.parent == public and target.stem not in {*known, "common"}
            assert not other, f"{path} includes another family's {target}"


def test_families_tests_are_strangers():
    for path in [p for p in files({".py"}) if p.parts[:2] == ("tests", "families")]:
        targets = [t for t in imported(path) if t.parts[:2] == ("tests", "families")]
        others = {t.parts[2] for t in targets if len(t.parts) > 2} - {path.parts[2]}
        assert not others, f"{path} imports what belongs to {others}: it belongs in tests/tools"


def test_torch_glue_stays_as_short_as_is_said():
    said = re.search(r"families \(([\w,\s]+)\)\s+have at most ([\d,]+)\s+lines", text(ARCHITECTURE))
    lines = {family: torch_lines(family) for family in re.findall(r"\w+", said[1])}
    assert sum(lines.values()) <= int(said[2].replace(",", "")), lines


def torch_lines(family: str) -> int:
    """The lines of a family's sources with torch: what ARCHITECTURE.md counts."""
    paths = (ROOT / "csrc/kernels" / family / "torch").iterdir()
    counts = [path.read_text().count("\n") for path in paths]
    assert counts, family
    return sum(counts)


@pytest.mark.parametrize("kernel", configs.KERNELS, ids=lambda kernel: kernel.name)
def test_family_has_every_leaf(kernel):
    name = kernel.name
    tests = Path(f"tests/families/{name}")
    leaves = [
        f"csrc/include/thunderkittens/kernels/{name}.h",
        f"csrc/kernels/{name}/{name}_plan.cpp",
        f"csrc/kernels/{name}/{name}.h",
        *(f"csrc/kernels/{name}/torch/{op}.cpp" for op in kernel.ops),
        f"thunderkittens/ops/{name}.py",
        f"benchmarks/bench_{name}.py",
        *(tests / leaf for leaf in ("__init__.py", "budgets.json", "resources.md", *MEMBERS)),
        tests / f"test_{name}.py",
    ]
    assert not [str(leaf) for leaf in leaves if not (ROOT / leaf).is_file()]
    assert list(ROOT.glob(f"csrc/kernels/{name}/*.cu"))
    forms = [path.name for path in ROOT.glob(f"csrc/kernels/{name}/*configs*")]
    assert forms in ([], [f"{name}_configs.cuh"]), "one table of configurations, by this name"
    for where in ("simulator", "gpu"):
        assert list(ROOT.glob(f"{tests}/test_*_{where}.py")), f"no test in the {where}"
    for leaf, members in MEMBERS.items():
        missing = {*members} - assigned(tests / leaf)
        assert not missing, f"{tests / leaf} lacks {missing}"
    exports = text(Path("thunderkittens/__init__.py"))
    assert not [op for op in kernel.ops if f'"{op}"' not in exports], "not exported"


def assigned(path: Path) -> set[str]:
    """What a module defines."""
    found = set()
    for node in ast.parse(text(path)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for target in targets for n in ast.walk(target) if hasattr(n, "id")}
    return found


OWNERS = {name: kernel.name for kernel in configs.KERNELS for name in (kernel.name, *kernel.ops)}
A_NAME = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(OWNERS)})(?![A-Za-z0-9])")


def families_named(node: ast.AST) -> set[str]:
    """The families that strings and names below a node are about."""
    found: set[str] = set()
    for part in ast.walk(node):
        words = [getattr(part, name, "") for name in ("value", "id", "attr")]
        for word in filter(lambda word: isinstance(word, str), words):
            found |= {OWNERS[name] for name in A_NAME.findall(word)}
    return found


def is_shared(path: Path) -> bool:
    """Whether a module is of no one family: nor its folder or file, nor a model that uses some."""
    own = ("tests/families/", "tests/demos/", "demos/", "thunderkittens/", "configs.py")
    own += ("tests/integrations/",)
    return not path.as_posix().startswith(own) and not re.match("(bench|peers)_", path.name)


def test_no_shared_list_names_a_family():
    """A list of several is one that the next family would have to be put in."""
    found = []
    for path in [p for p in files({".py"}) if is_shared(p)]:
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
                named = families_named(node)
                found += [f"{path}:{node.lineno} names {named}"] if len(named) > 1 else []
        if not path.name.startswith("test_"):  # the tests of a tool may have an example
            of_family = [t for t in imported(path) if t.parts[:2] == ("tests", "families")]
            found += [f"{path} imports {t}" for t in of_family if len(t.parts) > 2]
    assert not found, "\n".join(found)


def test_a_shared_list_of_families_is_seen():
    first, second = configs.KERNELS[0].ops[0], configs.KERNELS[1].name
    seen = ast.parse(f"X = {{'a': ('{first} of rows', tests.{second}.cases)}}")
    assert families_named(seen) == {configs.KERNELS[0].name, second}
    assert not families_named(ast.parse(f"x = '{second}s'"))


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


def test_no_assignment_relies_on_designators():
    """In a template nvcc 13.0 hands `tiles = {.rows = 1, .together = 2}` to the host's compiler as
    `{1, 2}`, so that members in between take what is meant for later ones: no test of the simulator
    can see it. Name the type, `tiles = tile_scheduler{…}`; declarations and arguments are right.
    """
    assignment = re.compile(r"^\s*\w[\w.\[\]>-]* = \{\s*\.", re.MULTILINE)
    assert assignment.search("  a.tiles = {.rows = 1};")
    assert not assignment.search("  tile_scheduler tiles = {.rows = 1};\n  a = t{.rows = 1};")
    device = [p for p in files(CXX) if p.suffix in (".cu", ".cuh")]
    found = [f"{p}: {m[0].strip()}" for p in device for m in assignment.finditer(text(p))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("tree", ["csrc/kernels", "tests/families"])
def test_every_kernel_folder_has_a_record(tree):
    made = "__pycache__"  # by Python
    folders = {p.name for p in (ROOT / tree).iterdir() if p.is_dir() and p.name != made}
    assert folders == {kernel.name for kernel in configs.KERNELS}


def test_ops_package_exports_nothing():
    body = ast.parse(text(Path("thunderkittens/ops/__init__.py"))).body
    assert all(isinstance(node, ast.Expr) for node in body), "only a docstring belongs there"


def test_files_are_short():
    long = {str(p): n for p in files(CXX | {".py"}) if (n := len(text(p).splitlines())) > 400}
    assert not long, f"longer than 400 lines: {long}"


def test_the_trainers_files_are_as_short_as_is_said():
    said = re.search(r"`(demos/\w+)`.*?file has at most (\d+) lines", text(ARCHITECTURE), re.S)
    own = [p for p in files(CXX | {".py"}) if p.as_posix().startswith(f"{said[1]}/")]
    assert len(own) > 40
    long = {str(p): n for p in own if (n := len(text(p).splitlines())) > int(said[2])}
    assert not long, f"longer than {said[2]} lines: {long}"


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
