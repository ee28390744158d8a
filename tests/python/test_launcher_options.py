"""The command line of ``syrtosrun``: what it accepts, and how it refuses."""

from __future__ import annotations

import os
import re

import pytest

from syrtos import config
from syrtos.errors import InvalidRequestError
from syrtos.launcher.hosts import HostSlots, assign, parse_hosts, read_hostfile, require_local
from syrtos.launcher.options import SETTINGS, find_program, parse

# ---- hosts ----

HOSTFILE = "# comment\r\n\r\nh_1 slots=2\r\nh-2:3   # three\n10.0.0.3 slots=1\nh4\n\n"
HOSTS = [HostSlots("h_1", 2), HostSlots("h-2", 3), HostSlots("10.0.0.3", 1), HostSlots("h4", 1)]


def test_a_host_file_is_read_in_order(tmp_path):
    file = tmp_path / "hosts"
    file.write_bytes(HOSTFILE.encode())
    assert read_hostfile(file) == HOSTS


def test_hosts_of_the_command_line_are_read_in_order():
    assert parse_hosts("h_1:2,h-2:3, 10.0.0.3:1,h4") == HOSTS


def test_an_ipv6_address_is_read():
    assert parse_hosts("[::1]:2,[fe80::1%eth0]") == [
        HostSlots("[::1]", 2),
        HostSlots("[fe80::1%eth0]", 1),
    ]


def test_a_host_named_twice_is_one_host():
    assert parse_hosts("a:1,b:1,a:2") == [HostSlots("a", 3), HostSlots("b", 1)]


@pytest.mark.parametrize("line", ["h5 slots=x", "h5 slots=0", "h5 slot=2", "h5:2:3", "h5 6 7"])
def test_a_bad_line_is_refused_with_file_and_number(tmp_path, line):
    file = tmp_path / "hosts"
    file.write_text(f"h1\n\n{line}\n")
    with pytest.raises(InvalidRequestError, match=rf"{re.escape(str(file))}, line 3: "):
        read_hostfile(file)


@pytest.mark.parametrize("text", ["", "a:x", "a:0", "a:-1", "a:1,,b:1", ":2", "a:1:2"])
def test_bad_hosts_are_refused(text):
    with pytest.raises(InvalidRequestError, match="-H"):
        parse_hosts(text)


def test_this_machine_has_several_names():
    node = os.uname().nodename
    require_local([HostSlots(name, 1) for name in ("localhost", "127.0.0.1", "[::1]", node)])


