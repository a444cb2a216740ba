"""What a call does in a pipeline: a wait, an arrive, a fence …, and what its arguments are.

Known are the functions of the seam (csrc/include/kittens/arch), each of which is an instruction,
and the names of their parameters. All others, the tile layer's and a kernel's own, have the roles
of what their bodies call, so a helper may have any name.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from build_tools.settings import ROOT
from tests.mutation import syntax
from tests.mutation.source import Source, closing
from tests.mutation.syntax import Call, Function

# Functions of the seam → their role.
SEAM = {
    name: role
    for role, names in {
        "wait": "mbarrier_wait mbarrier_wait_cluster mbarrier_test cp_async_wait bulk_wait "
        "bulk_wait_read wgmma_wait cluster_wait",
        "arrive": "mbarrier_arrive mbarrier_arrive_remote mbarrier_arrive_cluster "
        "named_barrier_arrive cluster_arrive",
        "expect": "mbarrier_expect_bytes mbarrier_arrive_expect_bytes",
        "barrier": "sync_block sync_warp named_barrier_sync cluster_sync",
        "fence": "fence_async_proxy fence_async_proxy_global wgmma_fence fence_mbarrier_init",
        "commit": "cp_async_commit bulk_commit wgmma_commit",
        "copy": "cp_async cp_async_evict_first tma_load tma_load_evict_first tma_load_multicast "
        "tma_store tma_store_add bulk_load bulk_store bulk_copy_cluster",
        "init": "mbarrier_init",
        "exchange": "atomic_exchange atomic_add atomic_max atomic_min atomic_cas",
        "registers": "raise_registers lower_registers",
    }.items()
    for name in names.split()
}
# Parameters of the seam's functions, and of the tile layer's masks and moves → what they are.
PARAMETERS = {
    "uint32_t parity": "parity",
    "int arrivals": "arrivals",
    "int bytes": "bytes",
    "int id": "barrier number",
    "int threads": "threads",
    "int diagonal": "edge",
    "int first_col": "edge",
    "coord at": "coordinate",
}
FLIP = re.compile(r"\b(\w+) \^= 1(?=;)")  # of a phase, or of which of two buffers it is
# Functions of the tile layer that move tiles beside the threads, or order that.
PIPELINE = re.compile(r"async|fence|commit|semaphore|init|release|finish_loads|^expect|^request")
# Type and names of variables and parameters, also `cursor<4> a = {}, b = {};`.
DECLARED = re.compile(
    r"\b(?!(?:return|auto|else|const|case|typename|using|new)\b)"
    r"([A-Za-z_]\w*)(?:<[^;(){}]*>)?[&*]? "
    r"((?:\w+(?: = \{\})?, )*\w+)(?=[;,={( ])"
)
UNFENCED = "_unfenced"  # of the tile layer's stores


@dataclass(frozen=True)
class Definition:
    """A function, the code that it stands in, and whether that is a kernel's own."""

    function: Function
    code: str
    own: bool

    @functools.cached_property
    def text(self) -> str:
        """All of it."""
        return self.code[self.function.begin : self.function.end]

    @functools.cached_property
    def calls(self) -> tuple[Call, ...]:
        """Those of its body."""
        return tuple(syntax.calls(self.code, self.function.body, self.function.end))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Their declarations."""
        return self.function.parameters or ()


class Roles:
    """The roles of all that a source of kernels may call.

    Args:
        own: The code of the kernels' folder.
        below: The code of the seam and the tile layer.
    """

    def __init__(self, own: tuple[str, ...], below: list[str]) -> None:
        self._by_name: dict[str, list[Definition]] = {}
        self._aliases: dict[str, str] = {}
        self._bases: dict[str, list[str]] = {}
        self._own = "\n".join(own)
        for code, is_own in [*((code, True) for code in own), *((code, False) for code in below)]:
            self._aliases |= dict(re.findall(r"\busing (\w+) =\s+(?:typename )?(\w+)", code))
            for name, bases in re.findall(r"\b(?:struct|class) (\w+) : ([^;{]+)\{", code):
                self._bases[name] = re.findall(r"\w+(?=[<,\s])", bases)
            for function in syntax.functions(code):
                if function.parameters is not None:
                    found = self._by_name.setdefault(function.short, [])
                    found.append(Definition(function, code, is_own))
        self._roles: dict[int, frozenset[str]] = {}
        self._parameters: dict[int, dict[int, str]] = {}

    def of(self, call: Call, inside: Function | None, text: str, *, own: bool = True) -> set[str]:
        """What a call does.

        Args:
            call: Which.
            inside: The function that it stands in.
            text: That function's.
            own: Whether that is a kernel's, or else of the tile layer.
        """
        if call.callee in SEAM and call.qualifier == "arch":
            return {SEAM[call.callee]}
        meant = self._meant(call, inside, text, own)
        found = {role for definition in meant for role in self._of_definition(definition)}
        if own and not call.qualifier and not call.is_member:
            for begin, end in _lambda(call.callee, text):
                for one in syntax.calls(text, begin, end):
                    if one.callee != call.callee:
                        found |= self.of(one, inside, text)
        return found

    def arguments(
        self, call: Call, inside: Function | None, text: str, *, own: bool = True
    ) -> dict[int, str]:
        """What a call's arguments are, as far as it is known: their numbers → of PARAMETERS."""
        found: dict[int, str] = {}
        for definition in self._meant(call, inside, text, own):
            for number, what in self._of_parameters(definition).items():
                if number < len(call.arguments):
                    found.setdefault(number, what)
        return found

    def has_unfenced(self, call: Call) -> bool:
        """Whether another function of its class does the same and leaves out the proxy fence."""
        scope = self._aliases.get(call.qualifier, call.qualifier)
        scopes = {scope, *self._bases.get(scope, ())}
        without = self._by_name.get(f"{call.callee}{UNFENCED}", [])
        return any(one.function.scope in scopes for one in without if one.function.scope)

    def _meant(self, call: Call, inside: Function | None, text: str, own: bool) -> list[Definition]:
        """The functions that a call may mean: those of its own class before others."""
        scope = self._aliases.get(call.qualifier, call.qualifier)
        found = self._by_name.get(call.callee, [])
        if not own:
            found = [one for one in found if not one.own]
        elif scope:
            found = [one for one in found if one.function.scope == scope] or found
        elif call.is_member:
            members = [one for one in found if one.function.scope]
            kind = self._type_of(call.object, text, {one.function.scope for one in members})
            found = [one for one in members if one.function.scope == kind] or members
        elif _is_variable(call.callee, text):
            found = self._by_name.get("operator()", [])
            kind = self._type_of(call.callee, text, {one.function.scope for one in found})
            found = [one for one in found if one.function.scope == kind]
        else:
            mine = inside.scope if inside else ""
            same = [one for one in found if mine and one.function.scope == mine]
            found = same or [one for one in found if not one.function.scope]
            found = [one for one in found if one.own] or found
        fitting = [one for one in found if len(one.parameters) >= len(call.arguments)]
        return [one for one in fitting if len(one.parameters) == len(call.arguments)] or fitting

    def _type_of(self, name: str, text: str, among: set[str]) -> str:
        """The class of a variable, one of some, as far as its declaration names it, or ""."""
        for code in (text, self._own):
            kinds = [self._aliases.get(kind, kind) for kind in _declarations(code).get(name, ())]
            fitting = [kind for kind in kinds if kind in among]
            if fitting:
                return fitting[-1]
        return ""

    def _of_definition(self, definition: Definition) -> frozenset[str]:
        known = self._roles.get(id(definition))
        if known is not None:
            return known
        self._roles[id(definition)] = frozenset()  # of one that calls itself
        function, text = definition.function, definition.text
        found = set()
        for call in definition.calls:
            found |= self.of(call, function, text, own=definition.own)
        if FLIP.search(text):
            found.add("phase")
        if not definition.own and not PIPELINE.search(function.short):
            found -= {"fence", "copy"}  # of what moves tiles
        self._roles[id(definition)] = frozenset(found)
        return self._roles[id(definition)]

    def _of_parameters(self, definition: Definition) -> dict[int, str]:
        known = self._parameters.get(id(definition))
        if known is not None:
            return known
        function, text = definition.function, definition.text
        declared = enumerate(definition.parameters)
        found = {} if definition.own else {n: PARAMETERS[d] for n, d in declared if d in PARAMETERS}
        self._parameters[id(definition)] = found  # also for one that calls itself
        names = [re.fullmatch(r"(?:const )?(\w+) (\w+)", each) for each in definition.parameters]
        for call in definition.calls:
            for number, what in self.arguments(call, function, text, own=definition.own).items():
                argument = definition.code[slice(*call.arguments[number])]
                for i, declaration in enumerate(names):
                    if declaration and _is_passed(declaration, argument, what):
                        found.setdefault(i, what)
        return found


