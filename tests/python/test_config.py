"""Settings: where they come from, who wins, and what wrong ones say."""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from syrtos import config
from syrtos.errors import InvalidRequestError

ROOT = Path(__file__).parents[2]
LAUNCH = {
    "SYRTOS_RANK": "1",
    "SYRTOS_SIZE": "4",
    "SYRTOS_LOCAL_RANK": "1",
    "SYRTOS_LOCAL_SIZE": "2",
    "SYRTOS_CROSS_RANK": "0",
    "SYRTOS_CROSS_SIZE": "2",
    "SYRTOS_STORE": "node-a:4711",
    "SYRTOS_JOB_ID": "job",
    "SYRTOS_HOST": "node-a",
    "SYRTOS_ADDRESS": "10.0.0.1",
}


def test_nothing_set_is_a_world_of_one() -> None:
    setup = config.resolve(environ={})
    assert (setup.settings.rank, setup.settings.size, setup.store) == (0, 1, "")
    assert setup.log_level == config.LOG_LEVELS.index("warning")


def test_the_launchers_variables_are_read() -> None:
    setup = config.resolve(environ=LAUNCH)
    settings = setup.settings
    assert (settings.rank, settings.size) == (1, 4)
    assert (settings.local_rank, settings.local_size) == (1, 2)
    assert (settings.cross_rank, settings.cross_size) == (0, 2)
    assert (settings.host, settings.address) == ("node-a", "10.0.0.1")
    assert (settings.job_id, setup.store) == ("job", "node-a:4711")


@pytest.mark.parametrize("missing", LAUNCH)
def test_an_incomplete_launch_is_an_error_that_names_what_is_missing(missing: str) -> None:
    environ = {name: value for name, value in LAUNCH.items() if name != missing}
    with pytest.raises(InvalidRequestError, match=missing) as caught:
        config.resolve(environ=environ)
    assert "syrtosrun" in str(caught.value)


def test_a_store_alone_is_an_incomplete_launch() -> None:
    with pytest.raises(InvalidRequestError, match="SYRTOS_RANK"):
        config.resolve(environ={"SYRTOS_STORE": "a:1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SYRTOS_RANK", "4"),
        ("SYRTOS_RANK", "-1"),
        ("SYRTOS_SIZE", "two"),
        ("SYRTOS_SIZE", "0"),
        ("SYRTOS_LOCAL_RANK", "2"),
        ("SYRTOS_CROSS_SIZE", "5"),
    ],
)
def test_wrong_numbers_name_variable_and_value(name: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{name}='{value}': must be"):
        config.resolve(environ={**LAUNCH, name: value})


@pytest.mark.parametrize(
    "environ",
    [
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "2", "PMI_RANK": "1"},
        {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"},
        {"WORLD_SIZE": "2", "RANK": "0"},
        {"HOROVOD_SIZE": "2", "HOROVOD_RANK": "0"},
        {"HOROVOD_RANK": "0"},
    ],
)
def test_another_launcher_is_never_silently_a_world_of_one(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(environ))):
        config.resolve(environ=environ)
    assert config.resolve(environ={**environ, "SYRTOS_ALLOW_SINGLE": "1"}).settings.size == 1
    assert config.resolve(environ={**environ, **LAUNCH}).settings.size == 4


def test_one_task_of_another_launcher_is_a_world_of_one() -> None:
    environ = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "HOROVOD_SIZE": "1"}
    assert config.resolve(environ=environ).settings.size == 1


KNOBS = [
    ("fusion_threshold_bytes", "FUSION_THRESHOLD", "FUSION_THRESHOLD", "1024", 1024),
    ("cache_capacity", "CACHE_CAPACITY", "CACHE_CAPACITY", "0", 0),
    ("start_timeout", "START_TIMEOUT", "START_TIMEOUT", "7.5", 7.5),
    ("peer_timeout", "PEER_TIMEOUT", "GLOO_TIMEOUT_SECONDS", "40", 40.0),
    ("stall_warning", "STALL_CHECK_TIME_SECONDS", "STALL_CHECK_TIME_SECONDS", "1", 1.0),
    ("stall_limit", "STALL_SHUTDOWN_TIME_SECONDS", "STALL_SHUTDOWN_TIME_SECONDS", "9", 9.0),
    ("timeline_path", "TIMELINE", "TIMELINE", "/tmp/t.json", "/tmp/t.json"),
    ("timeline_path", "TIMELINE", "TIMELINE", "DYNAMIC", ""),
    ("timeline_mark_cycles", "TIMELINE_MARK_CYCLES", "TIMELINE_MARK_CYCLES", "1", True),
    ("heartbeat_interval", "HEARTBEAT_INTERVAL", "", "0.5", 0.5),
    ("backend", "BACKEND", "", "pairwise", "pairwise"),
    ("strict_join", "STRICT_JOIN", "", "1", True),
]