def test_ranks_fill_host_after_host():
    places = assign([HostSlots("a", 2), HostSlots("b", 1), HostSlots("c", 3)], 5)
    table = [(p.host, p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in places]
    assert table == [
        ("a", 0, 2, 0, 3),
        ("a", 1, 2, 0, 2),
        ("b", 0, 1, 1, 3),
        ("c", 0, 2, 2, 3),
        ("c", 1, 2, 1, 2),
    ]
    assert [p.rank for p in places] == list(range(5))
    assert {p.size for p in places} == {5}


# ---- options ----


def test_the_command_keeps_its_own_options():
    options = parse(["-np", "2", "--verbose", "python", "-c", "x", "--verbose", "-np", "3"])
    assert options.command == ["python", "-c", "x", "--verbose", "-np", "3"]
    assert options.num_proc == 2
    assert options.hosts == [HostSlots("localhost", 2)]
    assert parse(["-np", "1", "--", "-odd"]).command == ["-odd"]


ALL = {
    "--start-timeout": ("7.5", "start_timeout", 7.5),
    "--fusion-threshold-mb": ("0.5", "fusion_threshold_bytes", 1 << 19),
    "--cache-capacity": ("12", "cache_capacity", 12),
    "--timeline-filename": ("a b.json", "timeline_path", "a b.json"),
    "--stall-check-warning-time-seconds": ("3", "stall_warning", 3.0),
    "--stall-check-shutdown-time-seconds": ("9", "stall_limit", 9.0),
}


@pytest.mark.parametrize("option", ALL)
def test_a_setting_reaches_the_ranks(option):
    text, field, value = ALL[option]
    settings = parse(["-np", "1", option, text, "true"]).settings
    assert getattr(config.resolve(environ=settings).settings, field) == value


def test_every_setting_is_known_to_the_configuration():
    known = {f"SYRTOS_{knob.name}" for knob in config.KNOBS} | {"SYRTOS_STALL_CHECK_DISABLE"}
    assert {variable for variable, _ in SETTINGS.values()} <= known


def test_the_timeline_can_mark_cycles():
    for option, marks in (("--timeline-mark-cycles", True), ("--no-timeline-mark-cycles", False)):
        settings = parse(["-np", "1", option, "true"]).settings
        assert config.resolve(environ=settings).settings.timeline_mark_cycles is marks
    assert "SYRTOS_TIMELINE_MARK_CYCLES" not in parse(["-np", "1", "true"]).settings


def test_the_stall_check_can_be_turned_off():
    settings = parse(["-np", "1", "--no-stall-check", "true"]).settings
    assert config.resolve(environ=settings).settings.stall_warning == 0
    settings = parse(["-np", "1", "--stall-check", "true"]).settings
    assert config.resolve(environ=settings).settings.stall_warning == 60


def test_the_log_level_reaches_the_ranks():
    settings = parse(["-np", "1", "--log-level", "DEBUG", "true"]).settings
    assert config.resolve(environ=settings).log_level == config.LOG_LEVELS.index("debug")


WRONG = [
    ("-np 4 -H localhost:2 true", "4 processes > 2 slots"),
    ("-np 2 -H localhost true", "2 processes > 1 slot"),
    ("-np 2 -H localhost:1 otherhost:1 python x.py", "'otherhost:1' is not a command"),
    ("-np 0 true", "'0' is not a number of processes"),
    ("-np two true", "'two' is not a number of processes"),
    ("-np -1 true", "-np/--num-proc"),
    ("-np 2", "no command"),
    ("true", "-np is missing"),
    ("", "-np is missing"),
    ("-np 1 -H elsewhere:1 true", "host 'elsewhere' is not this machine"),
    ("-np 1 -H localhost:x true", "-H localhost:x: 'x' is not a number of slots"),
    ("-np 1 -H localhost:1 --hostfile f true", "-H and --hostfile exclude each other"),
    ("-np 1 --hostfile /no/such/file true", "--hostfile /no/such/file: No such file"),
    ("-np 1 --log-level loud true", "'loud' is not one of trace"),
    ("-np 1 --cache-capacity -5 true", "--cache-capacity"),
    ("-np 1 --cache-capacity 1.5 true", "'1.5' is not a whole number"),
    ("-np 1 --fusion-threshold-mb nan true", "'nan' is not a number of megabytes"),
    ("-np 1 --start-timeout 0 true", "'0' is not a number of seconds above 0"),
    ("-np 1 --start-timeout soon true", "'soon' is not a number of seconds"),
    ("-np 1 --on-failure shrug true", "invalid choice: 'shrug'"),
    ("-np 1 --no-such-option true", "--no-such-option"),
    ("-np 1 --start true", "--start"),
]


@pytest.mark.parametrize(("line", "expected"), WRONG)
def test_a_wrong_value_is_named(line, expected):
    def check():
        options = parse(line.split())
        options.places()
        find_program(options.command[0])

    with pytest.raises(InvalidRequestError, match=re.escape(expected)) as caught:
        check()
    assert "\n" not in str(caught.value)


def test_a_missing_program_is_named_with_host_and_path(tmp_path):
    host = os.uname().nodename
    expected = rf"not found on host {host}: no-such-program; searched PATH=/nowhere:{tmp_path}"
    with pytest.raises(InvalidRequestError, match=expected):
        find_program("no-such-program", f"/nowhere:{tmp_path}")
    with pytest.raises(InvalidRequestError, match=rf"not found on host {host}: /no/such/python"):
        find_program("/no/such/python")


def test_a_program_without_permission_is_named(tmp_path):
    script = tmp_path / "script"
    script.write_text("")
    with pytest.raises(InvalidRequestError, match=f"not executable: {script}"):
        find_program(str(script))