@functools.cache
def _declarations(code: str) -> dict[str, list[str]]:
    """The types that variables of each name have."""
    found: dict[str, list[str]] = {}
    for kind, names in DECLARED.findall(code):
        for name in re.findall(r"\w+", names):
            found.setdefault(name, []).append(kind)
    return found


@functools.cache
def _lambda(name: str, text: str) -> list[tuple[int, int]]:
    """The range of the body of a function's lambda of this name, if it has one."""
    match = re.search(rf"\bauto {name} = \[", text)
    if match is None:
        return []
    body = text.index("{", closing(text, match.end() - 1))
    return [(body, closing(text, body))]


@functools.cache
def _is_variable(name: str, text: str) -> bool:
    """Whether a function declares a variable of this name, other than a lambda."""
    return re.search(rf"[\w>]&? {name}(?:[;{{,)]| =(?! \[))", text) is not None


def _is_passed(declaration: re.Match[str], argument: str, what: str) -> bool:
    """Whether a parameter goes on into an argument that is `what`."""
    kind, name = declaration.groups()
    if what in ("parity", "coordinate"):
        return argument == name
    is_number = kind in ("int", "int64_t", "uint32_t", "unsigned")
    return is_number and re.search(rf"(?<![\w.]){name}(?![\w.])", argument) is not None


def roles_of(folder: str, code: str = "") -> Roles:
    """Those of a family's kernels.

    Args:
        folder: The family's, below csrc: `kernels/norm`.
        code: Of a source that the folder does not have.
    """
    files = _codes(ROOT / "csrc" / folder)
    return _roles(files if code in files or not code else (*files, code))


@functools.cache
def _roles(own: tuple[str, ...]) -> Roles:
    include = ROOT / "csrc/include/kittens"
    below = [code for one in ("arch/sim", "ops", "pipeline") for code in _codes(include / one)]
    return Roles(own, below)


@functools.cache
def _codes(folder: Path) -> tuple[str, ...]:
    return tuple(Source(path.name, path.read_text()).code for path in _headers(folder))


def _headers(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".cuh", ".hpp"))
