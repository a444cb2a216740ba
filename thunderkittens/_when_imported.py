"""Steps that wait for a module of torch's which most programs never import.

What our ops have to tell `torch.compile`, the FLOP counter and DTensor can be told only to modules
that take up to seconds to import. `import thunderkittens` imports none of them: each is told when
it is imported, or at once if it is there.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(name: str, step: Callable[[ModuleType], None], needs: str = "") -> None:
    """Calls `step` with the module: now, if it is there, or else when it is imported.

    Args:
        name: The module's, dotted.
        step: What to do; an error of it ends the import.
        needs: An attribute that a module has which is there in full.
    """
    module = sys.modules.get(name)
    if module is not None and hasattr(module, needs or "__name__"):
        step(module)
    else:
        sys.meta_path.insert(0, _Finder(name, step))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing by itself: adds a step to the import of one module, then goes."""

    def __init__(self, name: str, step: Callable[[ModuleType], None]) -> None:
        self._name, self._step = name, step

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # or it would find itself
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            del loader.exec_module  # the class's own again, for a reload
            execute(module)
            self._step(module)

        # mypy: of this one loader, not of its class
        loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