@pytest.mark.parametrize(("field", "name", "horovod", "text", "value"), KNOBS)
def test_each_knob_has_its_variables(
    field: str, name: str, horovod: str, text: str, value: object
) -> None:
    def of(**environ: str) -> object:
        return getattr(config.resolve(environ=environ).settings, field)

    assert of(**{f"SYRTOS_{name}": text}) == value
    if horovod:
        assert of(**{f"HOROVOD_{horovod}": text}) == value
        # Syrtos's own name wins; a wrong value under the other is not even read.
        assert of(**{f"SYRTOS_{name}": text, f"HOROVOD_{horovod}": "x"}) == value


def test_the_stall_check_can_be_disabled() -> None:
    environ = {"HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_STALL_CHECK_TIME_SECONDS": "5"}
    assert config.resolve(environ=environ).settings.stall_warning == 0.0


def test_arguments_win_over_the_environment() -> None:
    environ = {"SYRTOS_START_TIMEOUT": "5", "HOROVOD_TIMELINE_MARK_CYCLES": "0"}
    arguments = {"start_timeout": 2, "timeline_mark_cycles": True, "log_level": "DEBUG"}
    setup = config.resolve(arguments, environ)
    assert setup.settings.start_timeout == 2.0
    assert setup.settings.timeline_mark_cycles is True
    assert setup.log_level == config.LOG_LEVELS.index("debug")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SYRTOS_FUSION_THRESHOLD", "-1"),
        ("HOROVOD_FUSION_THRESHOLD", "64MB"),
        ("SYRTOS_START_TIMEOUT", "0"),
        ("SYRTOS_START_TIMEOUT", "nan"),
        ("HOROVOD_STALL_CHECK_DISABLE", "maybe"),
        ("HOROVOD_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_variable_is_named_with_its_value_and_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{name}='{value}': must be .+\.$"):
        config.resolve(environ={name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("start_timeout", True), ("start_timeout", None), ("timeline_mark_cycles", 2)],
)
def test_a_bad_argument_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=rf"init\({name}={value!r}\): must be"):
        config.resolve({name: value}, {})


def test_an_unknown_argument_lists_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"'fusion_treshold'.*fusion_threshold_bytes"):
        config.resolve({"fusion_treshold": 1}, {})


def test_ignored_variables_are_mentioned_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_said", set())
    environ = {"HOROVOD_CYCLE_TIME": "3.5", "HOROVOD_AUTOTUNE": "1"}
    with caplog.at_level(logging.DEBUG, "syrtos"):
        config.mention_ignored(environ)
        config.mention_ignored(environ)
    assert [r.getMessage().partition("=")[0] for r in caplog.records] == [
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_AUTOTUNE",
    ]


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        ({"HOROVOD_AUTOTUNE": "1"}, logging.WARNING),
        ({"HOROVOD_AUTOTUNE": "1", "SYRTOS_RANK": "0"}, logging.WARNING),
        ({"HOROVOD_AUTOTUNE": "1", "SYRTOS_RANK": "1"}, logging.DEBUG),
        ({"HOROVOD_AUTOTUNE": "0"}, logging.DEBUG),
        ({"HOROVOD_CYCLE_TIME": "1"}, logging.DEBUG),
    ],
)
def test_rank_0_warns_of_a_feature_that_is_asked_for_and_missing(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    level: int,
) -> None:
    monkeypatch.setattr(config, "_said", set())
    with caplog.at_level(logging.DEBUG, "syrtos"):
        config.mention_ignored(environ)
    assert [record.levelno for record in caplog.records] == [level]


def test_fields_and_defaults_are_those_of_the_core() -> None:
    from syrtos import _core

    core = _core.Config()
    mirror = config.Settings()
    names = {name for name in dir(core) if not name.startswith("_")}
    assert {field.name for field in dataclasses.fields(mirror)} == names
    for name in names:
        assert getattr(core, name) == getattr(mirror, name), name
        assert type(getattr(core, name)) is type(getattr(mirror, name)), name


def test_settings_travel_to_the_core() -> None:
    settings = config.Settings(rank=1, size=2, stall_limit=2.5, backend="x", epoch=3)
    core = settings.to_core()
    for field in dataclasses.fields(settings):
        assert getattr(core, field.name) == getattr(settings, field.name), field.name


def test_fields_are_those_of_the_header() -> None:
    text = (ROOT / "cpp/syrtos/base/config.h").read_text()
    body = text[text.index("struct Config {") : text.index("\n};")]
    found = re.findall(r"^  (?:int|int64_t|uint64_t|bool|Seconds|std::string) (\w+)", body, re.M)
    assert found == [field.name for field in dataclasses.fields(config.Settings)]
