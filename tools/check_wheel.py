#!/usr/bin/env python3
"""Checks a built wheel: the symbols of its libraries and the age of system it needs.

usage: check_wheel.py WHEEL
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

GLIBC_LIMIT = (2, 34)  # manylinux_2_34: RHEL 9, Debian 12, Ubuntu 22.04
FOREIGN = re.compile(
    r"tensorflow|\bxla|\btsl|absl|protobuf|\btorch\b|c10|\bTF_\w+|at::", re.IGNORECASE
)
PLUGIN = "libsyrtos_gloo.so"  # bound to the system's Gloo, so left out of the tag


def foreign_symbols(library: Path) -> list[str]:
    """Returns the dynamic symbols that belong to a framework."""
    command = ["nm", "-D", "--demangle", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # _tensorflow.so may carry the word in names of its own, but never import such a name.
    undefined_only = library.name.startswith("_tensorflow")
    names = [line[17:] for line in listing.splitlines()]
    names = [name for name in names if not undefined_only or name.startswith("U ")]
    return [name for name in names if FOREIGN.search(name)]


def manylinux_tag(wheel: Path, folder: Path) -> str:
    """Returns auditwheel's tag for a wheel without the Gloo plug-in."""
    core = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(core, "w") as target:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith("RECORD"):
                rows = data.decode().splitlines(keepends=True)
                data = "".join(row for row in rows if PLUGIN not in row).encode()
            if not item.filename.endswith(PLUGIN):
                target.writestr(item, data)
    command = [sys.executable, "-m", "auditwheel", "show", str(core)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r'platform tag:\s+"([^"]+)"', shown.stdout.replace("\n", " "))
    if match is None:
        raise SystemExit(f"auditwheel did not name a tag:\n{shown.stdout}{shown.stderr}")
    return match[1]


def main() -> int:
    wheel = Path(sys.argv[1])
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "wheel")
        libraries = sorted((folder / "wheel").rglob("*.so"))
        for library in libraries:
            found = foreign_symbols(library)
            errors += [f"{library.name} shows a framework's symbol: {symbol}" for symbol in found]
        tag = manylinux_tag(wheel, folder)
    print(f"libraries: {', '.join(library.name for library in libraries)}")
    print(f"the core's platform tag: {tag}")
    version = re.match(r"manylinux_(\d+)_(\d+)_", tag)
    if version is None or (int(version[1]), int(version[2])) > GLIBC_LIMIT:
        errors.append(f"{tag} is newer than manylinux_{GLIBC_LIMIT[0]}_{GLIBC_LIMIT[1]}")
    print("\n".join([*errors, f"check_wheel: {len(errors)} errors"]))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
