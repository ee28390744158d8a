"""The options of ``horovodrun``: worked, ignored aloud or refused."""

from __future__ import annotations

import sys

import pytest

from horovod.runner import launch
from syrtos.errors import InvalidRequestError
from syrtos.launcher.hosts import HostSlots

BASE = ["-np", "2"]


def read(*arguments: str) -> tuple[object, str]:
    """Return Syrtos' options for a command line, and the warning."""
    args = launch.parse_args([*BASE, *arguments, "prog", "-np", "9"])
    return launch.to_options(args), launch._warnings(args)


# ---- options that work ----

SETTINGS = {
    "--start-timeout 7": ("SYRTOS_START_TIMEOUT", "7"),
    "--fusion-threshold-mb 32": ("SYRTOS_FUSION_THRESHOLD", str(32 << 20)),
    "--fusion-threshold-mb 0": ("SYRTOS_FUSION_THRESHOLD", "0"),
    "--cache-capacity 0": ("SYRTOS_CACHE_CAPACITY", "0"),
    "--timeline-filename t.json": ("SYRTOS_TIMELINE", "t.json"),
    "--timeline-mark-cycles": ("SYRTOS_TIMELINE_MARK_CYCLES", "1"),
    "--no-timeline-mark-cycles": ("SYRTOS_TIMELINE_MARK_CYCLES", "0"),
    "--no-stall-check": ("SYRTOS_STALL_CHECK_DISABLE", "1"),
    "--stall-check": ("SYRTOS_STALL_CHECK_DISABLE", "0"),
    "--stall-check-warning-time-seconds 5": ("SYRTOS_STALL_CHECK_TIME_SECONDS", "5"),
    "--stall-check-shutdown-time-seconds 9": ("SYRTOS_STALL_SHUTDOWN_TIME_SECONDS", "9"),
    "--gloo-timeout-seconds 40": ("SYRTOS_PEER_TIMEOUT", "40"),
    "--log-level DEBUG": ("SYRTOS_LOG_LEVEL", "DEBUG"),
    "--log-level info": ("SYRTOS_LOG_LEVEL", "INFO"),
}


@pytest.mark.parametrize("words", SETTINGS)
def test_an_option_becomes_a_setting_that_ranks_accept(words):
    from syrtos import config

    options, warning = read(*words.split())
    name, value = SETTINGS[words]
    assert options.settings == {name: value}
    assert options.command == ["prog", "-np", "9"]
    assert warning == ""
    config.resolve({}, options.settings)  # raises if it would in init()


def test_where_and_how_much():
    options, _ = read("--verbose", "-prefix-timestamp", "--output-filename", "logs", "--gloo")
    assert (options.num_proc, options.verbose, options.timestamp) == (2, True, True)
    assert options.output_filename == "logs"
    assert options.hosts == [HostSlots("localhost", 2)]


def test_hosts(tmp_path):
    assert read("-H", "localhost:2,127.0.0.1:3")[0].hosts == [
        HostSlots("localhost", 2),
        HostSlots("127.0.0.1", 3),
    ]
    file = tmp_path / "hosts"
    file.write_text("localhost slots=4\n")
    for option in ("-hostfile", "--hostfile"):
        assert read(option, str(file))[0].hosts == [HostSlots("localhost", 4)]


# ---- options without effect ----

IGNORED = {
    "-p 22": "--ssh-port",
    "--ssh-port 22": "--ssh-port",
    "-i key": "--ssh-identity-file",
    "--network-interfaces eth0,eth1": "--network-interfaces",
    "--network-interface eth0 --network-interface lo": "--network-interfaces",
    "--disable-cache": "--disable-cache",
    "--cycle-time-ms 3.5": "--cycle-time-ms",
    "--hierarchical-allreduce": "--hierarchical-allreduce",
    "--hierarchical-allgather": "--hierarchical-allgather",
    "--torus-allreduce": "--torus-allreduce",
    "--autotune": "--autotune",
    "--autotune-log-file f": "--autotune-log-file",
    "--autotune-warmup-samples 0": "--autotune-warmup-samples",
    "--autotune-steps-per-sample 1": "--autotune-steps-per-sample",
    "--autotune-bayes-opt-max-samples 1": "--autotune-bayes-opt-max-samples",
    "--autotune-gaussian-process-noise 0.5": "--autotune-gaussian-process-noise",
    "--mpi-threads-disable": "--mpi-threads-disable",
    "--mpi-args=--map-by": "--mpi-args",
    "--tcp": "--tcp",
    "--binding-args=--rankfile": "--binding-args",
    "--num-nccl-streams 2": "--num-nccl-streams",
    "--thread-affinity 0": "--thread-affinity",
    "--log-with-timestamp": "--log-with-timestamp",
    "--no-log-hide-timestamp": "--log-with-timestamp",
    "--log-without-timestamp": "--log-without-timestamp",
    "--log-hide-timestamp": "--log-without-timestamp",
    "--mpi": "--mpi",
    "--jsrun": "--jsrun",
    "--min-np 2": "--min-np",
    "--min-num-proc 2 --max-num-proc 2": "--min-np, --max-np",
}


@pytest.mark.parametrize("words", IGNORED)
def test_an_option_without_effect_is_named_once(words):
    options, warning = read(*words.split())
    assert warning == f"accepted without effect in Syrtos: {IGNORED[words]}"
    assert options.settings == {}


