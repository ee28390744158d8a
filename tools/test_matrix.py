#!/usr/bin/env python3
"""Runs the tests of the front ends on several versions of their frameworks, and writes a table.

usage: test_matrix.py [--built] [--folder FOLDER] [--table FILE] [--files GLOB]... [ENVIRONMENT]...

Each environment is a folder made by ``venv`` with one release of a framework. It gets the one wheel
of dist/ (``./dev wheel`` makes it); with --built the tests take the built tree instead. Results are
kept as a file for each environment, so the table can be made in several sessions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "python"
#: What the tests themselves need; versions as in tools/requirements.txt where it has one.
COMMON = ("pytest", "pytest-timeout", "cloudpickle", "pyyaml", "ml_dtypes", "scikit-learn")
#: A test file that takes longer than this hangs.
FILE_SECONDS = 3600


@dataclass(frozen=True)
class Environment:
    """One version of a framework."""

    name: str
    #: Requirements as for pip.
    packages: tuple[str, ...]
    #: Globs of the test files.
    files: tuple[str, ...]
    #: The packages whose versions the table shows.
    shown: tuple[str, ...]
    #: Requirements that are installed without theirs, which would bring another TensorFlow.
    alone: tuple[str, ...] = ()


def tensorflow(minor: str, patch: str) -> Environment:
    """Returns the environment of a minor release of TensorFlow, with the Keras 3 that CI has."""
    return Environment(
        f"tf{minor.replace('.', '')}",
        (f"tensorflow-cpu=={minor}.{patch}", "keras==3.15.1"),
        ("test_tensorflow*.py", "test_keras*.py"),
        ("tensorflow_cpu", "keras", "tf_keras", "numpy"),
        (f"tf-keras=={minor}.*",),
    )


def jax(name: str, version: str) -> Environment:
    """Returns the environment of a release of JAX."""
    return Environment(
        name, (f"jax=={version}", "optax"), ("test_jax*.py",), ("jax", "jaxlib", "optax", "numpy")
    )


ENVIRONMENTS = (
    tensorflow("2.16", "2"),
    tensorflow("2.18", "1"),
    tensorflow("2.19", "1"),
    tensorflow("2.21", "0"),
    jax("jax05", "0.5.3"),
    jax("jax06", "0.6.2"),
    jax("jax010", "0.10.2"),
)


@dataclass
class FileResult:
    """What pytest said about one test file."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: Names of the tests that failed, or what ended the run.
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.passed} passed"
        text += f", **{self.failed} failed**" if self.failed else ""
        return text + (f", {self.skipped} skipped" if self.skipped else "")


