"""The report of ``syrtos doctor``, with and without a core."""

from __future__ import annotations

import subprocess
import sys

import pytest

from syrtos import cli, doctor


def rows(environ: dict[str, str] | None = None, **options: object) -> dict[str, doctor.Row]:
    sections, _ = doctor.report({} if environ is None else environ, **options)
    return {row.name: row for section in sections for row in section.rows}


def test_a_healthy_installation_is_described() -> None:
    sections, healthy = doctor.report({})
    found = rows()
    assert healthy
    assert found["core"].ok is True
    assert found["local"].ok is True
    assert found["numpy"].ok is True
    text = doctor.render(sections)
    assert "[x] core" in text
    assert "C API" in text
    assert "a world of one" in text


def test_a_missing_core_is_a_line_with_its_remedy() -> None:
    _, healthy = doctor.report({}, lambda: (None, "no core: do this"))
    assert not healthy
    found = rows(load=lambda: (None, "no core: do this"))
    assert found["core"].ok is False
    assert found["core"].text == "no core: do this"
    assert found["numpy"].ok is True


@pytest.mark.parametrize(
    ("versions", "ok", "words"),
    [
        ({}, False, "not installed: pip install"),
        ({"tensorflow": "2.15.1"}, False, "2.16 to 2.21"),
        ({"tensorflow-cpu": "2.22.0"}, True, "not tested; 2.16 to 2.21 are"),
    ],
)
def test_tensorflow_releases_are_judged(
    versions: dict[str, str], ok: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*names: str) -> str | None:
        return next((versions[name] for name in names if name in versions), None)

    monkeypatch.setattr(doctor, "_find_version", find)
    row = rows()["tensorflow"]
    assert row.ok is ok
    assert words in row.text
    assert rows()["numpy"].text.endswith("pip install numpy")
    assert "not installed: pip install" in rows()["jax"].text


def test_a_broken_launch_is_shown() -> None:
    row = rows({"SYRTOS_SIZE": "2"})["launch"]
    assert row.ok is False
    assert "SYRTOS_RANK" in row.text


def test_settings_that_differ_from_the_default_are_shown() -> None:
    found = rows({"HOROVOD_FUSION_THRESHOLD": "0"})
    assert found["fusion_threshold_bytes"].text == "0 (default 134217728)"


def test_no_framework_is_imported() -> None:
    script = """
import sys
from syrtos import doctor
code = doctor.main([])
heavy = {"tensorflow", "keras", "torch", "jax", "numpy"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Front ends" in result.stdout


def test_the_command_has_a_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("syrtos ")
    assert cli.main([]) == 2
    assert "doctor" in capsys.readouterr().out
    assert cli.main(["doctor"]) == 0
