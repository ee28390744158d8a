"""The PyTorch front end uses only what torch has from 2.4 on.

`NAMES` and `METHODS` say what it uses. Each was looked up in the sources of torch 2.4.0, which need
not be run for that. After a change, look up the new ones and add them::

    pip download torch==2.4.0 --no-deps --only-binary=:all: --python-version 3.11 \\
        --platform macosx_11_0_arm64   # 62 MB, as it has no CUDA
    unzip -q torch-2.4.0*.whl 'torch/*.py' 'torch/*.pyi' -d sources
    python tests/python/test_torch_api.py sources

It prints the names that are in use and says which of them it cannot find. A word in the right file
counts as found, so a look at the sources is due for what is new.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FRONT_END = Path(__file__).parents[2] / "python" / "syrtos" / "torch"
#: Ours, or looked for under a name that is tried and may be missing.
OWN = ("torch.ops.syrtos",)

NAMES: frozenset[str] = frozenset(
    """
    torch.Tag.nondeterministic_seeded torch.Tensor
    torch._dynamo.config.capture_dynamic_output_shape_ops torch.amp.GradScaler
    torch.autograd.Function torch.autograd.Variable._execution_engine.queue_callback
    torch.autograd.function.once_differentiable torch.autograd.graph.increment_version
    torch.bfloat16 torch.bitwise_and torch.bitwise_or torch.bitwise_xor torch.cat
    torch.compiler.disable torch.compiler.is_compiling torch.distributed
    torch.distributed.Backend.register_backend torch.distributed.ProcessGroup
    torch.distributed.ReduceOp.AVG torch.distributed.ReduceOp.BAND
    torch.distributed.ReduceOp.BOR torch.distributed.ReduceOp.BXOR
    torch.distributed.ReduceOp.MAX torch.distributed.ReduceOp.MIN
    torch.distributed.ReduceOp.PRODUCT torch.distributed.ReduceOp.SUM torch.distributed.TCPStore
    torch.distributed.distributed_c10d.Work torch.distributed.register_rendezvous_handler
    torch.empty torch.float16 torch.float32 torch.float64 torch.frombuffer torch.full_like
    torch.futures.Future torch.fx.node.has_side_effect torch.int64 torch.is_grad_enabled
    torch.isfinite torch.library.Library torch.library.get_ctx torch.library.register_autograd
    torch.library.register_fake torch.nn.Embedding torch.nn.EmbeddingBag torch.nn.Module
    torch.nn.functional torch.nn.functional.batch_norm torch.nn.modules.batchnorm._BatchNorm
    torch.no_grad torch.optim.Optimizer torch.optim.SparseAdam
    torch.optim.lr_scheduler.LRScheduler torch.rsqrt torch.sparse_coo torch.sparse_coo_tensor
    torch.strided torch.tensor torch.uint8 torch.utils.data.Sampler torch.var_mean torch.zeros
    torch.zeros_like
    """.split()
)

METHODS: frozenset[str] = frozenset(
    """
    _indices _values add add_ all backward bfloat16 bitwise_and bitwise_or bitwise_xor clamp
    clone coalesce contiguous copy_ data data_ptr detach device dim double dtype element_size
    fill_ float grad index index_add_ indices is_complex is_conj is_contiguous is_floating_point
    is_inference is_leaf is_neg is_quantized isfinite item layout lerp_ name narrow new_empty
    numel put reciprocal register_hook register_post_accumulate_grad_hook requires_grad
    requires_grad_ reshape resolve_conj resolve_neg rsqrt shape size sparse_dim split stride sum
    t to to_dense to_sparse tolist type values view where
    """.split()
)


def _imports(tree: ast.AST) -> dict[str, str]:
    """The names by which a file knows torch's modules and objects."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return known


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value)
        return f"{start}.{node.attr}" if start else ""
    return ""


def _chains(tree: ast.AST) -> Iterator[str]:
    """Yields dotted names, the longest form of each."""
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner and _dotted(node):
            yield _dotted(node)


