"""What a call that cannot be right says: who, what, where and how to mend it."""

from __future__ import annotations

import os

from torch_checks import check, raises


@check
def what_is_no_plain_cpu_tensor_is_refused_by_name() -> None:
    import torch

    import syrtos.torch as hvd

    for call in (hvd.allreduce, hvd.allgather, lambda x, name=None: hvd.broadcast_(x, 0, name)):
        words = ('"mine"', "torch.Tensor", "list")
        raises(TypeError, lambda call=call: call([1.0], name="mine"), *words)
    meta = torch.ones(2, device="meta")
    raises(ValueError, lambda: hvd.allreduce(meta, name="far"), 'allreduce "far"', "device meta")
    sparse = torch.eye(2).to_sparse()
    raises(TypeError, lambda: hvd.allreduce(sparse), "torch.sparse_coo", "sparse_allreduce_async")
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    raises(TypeError, lambda: hvd.broadcast(quantized, 0), "quantized", "torch.qint8")
    expanded = torch.ones(1).expand(3)
    assert hvd.allreduce(expanded, op=hvd.Sum).tolist() == [2.0] * 3
    raises(ValueError, lambda: hvd.allreduce_(expanded), "expanded", "share memory")
    raises(TypeError, lambda: hvd.broadcast(torch.ones(2), "0"), "root_rank='0'")
    raises(ValueError, lambda: hvd.broadcast(torch.ones(2), 7), "root_rank 7")
    raises(ValueError, lambda: hvd.allreduce(torch.ones(2), op=9), "op=9")
    raises(RuntimeError, lambda: hvd.reducescatter(torch.ones(2), op=hvd.Adasum))
    raises(TypeError, lambda: hvd.allreduce(torch.ones(2), process_set=[0]), "process_set")


@check
def what_ranks_disagree_about_is_raised_on_all_of_them() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    shape = (17, 3) if me == 0 else (17, 2)
    for call in (hvd.allreduce, hvd.allreduce_, lambda x: hvd.synchronize(hvd.allreduce_async(x))):
        raises(hvd.HorovodInternalError, lambda call=call: call(torch.ones(shape)), "(17, 2)")
    dtype = torch.int32 if me else torch.float32
    for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter, lambda x: hvd.broadcast(x, 0)):
        raises(
            hvd.HorovodInternalError,
            lambda call=call: call(torch.ones(2, dtype=dtype)),
            "int32",
            "float32",
        )
    raises(hvd.HorovodInternalError, lambda: hvd.broadcast_(torch.ones(2), me), "root_rank 1")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2.0


@check
def handles_are_told_from_other_things() -> None:

    import syrtos.torch as hvd

    assert hvd.synchronize(12345) is None  # as Horovod does with a handle it does not know
    raises(TypeError, lambda: hvd.synchronize("x"), "synchronize('x')", "_async")
    raises(TypeError, lambda: hvd.poll(None), "poll(None)", "_async")
    assert hvd.join() in (0, 1)
    assert hvd.join(-1) in (0, 1)
    assert hvd.join(device=0) in (0, 1)


@check
def a_forked_child_says_so() -> None:
    import torch

    import syrtos.torch as hvd

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = "no error"
        try:
            hvd.allreduce(torch.ones(1))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert "NotInitializedError" in text
    assert "forked child of rank" in text


@check
def a_name_is_refused_until_something_was_waited_for() -> None:
    import torch

    import syrtos.torch as hvd

    # Both ranks ask at once, so the first request may well have ended when the second is made.
    for number in range(20):
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(1), name="again", op=hvd.Sum)
        for call in (hvd.allreduce_async, hvd.allgather_async, hvd.allreduce_async_):
            raises(ValueError, lambda call=call: call(torch.ones(1), name="again"), "same name")
        if number % 2:
            while not hvd.poll(first):
                pass
        else:
            assert hvd.synchronize(first).item() == 2.0
        assert hvd.allreduce(torch.ones(1), name="again", op=hvd.Sum).item() == 2.0
    raises(ValueError, lambda: hvd.broadcast(torch.ones(1), 9, name="again"), "root_rank 9")
    assert hvd.broadcast(torch.ones(1), 0, name="again").item() == 1.0
