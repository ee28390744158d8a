#!/usr/bin/env python3
"""Fails on a file of more than 400 lines and reports functions of more than 60.

Python functions are measured by `ast`. C++ functions are found by a brace heuristic: in files
formatted by clang-format, a body opens at the end of a line whose statement holds a parameter list.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LIMIT = 400
FUNCTION_LIMIT = 60
SUFFIXES = {".py", ".cc", ".h", ".cu"}
NAME = re.compile(r"([~\w:]+)\s*\(")
NOT_A_FUNCTION = re.compile(
    r"^\s*(?:if|for|while|switch|else|do|catch|namespace|struct|class|enum)\b"
)
LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|//.*')


def python_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """Yields (line, name, length) of each Python function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def cpp_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """Yields (line, name, length) of each outermost C++ function."""
    depth, statement, start = 0, "", 1
    in_macro = False
    opened: tuple[int, int, str] | None = None  # depth, first line, name
    for number, raw in enumerate(text.splitlines(), 1):
        was_macro, in_macro = in_macro, raw.endswith("\\")
        if was_macro or in_macro:
            continue
        line = LITERAL.sub(lambda match: "" if match[0].startswith("//") else '""', raw)
        if not statement.strip():
            start = number
        statement += " " + line.strip()
        name = NAME.search(statement)
        if opened is None and name and line.rstrip().endswith("{"):
            if not NOT_A_FUNCTION.match(statement.strip()):
                opened = (depth, start, name[1])
        depth += line.count("{") - line.count("}")
        if opened and depth <= opened[0]:
            yield opened[1], opened[2], number - opened[1] + 1
            opened = None
        if line.rstrip().endswith((";", "{", "}", ":")) or line.startswith("#"):
            statement = ""


def tracked(root: Path) -> list[Path]:
    """Lists the files that git knows or would add; all files where there is no git."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=False)
    if found.returncode:
        return sorted(root.rglob("*"))
    return sorted(root / name for name in set(found.stdout.splitlines()))


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    too_long = 0
    for path in tracked(root):
        if not path.is_file() or (path.suffix not in SUFFIXES and path.name != "dev"):
            continue
        text, name = path.read_text(), path.relative_to(root)
        lines = text.count("\n")
        if lines > FILE_LIMIT:
            too_long += 1
            print(f"{name}: {lines} lines, more than {FILE_LIMIT}")
        if path.name == "dev":
            continue
        functions = python_functions if path.suffix == ".py" else cpp_functions
        for line, function, length in functions(text):
            if length > FUNCTION_LIMIT:
                print(f"{name}:{line}: note: {function} has {length} lines (> {FUNCTION_LIMIT})")
    print(f"report_length: {too_long} files over {FILE_LIMIT} lines")
    return bool(too_long)


if __name__ == "__main__":
    sys.exit(main())