@dataclass
class Result:
    """What is kept of an environment."""

    date: str
    #: What was tested: the name of a wheel, or "built tree".
    tested: str
    versions: dict[str, str]
    files: dict[str, FileResult]


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def pinned() -> dict[str, str]:
    """Returns the lines of tools/requirements.txt by package."""
    lines = (ROOT / "tools" / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return {line.split(";")[0].split("==")[0].strip(): line for line in wanted}


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def prepare(environment: Environment, folder: Path) -> Path:
    """Makes the environment where it is missing and returns its interpreter."""
    python = folder / environment.name / "bin" / "python"
    stamp = folder / environment.name / ".complete"
    pins = pinned()
    wanted = [*environment.packages, *(pins.get(name, name) for name in COMMON)]
    described = "\n".join([*wanted, *environment.alone])
    if stamp.exists() and stamp.read_text() == described:
        return python
    say(f"{environment.name}: installing {' '.join(environment.packages)}")
    subprocess.run([sys.executable, "-m", "venv", str(folder / environment.name)], check=True)
    pip(python, *wanted)
    if environment.alone:
        pip(python, "--no-deps", *environment.alone)
    stamp.write_text(described)
    return python


def newest_wheel(pattern: str) -> Path:
    wheels = sorted((ROOT / "dist").glob(pattern), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"there is no dist/{pattern}: run ./dev wheel first, or use --built")
    return wheels[-1]


def install(python: Path, built: bool) -> tuple[str, dict[str, str]]:
    """Returns what is tested and the variables under which the tests find it."""
    if built:
        paths = [ROOT / "python", ROOT / "compat" / "horovod" / "src"]
        return "built tree", {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    wheels = [newest_wheel("syrtos-*.whl"), newest_wheel("syrtos_horovod-*.whl")]
    pip(python, "--no-deps", "--force-reinstall", *map(str, wheels))
    return wheels[0].name, {}


def versions(python: Path, names: tuple[str, ...]) -> dict[str, str]:
    script = (
        "import importlib.metadata as m, json, sys\n"
        "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [str(python), "-c", script, *names], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def read_report(report: Path, returncode: int) -> FileResult:
    """Reads pytest's report of one file."""
    if not report.exists():
        return FileResult(failed=1, failures=[f"pytest ended with {returncode} and no report"])
    result = FileResult()
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            result.failed += 1
            result.failures.append(str(case.get("name")))
        elif "skipped" in kinds:
            result.skipped += 1
        else:
            result.passed += 1
    if returncode not in (0, 1, 5) and not result.failed:
        result.failed, result.failures = 1, [f"pytest ended with {returncode}"]
    return result


def run_file(python: Path, path: Path, logs: Path, variables: dict[str, str]) -> FileResult:
    """Runs one test file in a process of its own."""
    report, log = logs / f"{path.stem}.xml", logs / f"{path.stem}.log"
    report.unlink(missing_ok=True)
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-m", "pytest", "-q", str(path), "--junit-xml", str(report)]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**inherited, **variables}, stdout=output, stderr=output
        )
        try:
            returncode = process.wait(timeout=FILE_SECONDS)
        except BaseException:
            process.kill()
            raise
    return read_report(report, returncode)


def run(environment: Environment, folder: Path, built: bool, files: list[str]) -> Result:
    """Runs the tests of one environment."""
    python = prepare(environment, folder)
    tested, variables = install(python, built)
    logs = folder / environment.name / "logs"
    logs.mkdir(exist_ok=True)
    paths = sorted({path for glob in environment.files for path in TESTS.glob(glob)})
    results = {}
    for path in paths:
        if files and not any(fnmatch(path.name, glob) for glob in files):
            continue
        results[path.name] = run_file(python, path, logs, variables)
        say(f"{environment.name}: {path.name}: {results[path.name]}")
    today = datetime.date.today().isoformat()
    return Result(today, tested, versions(python, environment.shown), results)


def keep(environment: Environment, folder: Path, result: Result) -> None:
    """Writes the result; files that were not run this time keep what they had."""
    path = folder / f"{environment.name}.json"
    if path.exists():
        earlier = json.loads(path.read_text())["files"]
        result.files = {n: FileResult(**f) for n, f in earlier.items()} | result.files
        result.files = {n: f for n, f in sorted(result.files.items()) if (TESTS / n).exists()}
    path.write_text(json.dumps(asdict(result), indent=1))


def table(folder: Path) -> str:
    """Returns the page: for each environment its versions, and what each file said."""
    lines = [
        "# Versions of the frameworks that were tested",
        "",
        "Written by `./dev test-matrix`, which is run by hand; do not edit. CI runs the newest",
        "version of each framework. One wheel serves all of them.",
        "",
    ]
    for environment in ENVIRONMENTS:
        path = folder / f"{environment.name}.json"
        if not path.exists():
            continue
        kept = json.loads(path.read_text())
        shown = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
        lines += [f"## {shown}", "", f"{kept['date']}, {kept['tested']}.", ""]
        lines += ["| tests | result |", "| --- | --- |"]
        for name, values in kept["files"].items():
            result = FileResult(**values)
            lines.append(f"| `{name}` | {result} |")
            lines += [f"| | failed: `{failure}` |" for failure in result.failures]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [environment.name for environment in ENVIRONMENTS]
    parser.add_argument("environment", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--built", action="store_true", help="test the built tree, not the wheel")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    parser.add_argument("--table", type=Path, default=ROOT / "docs" / "framework_versions.md")
    parser.add_argument("--files", action="append", default=[], help="only test files like this")
    arguments = parser.parse_args()
    unknown = set(arguments.environment) - set(names)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for environment in ENVIRONMENTS:
        if arguments.environment and environment.name not in arguments.environment:
            continue
        result = run(environment, folder, arguments.built, arguments.files)
        failed += sum(each.failed for each in result.files.values())
        keep(environment, folder, result)
        arguments.table.write_text(table(folder))
    say(f"{arguments.table}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