@pytest.mark.parametrize(
    "option",
    [
        *("--no-autotune", "--no-hierarchical-allreduce", "--no-hierarchical-allgather"),
        *("--no-torus-allreduce", "--no-mpi-threads-disable", "--gloo"),
    ],
)
def test_what_is_so_anyway_is_accepted_without_a_word(option):
    options, warning = read(option)
    assert (options.settings, warning) == ({}, "")


def test_several_names_in_one_network_interface_are_deprecated():
    with pytest.warns(DeprecationWarning, match="use --network-interfaces"):
        args = launch.parse_args([*BASE, "--network-interface", "eth0,lo", "prog"])
    assert args.nics == {"eth0", "lo"}


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--host-discovery-script ./hosts.sh", "--host-discovery-script"),
        ("--slots-per-host 2", "--slots-per-host"),
        ("--elastic-timeout 5", "--elastic-timeout"),
        ("--reset-limit 0", "--reset-limit"),
        ("--blacklist-cooldown-range 1 9", "--blacklist-cooldown-range"),
        ("--min-np 1", "--min-np"),
        ("--max-np 3", "--max-np"),
        ("--min-np 2 --max-np 3", "--max-np"),
        ("--min-np 1 --reset-limit 3", "--reset-limit, --min-np"),
    ],
)
def test_an_elastic_job_is_refused_with_the_options_that_ask_for_it(words, named):
    with pytest.raises(InvalidRequestError, match=rf"^{named}: elastic jobs are not supported"):
        read(*words.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--fusion-threshold-mb x", "--fusion-threshold-mb: 'x' is not a number"),
        ("--cache-capacity -1", "--cache-capacity: '-1' is not a whole number of 0 or more"),
        ("--autotune-gaussian-process-noise 2", "'2' is not a number from 0 to 1"),
        ("--gloo-timeout-seconds 0", "'0' is not a whole number of 1 or more"),
        ("--log-level LOUD", "--log-level: invalid choice: 'LOUD'"),
        ("--autotune --no-autotune", "not allowed with"),
        ("--gloo --mpi", "not allowed with"),
        ("-H localhost:2 -hostfile f", "not allowed with"),
        ("-H elsewhere:2", "'elsewhere' is not this machine"),
        ("--nonsense", "--nonsense"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_it(words, text):
    import re

    with pytest.raises(InvalidRequestError, match=re.escape(text)):
        read(*words.split())


def test_number_and_command_are_required():
    for arguments, text in ((["prog"], "-np is missing"), (["-np", "2"], "no command")):
        with pytest.raises(InvalidRequestError, match=text):
            launch.to_options(launch.parse_args(arguments))


# ---- --config-file ----

FILE = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 50
  cache_capacity: 2048
  hierarchical_allreduce: true
  torus_allreduce: false
autotune:
  enabled: true
  log_file: log.csv
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 30
library_options:
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp:
"""


def test_a_config_file_stands_for_options(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(FILE)
    options, warning = read(
        "--config-file", str(file), "--fusion-threshold-mb", "0", "--no-autotune"
    )
    assert options.settings == {
        "SYRTOS_FUSION_THRESHOLD": "0",
        "SYRTOS_CACHE_CAPACITY": "2048",
        "SYRTOS_TIMELINE": "t.json",
        "SYRTOS_TIMELINE_MARK_CYCLES": "1",
        "SYRTOS_STALL_CHECK_DISABLE": "1",
        "SYRTOS_STALL_CHECK_TIME_SECONDS": "30",
        "SYRTOS_PEER_TIMEOUT": "60",
        "SYRTOS_LOG_LEVEL": "INFO",
    }
    assert warning.partition(": ")[2].split(", ") == [
        "--autotune-log-file",
        "--cycle-time-ms",
        "--hierarchical-allreduce",
    ]


def test_the_command_line_chooses_the_controller_before_the_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("controller: mpi\n")
    assert "--mpi" in read("--config-file", str(file))[1]
    assert read("--config-file", str(file), "--gloo")[1] == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("params: {fusion_threshold_mb: -1}", "--fusion-threshold-mb: '-1'"),
        ("params: {cache_capacity: true}", "--cache-capacity: 'True'"),
        ("params: {hierarchical_allreduce: 2}", "hierarchical_allreduce: 2 is not true or false"),
        ("params: {speed: 3}", "params: 'speed' is no key"),
        ("parameters: {}", "'parameters' is no group"),
        ("params: [1]", "params: it must hold keys"),
        ("controller: smoke", "'smoke' is neither gloo nor mpi"),
        ("- 1", "it must hold groups"),
        ("params: {", "this is no YAML"),
    ],
)
def test_a_wrong_config_file_is_an_error_that_names_it(tmp_path, text, named):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequestError) as caught:
        read("--config-file", str(file))
    assert str(caught.value).startswith(f"--config-file {file}: ")
    assert named in str(caught.value)


def test_a_config_file_needs_to_be_there_and_yaml_too(tmp_path, monkeypatch):
    with pytest.raises(InvalidRequestError, match="No such file"):
        read("--config-file", str(tmp_path / "none"))
    file = tmp_path / "config.yaml"
    file.write_text("")
    assert read("--config-file", str(file))[0].settings == {}
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidRequestError, match="pip install pyyaml"):
        read("--config-file", str(file))
