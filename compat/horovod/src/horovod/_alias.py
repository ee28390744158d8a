"""Makes ``horovod.x`` and its counterpart in Syrtos one module object.

A finder answers imports of names below `TREES`. If Syrtos has the module, it becomes the module of
both names; the import system itself sets the attribute of the parent package. Else the file of that
name in ``_modules`` is loaded, as an ordinary module of that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

#: Horovod's name -> that in Syrtos; what is below the one is below the other. The longest counts.
TREES = {
    "horovod.common.elastic": "syrtos.elastic",
    "horovod.common.process_sets": "syrtos.process_sets",
    "horovod.keras": "syrtos.keras",
    "horovod.tensorflow": "syrtos.tensorflow",
    "horovod.torch": "syrtos.torch",
}

#: Modules without counterpart which are attributes of their parent as soon as that is imported.
ATTACHED = {
    "horovod.tensorflow": ("horovod.tensorflow.mpi_ops", "horovod.tensorflow.util"),
    "horovod.torch": ("horovod.torch.mpi_ops",),
}

#: What scripts find in a package of Horovod beyond its counterpart: package -> name -> module.
LENT = {
    "horovod.tensorflow": {
        "_executing_eagerly": "horovod.tensorflow.util",
        "_make_subgraph": "horovod.tensorflow.util",
        "check_num_rank_power_of_2": "horovod.tensorflow.mpi_ops",
        "gpu_available": "horovod.common.util",
        "handle_average_backwards_compatibility": "horovod.tensorflow.mpi_ops",
        "refs_to_vars": "horovod.tensorflow.util",
        "split_list": "horovod.common.util",
        "vars_to_refs": "horovod.tensorflow.util",
    },
}

_FOLDER = Path(__file__).with_name("_modules")

# The specs of Syrtos' modules, by their own names.
_specs: dict[str, ModuleSpec] = {}


def counterpart(name: str) -> str | None:
    """Return the name that Syrtos would have for a module of Horovod; None outside `TREES`."""
    tree = name
    while tree not in TREES:
        tree, dot, _ = tree.rpartition(".")
        if not dot:
            return None
    return TREES[tree] + name[len(tree) :]


class _SharedLoader(InspectLoader):
    """Returns the module of another name instead of making one."""

    def __init__(self, name: str, target: ModuleSpec) -> None:
        self._name = name
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the counterpart."""
        module = importlib.import_module(self._target.name)
        own = module.__spec__
        if own is not None and own.name == self._target.name:
            _specs[own.name] = own
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what the import system has changed in it, and attach what belongs to it."""
        module.__spec__ = _specs[self._target.name]
        for name in ATTACHED.get(self._name, ()):
            importlib.import_module(name)
        for name, source in LENT.get(self._name, {}).items():
            if not hasattr(module, name):
                setattr(module, name, getattr(importlib.import_module(source), name))

    # What `python -m` asks for.

    def is_package(self, fullname: str) -> bool:
        """Return whether the counterpart is a package."""
        return self._target.submodule_search_locations is not None

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the counterpart's code."""
        loader = self._target.loader
        return loader.get_code(self._target.name) if isinstance(loader, InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        """Return the counterpart's source."""
        loader = self._target.loader
        return loader.get_source(self._target.name) if isinstance(loader, InspectLoader) else None


class Finder(MetaPathFinder):
    """Finds the modules below `TREES`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a module below `TREES`, None for any other."""
        own = counterpart(fullname) if fullname.startswith("horovod.") else None
        if own is None:
            return None
        try:
            found = importlib.util.find_spec(own)
        except ModuleNotFoundError:  # its parent is no package
            found = None
        if found is not None:
            loader: Loader = _SharedLoader(fullname, found)
            spec = ModuleSpec(fullname, loader, origin=found.origin)
            spec.submodule_search_locations = found.submodule_search_locations
            return spec
        file = _FOLDER.joinpath(*fullname.split(".")[1:]).with_suffix(".py")
        return importlib.util.spec_from_file_location(fullname, file) if file.exists() else None


def child(package: str, name: str) -> ModuleType:
    """Import a module of `TREES` as the attribute of its package that is asked for.

    A function that cloudpickle has sent refers to ``horovod`` and, by its own name, to the module
    of Syrtos, so nobody has imported ``horovod.torch`` where it arrives.

    Raises
    ------
    AttributeError
        There is no such module.
    """
    full = f"{package}.{name}"
    if full not in TREES:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(full)


def install() -> None:
    """Let the finder answer before all others; harmless if it does already."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
