#!/usr/bin/env python3
"""Fails on an upward edge between layers.

Reads the #include lines under cpp/ and the import statements under python/syrtos/, and checks them
against the dependency rule of ARCHITECTURE.md: arrows point down only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# C++ folder -> prefixes of the Syrtos headers that it may include. The longest folder wins.
BASE = ["syrtos/base/", "syrtos/build_config.h"]
CPP = {
    "cpp/include": ["syrtos/c_api.h"],
    "cpp/syrtos/base": BASE,
    "cpp/syrtos/transport": [*BASE, "syrtos/transport/"],
    "cpp/syrtos/collectives": [*BASE, "syrtos/transport/", "syrtos/collectives/"],
    "cpp/syrtos/collectives/gloo": [*BASE, "syrtos/transport/store.h", "syrtos/collectives/"],
    "cpp/syrtos/engine": [*BASE, "syrtos/transport/", "syrtos/collectives/", "syrtos/engine/"],
    "cpp/syrtos/c_api": ["syrtos/"],
    "cpp/binding": ["syrtos/", "binding/"],
    "cpp/framework_ops": ["syrtos/c_api.h", "framework_ops/"],
}
# The engine names no backend.
BACKENDS = re.compile(r"syrtos/collectives/\w+/")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]((?:syrtos|binding|framework_ops)/[^">]+)')
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")

FRONT_ENDS = {"numpy", "tensorflow", "keras", "torch", "jax"}
FRAMEWORKS = FRONT_ENDS - {"numpy"} | {"jaxlib", "sklearn"}
LAUNCHER_MAY = {"_contract", "_core", "errors", "config", "launcher"}
# Files of the package that sit above everything: they may name the launcher.
TOP = {"__init__", "cli", "doctor"}


def cpp_errors(path: str, text: str) -> Iterator[str]:
    """Yields what is wrong with the includes of one C++ file."""
    folder = max((f for f in CPP if path.startswith(f + "/")), key=len, default=None)
    for number, line in enumerate(text.splitlines(), 1):
        if ENVIRONMENT.search(line.split("//")[0]):
            yield f"{path}:{number}: C++ reads no environment variable; take it from Config"
        match = INCLUDE.match(line)
        if folder is None or not match:
            continue
        header = match[1]
        if not any(header.startswith(prefix) for prefix in CPP[folder]):
            yield f"{path}:{number}: {folder} may not include {header}"
        elif folder == "cpp/syrtos/engine" and BACKENDS.match(header):
            yield f"{path}:{number}: the engine names no backend ({header})"


def imports(path: Path, package: list[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, absolute module name) of each import; for `from . import x`, of x."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(start + ([node.module] if node.module else []))
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def python_errors(root: Path, path: Path) -> Iterator[str]:
    """Yields what is wrong with the imports of one file of the package."""
    parts = path.relative_to(root / "python").with_suffix("").parts
    unit = parts[1]  # the module or folder directly under syrtos/
    for line, name in imports(path, list(parts[:-1])):
        where = f"{path.relative_to(root)}:{line}:"
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if top in FRAMEWORKS and unit not in FRONT_ENDS | {"doctor"}:
            yield f"{where} only front ends import {top}"
        if top != "syrtos" or not target:
            continue
        if unit == "launcher" and target not in LAUNCHER_MAY:
            yield f"{where} the launcher may not import syrtos.{target}"
        elif target == "launcher" and unit not in TOP | {"launcher"}:
            yield f"{where} syrtos.{unit} may not import the launcher"
        elif target in FRONT_ENDS and unit not in FRONT_ENDS:
            yield f"{where} the Python core may not import the front end syrtos.{target}"


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    errors: list[str] = []
    for path in sorted((root / "cpp").rglob("*")):
        if path.suffix in {".h", ".cc", ".cu"}:
            errors += cpp_errors(path.relative_to(root).as_posix(), path.read_text())
    for path in sorted((root / "python" / "syrtos").rglob("*.py")):
        errors += python_errors(root, path)
    print("\n".join([*errors, f"check_layers: {len(errors)} upward edges"]))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