def names_in(text: str) -> set[str]:
    """The full names of all of torch's objects that a source text uses."""
    tree = ast.parse(text)
    known = _imports(tree)
    found = {name for name in known.values() if name != "torch"}
    for chain in _chains(tree):
        first, _, rest = chain.partition(".")
        if first in known and rest:
            found.add(f"{known[first]}.{rest}")
    return {name for name in found if not name.startswith(OWN)}


def attributes_in(text: str) -> set[str]:
    """The names of all attributes that a source text asks any object for."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if not node.attr.startswith("__")}


def used() -> tuple[dict[str, str], dict[str, str]]:
    """Names and attributes of the front end, each with a file that uses it."""
    names: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for path in sorted(FRONT_END.rglob("*.py")):
        text = path.read_text()
        where = str(path.relative_to(FRONT_END))
        names |= dict.fromkeys(names_in(text), where)
        attributes |= dict.fromkeys(attributes_in(text), where)
    return names, attributes


def test_every_name_of_torch_is_known_to_be_in_2_4() -> None:
    names, _ = used()
    new = {name: where for name, where in names.items() if name not in NAMES}
    assert not new, f"not in the list of what torch 2.4 has: {new}"


@pytest.mark.torch
def test_every_method_of_tensors_is_known_to_be_in_2_4() -> None:
    import torch

    # Attributes of other objects may have such names too, and then they are in the list as well.
    methods = {name for name in used()[1] if name in dir(torch.Tensor)}
    assert not methods - METHODS, f"not in the list of what torch 2.4 has: {methods - METHODS}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\ntorch.accelerator.is_available()", {"torch.accelerator.is_available"}),
        ("import torch.nn as n\nx = n.Buffer(y)", {"torch.nn", "torch.nn.Buffer"}),
        (
            "from torch.nn import functional as f\nf.rms_norm(torch)",
            {"torch.nn.functional", "torch.nn.functional.rms_norm"},
        ),  # fmt: skip
        ("def f():\n    import torch\n    return torch.float32", {"torch.float32"}),
        ("x.torch.cat(y)", set()),
    ],
)
def test_names_are_found(source: str, found: set[str]) -> None:
    assert names_in(source) == found


def _has(sources: Path, name: str) -> bool:
    """Whether unpacked sources of torch have a name, word for word in the file where it belongs."""
    folder, *rest = sources / "torch", *name.split(".")[1:]
    while rest and (folder / rest[0]).is_dir():
        folder = folder / rest.pop(0)
    files = [folder / "__init__.py", folder / "__init__.pyi"]
    if rest and (folder / f"{rest[0]}.py").is_file():
        files = [folder / f"{rest.pop(0)}.py"]
    elif folder != sources / "torch":  # such names may come from any file of the folder
        files += folder.rglob("*.py")
    compiled = sources / "torch" / "_C"
    files += [compiled / "__init__.pyi", compiled / "_VariableFunctions.pyi"]
    files += [compiled / "_distributed_c10d.pyi"] if "distributed" in name else []
    text = "\n".join(file.read_text() for file in files if file.is_file())
    return all(re.search(rf"\b{re.escape(word)}\b", text) for word in rest)


if __name__ == "__main__":
    import torch

    unpacked = Path(sys.argv[1])
    all_names, all_attributes = used()
    tensors = (unpacked / "torch" / "_C" / "__init__.pyi").read_text()
    tensors += (unpacked / "torch" / "_tensor.py").read_text()
    in_use = sorted(name for name in all_attributes if name in dir(torch.Tensor))
    print(*sorted(all_names), "", *in_use, "", sep="\n")
    for one in sorted(all_names):
        if not _has(unpacked, one):
            print(f"not found: {one} ({all_names[one]})")
    for one in in_use:
        if not re.search(rf"\b(def {one}\(|{one}:|{one} =)", tensors):
            print(f"not found: Tensor.{one} ({all_attributes[one]})")
