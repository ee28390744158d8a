"""The small modules of the alias that have no counterpart in Syrtos."""

from __future__ import annotations

import os

import pytest

import syrtos
from syrtos.errors import InvalidRequestError


def test_util_env_sets_and_puts_back(monkeypatch):
    from horovod.common.util import env

    monkeypatch.setenv("SYRTOS_TEST_A", "old")
    monkeypatch.delenv("SYRTOS_TEST_B", raising=False)
    with env(SYRTOS_TEST_A="new", SYRTOS_TEST_B="here", SYRTOS_TEST_C=None):
        assert (os.environ["SYRTOS_TEST_A"], os.environ["SYRTOS_TEST_B"]) == ("new", "here")
        assert "SYRTOS_TEST_C" not in os.environ
    assert os.environ["SYRTOS_TEST_A"] == "old"
    assert "SYRTOS_TEST_B" not in os.environ


def test_util_split_list_and_powers():
    from horovod.common.util import is_iterable, num_rank_is_power_2, split_list

    assert split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert split_list([1], 3) == [[1], [], []]
    powers = [n for n in range(-1, 20) if num_rank_is_power_2(n)]
    assert powers == [1, 2, 4, 8, 16]
    assert [is_iterable(x) for x in ([], "a", 3)] == [True, True, False]


def test_util_compares_versions_as_versions():
    from horovod.common.util import is_version_greater_equal_than as at_least

    assert at_least("2.10.0", "2.9.0")
    assert at_least("2.13.0+cpu", "2.13.0")
    assert not at_least("2.4.0rc1", "2.4.0")
    for ver, target in (("2.4.0", "2.4"), (2, "2.4.0"), ("2.4.0", None)):
        with pytest.raises(ValueError, match="give a version"):
            at_least(ver, target)


def test_util_average_and_op():
    from horovod.common.util import get_average_backwards_compatibility_fun

    choose = get_average_backwards_compatibility_fun(syrtos)
    assert choose(None, None) == syrtos.Average
    assert choose(syrtos.Max, None) == syrtos.Max
    for average, op in ((True, syrtos.Average), (False, syrtos.Sum)):
        with pytest.warns(DeprecationWarning, match="use op="):
            assert choose(None, average) == op
    with pytest.raises(ValueError, match="give op only"):
        choose(syrtos.Sum, True)


def test_util_says_what_is_built():
    from horovod.common import util

    assert (util.mpi_built(), util.nccl_built(), util.ddl_built()) == (False, 0, False)
    assert util.gloo_built() is syrtos.gloo_built()
    assert not util.extension_available("mxnet")
    assert not util.gpu_available("mxnet")
    with pytest.raises(ImportError, match=r"horovod\.mxnet cannot be used"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")


@pytest.mark.torch
def test_util_finds_torch():
    from horovod.common import util

    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    assert util.extension_available("torch")


def test_exceptions():
    from horovod.common import exceptions

    assert exceptions.HorovodInternalError is syrtos.errors.HorovodInternalError
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync
    error = exceptions.HorovodVersionMismatchError("torch", "2.5", "2.4")
    assert isinstance(error, ImportError)
    assert str(error) == exceptions.get_version_mismatch_message("torch", "2.5", "2.4")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "PMI_RANK": "1", "PMI_SIZE": "2"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "5"}, (1, 5)),
    ],
)
def test_rank_and_size_by_the_environment(monkeypatch, environ, expected):
    from horovod.runner.common.util.env import get_env_rank_and_size

    for prefix in ("HOROVOD_", "OMPI_COMM_WORLD_", "PMI_"):
        for kind in ("RANK", "SIZE"):
            monkeypatch.delenv(prefix + kind, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert get_env_rank_and_size() == expected
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.delenv("HOROVOD_SIZE", raising=False)
    with pytest.raises(RuntimeError, match="only one of HOROVOD_RANK and HOROVOD_SIZE"):
        get_env_rank_and_size()


def test_in_thread():
    from horovod.runner.util.threads import in_thread

    seen: list[int] = []
    thread = in_thread(seen.append, (3,), name="mine")
    thread.join()
    assert (seen, thread.name, thread.daemon) == ([3], "mine", True)
    in_thread(lambda: 1 / 0, silent=True).join()
    with pytest.raises(ValueError, match="is no tuple"):
        in_thread(seen.append, 3)


# ---- horovod.common.basics, on two ranks ----


def sets_of_two() -> dict[str, object]:
    from horovod.common.basics import HorovodBasics
    from horovod.common.process_sets import ProcessSet, add_process_set

    basics = HorovodBasics()
    basics.init()
    only_one = add_process_set(ProcessSet([1]))
    found = {
        "before": basics._get_process_set_ids_and_ranks(),
        "again": basics._add_process_set_impl([1]),
        "sizes": [basics._process_set_size(0), basics._process_set_size(1)],
        "included": only_one.included(),
    }
    try:
        found["rank"] = basics._process_set_rank(1)
    except InvalidRequestError as error:
        found["rank"] = str(error)
    found["removed"] = basics._remove_process_set_impl(1)
    found["removed again"] = basics._remove_process_set_impl(1)
    found["reused"] = basics._add_process_set_impl([0])
    found["after"] = basics._get_process_set_ids_and_ranks()
    basics.shutdown()
    return found


def test_private_process_set_functions():
    from ranks import run_ranks

    first, second = run_ranks(sets_of_two, 2, timeout=60)
    assert first.pop("rank") == "rank 0 is not in process set 1."
    assert second.pop("rank") == 0
    assert (first.pop("included"), second.pop("included")) == (False, True)
    expected = {
        "before": {0: [0, 1], 1: [1]},
        "again": None,
        "sizes": [2, 1],
        "removed": 1,
        "removed again": None,
        "reused": 1,
        "after": {0: [0, 1], 1: [0]},
    }
    assert first == second == expected
