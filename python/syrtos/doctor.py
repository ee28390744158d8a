"""``syrtos doctor``: what is built in, what is missing, why, and what would fix it.

Needs nothing but Python: frameworks are looked up by their metadata and never imported, and a core
that cannot be loaded is a line of the report, not a failure of it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Row", "Section", "main", "render", "report"]

_PACKAGE = Path(__file__).parent
_REBUILD = (
    "reinstall it with `pip install --force-reinstall syrtos`, or in a checkout `./dev build`"
)


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    name: str
    #: True: usable; False: not; None: information only.
    ok: bool | None
    text: str


@dataclass(frozen=True)
class Section:
    """A heading with its lines."""

    title: str
    rows: tuple[Row, ...]


def _find_version(*names: str) -> str | None:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _minor(text: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _load_core() -> tuple[ModuleType | None, str]:
    """Return the native module, or why it cannot be loaded and what to do."""
    found = sorted(path.name for path in _PACKAGE.glob("_core*.so"))
    try:
        import importlib

        return importlib.import_module("syrtos._core"), ""
    except ImportError as error:
        if not found:
            return None, (
                "the package has no native core (a pure-Python installation, or a source tree that "
                f"was not built): {_REBUILD}"
            )
        return None, f"{', '.join(found)} cannot be loaded: {error}; {_REBUILD}"


def _core_row(core: ModuleType | None, problem: str) -> Row:
    if core is None:
        return Row("core", False, problem)
    info: Mapping[str, Any] = core.build_info()
    extra = ", with a sanitizer" if info.get("sanitizer") else ""
    return Row(
        "core",
        True,
        f"version {info['version']}, {info['compiler']}, pybind11 {info['pybind11']}, "
        f"C API {info['c_api']}{extra} ({core.__file__})",
    )


def _glibc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown C library"
    except (AttributeError, ValueError, OSError):
        return " ".join(platform.libc_ver()) or "unknown C library"


def _system_rows() -> Iterator[Row]:
    yield Row("python", None, f"{platform.python_version()} ({sys.executable})")
    system = f"{platform.system()} {platform.release()} {platform.machine()}, {_glibc()}"
    yield Row("system", None, system)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Row("cpus", None, f"{usable} usable of {os.cpu_count()}")


def _backend_rows(core: ModuleType) -> Iterator[Row]:
    from syrtos import config

    settings = config.Settings(gloo_plugin_path=config.default_plugin())
    for name, usable, reason in core.backends_available(settings.to_core()):
        yield Row(name, usable, "built in" if usable else reason)


def _numpy_row() -> Row:
    found = _find_version("numpy")
    if found is None:
        return Row("numpy", False, "NumPy is missing: pip install numpy")
    extra = _find_version("ml_dtypes")
    bfloat16 = f"ml_dtypes {extra}" if extra else "no bfloat16: pip install ml_dtypes"
    return Row("numpy", True, f"NumPy {found}, {bfloat16}")


def _tensorflow_row() -> Row:
    names = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")
    found = _find_version(*names, "tensorflow-gpu", "tensorflow-cpu-aws", "tensorflow-intel")
    if found is None:
        return Row("tensorflow", False, "not installed: pip install 'tensorflow>=2.16,<2.22'")
    text = f"TensorFlow {found}"
    if _minor(found) < (2, 16):
        remedy = "pip install 'tensorflow>=2.16,<2.22'"
        return Row("tensorflow", False, f"{text}: Syrtos works with 2.16 to 2.21; {remedy}")
    if _minor(found) > (2, 21):
        text += " (not tested; 2.16 to 2.21 are)"
    if not (_PACKAGE / "_tensorflow.so").exists():
        return Row("tensorflow", False, f"{text}, but _tensorflow.so is missing: {_REBUILD}")
    return Row("tensorflow", True, text)


def _keras_row(frameworks: list[Row]) -> Row:
    found = _find_version("keras")
    if found is None:
        return Row("keras", False, "not installed: pip install 'keras>=3.3'")
    if _minor(found) < (3, 3):
        return Row("keras", False, f"Keras {found}: 3.3 or newer needed; pip install 'keras>=3.3'")
    backends = [row.name for row in frameworks if row.ok]
    if not backends:
        return Row("keras", False, f"Keras {found}, but none of its backends is usable here")
    return Row("keras", True, f"Keras {found}, with {', '.join(backends)}")


def _framework_row(name: str, title: str, oldest: tuple[int, int]) -> Row:
    """Return the line for a framework of which any release from `oldest` on will do."""
    found = _find_version(name)
    wanted = ".".join(map(str, oldest))
    if found is None:
        return Row(name, False, f"not installed: pip install '{name}>={wanted}'")
    return Row(name, _minor(found) >= oldest, f"{title} {found} ({wanted} or newer needed)")


def _jax_row() -> Row:
    row = _framework_row("jax", "JAX", (0, 5))
    if row.ok and not (_PACKAGE / "_jax.so").exists():
        return Row("jax", False, f"{row.text}, but _jax.so is missing: {_REBUILD}")
    return row


def _front_end_rows() -> Iterator[Row]:
    yield _numpy_row()
    frameworks = [_tensorflow_row(), _framework_row("torch", "PyTorch", (2, 4)), _jax_row()]
    yield from frameworks
    yield _keras_row(frameworks)


def _launch_rows(environ: Mapping[str, str]) -> Iterator[Row]:
    from syrtos import config

    try:
        settings = config.resolve(environ=environ).settings
    except Exception as error:  # shown to the user, who asked what is wrong
        yield Row("launch", False, str(error))
        return
    where = f"rank {settings.rank} of {settings.size} on {settings.host}"
    yield Row("launch", None, where if settings.size > 1 else "a world of one (no launcher)")
    default = config.Settings()
    for knob in config.KNOBS:
        value = getattr(settings, knob.field, None)
        if knob.field != "gloo_plugin_path" and value != getattr(default, knob.field, None):
            yield Row(knob.field, None, f"{value!r} (default {getattr(default, knob.field)!r})")


def report(
    environ: Mapping[str, str] | None = None,
    load: Callable[[], tuple[ModuleType | None, str]] = _load_core,
) -> tuple[list[Section], bool]:
    """Gather the report.

    Parameters
    ----------
    environ : mapping, optional
        Environment variables; those of the process if not given.
    load : callable
        Returns the native module, or None and the reason.

    Returns
    -------
    sections : list of Section
        What to show.
    healthy : bool
        Whether the core can be loaded.
    """
    core, problem = load()
    sections = [Section("Syrtos", (_core_row(core, problem), *_system_rows()))]
    if core is not None:
        sections.append(Section("Communicators", tuple(_backend_rows(core))))
    sections.append(Section("Front ends", tuple(_front_end_rows())))
    settings = tuple(_launch_rows(os.environ if environ is None else environ))
    sections.append(Section("This process", settings))
    return sections, core is not None


_MARKS = {True: "[x]", False: "[ ]", None: "   "}


def render(sections: Sequence[Section]) -> str:
    """Return the report as text.

    Parameters
    ----------
    sections : sequence of Section
        What `report` returned.
    """
    lines: list[str] = []
    for section in sections:
        lines += [*([""] if lines else []), section.title]
        lines += [f"  {_MARKS[row.ok]} {row.name:<12} {row.text}" for row in section.rows]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 0 if the core can be loaded, else 1.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line without the program's name; none are known yet.
    """
    import argparse

    parser = argparse.ArgumentParser(
        prog="syrtos doctor", description="Show what Syrtos can do in this environment."
    )
    parser.parse_args(arguments)
    sections, healthy = report()
    print(render(sections))
    return 0 if healthy else 1
