"""Packing a module into bytes: nothing of it changes but where it lies, and what cannot be packed is refused."""

from __future__ import annotations

import copy
import gc
import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.arena import ALIGNMENT
from arl_tangram.services.modules.packable import extent
from arl_tangram.services.modules.packing import Packing, checksums, named_tensors
from service.odd_modules import Odd, looks

TOKENS = torch.arange(12).view(3, 4)
POISON = 0xFF  # as a float, it is no number


def packed(module: nn.Module) -> tuple[Packing, torch.Tensor]:
    packing = Packing.of(module)
    host = torch.full((packing.size_bytes,), POISON, dtype=torch.uint8)
    packing.pack(host)
    return packing, host


def test_a_module_is_the_same_bit_by_bit_wherever_it_lies() -> None:
    module = Odd().requires_grad_(False)
    before, answer = looks(module), module(TOKENS)
    packing, host = packed(module)
    arena = torch.empty(4 * packing.size_bytes, dtype=torch.uint8)
    draw = random.Random(0)
    for _ in range(200):
        offset = draw.randrange(0, 3 * packing.size_bytes, ALIGNMENT)
        arena.fill_(POISON)
        memory = arena[offset : offset + packing.size_bytes]
        memory.copy_(host)
        packing.attach(memory)
        assert looks(module) == before
        assert torch.equal(module(TOKENS), answer)
        assert packing.detach() == 0


def test_ties_and_views_are_there_after_a_move() -> None:
    module = Odd()
    packing, host = packed(module)
    packing.attach(host)
    assert module.head.weight is module.embedding.weight
    assert module.k.data_ptr() == module.q.data_ptr() + module.q.numel() * 4
    assert module.overlapping.data_ptr() == module.other_type_of_same.data_ptr() + 16
    with torch.no_grad():
        module.embedding.weight[0, 0] = 7
        module.other_type_of_same.view(torch.uint8)[16] = 99
    assert module.head.weight[0, 0] == 7
    assert module.overlapping[0] == 99


def test_case_114_each_byte_of_a_tied_or_shared_storage_is_moved_once() -> None:
    big = nn.Linear(256, 256, bias=False)
    tied = nn.ModuleDict({"embedding": nn.Embedding(256, 256), "head": big})
    tied["embedding"].weight = big.weight
    tied.register_buffer("view", big.weight.data[10:20].t())
    packing, host = packed(tied)
    assert packing.size_bytes == 256 * 256 * 4
    packing.attach(host)
    assert tied["embedding"].weight is tied["head"].weight
    assert tied.view.data_ptr() == big.weight.data_ptr() + 10 * 256 * 4


def test_of_a_big_storage_only_what_is_used_is_packed() -> None:
    module = nn.Module()
    checkpoint = torch.arange(1 << 20, dtype=torch.int32)
    module.register_buffer("first", checkpoint[1000:1100])
    module.register_buffer("last", checkpoint[-50:])
    packing, host = packed(module)
    assert packing.size_bytes <= 4 * ALIGNMENT
    packing.attach(host)
    assert torch.equal(module.first, torch.arange(1000, 1100, dtype=torch.int32))
    assert torch.equal(module.last, torch.arange((1 << 20) - 50, 1 << 20, dtype=torch.int32))


@st.composite
def views(draw: st.DrawFn) -> list[tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]]:
    """Tensors anywhere in one storage of 8192 bytes: offset, type, shape and strides."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        dtype = draw(st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.complex128]))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        stride = tuple(draw(st.integers(0, 9)) for _ in shape)
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else 0
        offset = draw(st.integers(0, 8192 // dtype.itemsize - 1 - last))
        found.append((offset, dtype, shape, stride))
    return found


@given(views(), st.integers(0, 1000))
def test_any_views_of_a_storage_keep_their_content_and_what_they_share(
    tensors: list[tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]], seed: int
) -> None:
    storage = torch.frombuffer(bytearray(random.Random(seed).randbytes(8192)), dtype=torch.uint8).untyped_storage()
    module = nn.Module()
    for number, (offset, dtype, shape, stride) in enumerate(tensors):
        module.register_buffer(f"b{number}", torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride))
    start = {name: buffer.data_ptr() - storage.data_ptr() for name, buffer in module.named_buffers() if buffer.numel()}
    end = {name: extent(module.get_buffer(name))[1] for name in start}
    before = looks(module)
    packing, host = packed(module)
    packing.attach(host)
    assert looks(module) == before
    assert packing.size_bytes <= 8192
    shift = {name: module.get_buffer(name).data_ptr() - host.data_ptr() - start[name] for name in start}
    assert all(by % ALIGNMENT == 0 for by in shift.values())
    for one, other in itertools.combinations(start, 2):
        if start[one] < end[other] and start[other] < end[one]:
            assert shift[one] == shift[other], "they share bytes as before"


def test_copies_of_a_packed_module_lie_on_their_own() -> None:
    module = Odd().requires_grad_(False)
    answer, before = module(TOKENS), looks(module)
    packing, host = packed(module)
    twin = copy.deepcopy(module)
    other = packing.of_copy(named_tensors(twin))
    other.attach(host.clone())
    assert torch.equal(twin(TOKENS), answer)
    assert twin.head.weight is twin.embedding.weight
    with pytest.raises(RuntimeError):
        module(TOKENS)
    packing.attach(host)
    other.detach()
    assert looks(module) == before


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(1, 1),
        nn.LayerNorm(1),
        nn.Conv1d(1, 1, 1),
        nn.Embedding(1, 1),
        nn.PReLU(),
        nn.MultiheadAttention(2, 1),
        nn.LSTM(1, 1),
        Odd(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_call_of_detached_tensors_fails(module: nn.Module) -> None:
    packed(module)
    shapes = ((2, 1), (2, 2), (2, 1, 1), (2, 2, 2))
    for shape in shapes:
        argument = torch.zeros(shape, dtype=torch.int64 if isinstance(module, nn.Embedding | Odd) else torch.float32)
        with pytest.raises((RuntimeError, AssertionError)):  # the attention checks sizes before it computes
            module(*[argument] * (3 if isinstance(module, nn.MultiheadAttention) else 1))


def test_views_that_somebody_keeps_are_counted() -> None:
    module = Odd()
    packing, host = packed(module)
    memory = host.clone()
    packing.attach(memory)
    assert packing.held == 0
    view, array, taken = module.turned.t()[:4], module.q.detach().numpy(), module.norm.weight.data
    assert packing.held == 3
    assert packing.detach() == 3
    packing.attach(host)  # they are still there, in the memory before
    assert packing.held == 3
    del view, array
    gc.collect()
    assert packing.detach() == 1
    del taken
    assert packing.held == 0


def test_what_holds_other_parts_of_the_arena_does_not_count() -> None:
    module = Odd()
    packing, host = packed(module)
    arena = torch.zeros(2 * packing.size_bytes, dtype=torch.uint8)
    arena[: packing.size_bytes].copy_(host)
    packing.attach(arena[: packing.size_bytes])
    others = [arena[packing.size_bytes :].view(torch.float32) for _ in range(5)]
    assert packing.detach() == 0
    del others


def test_writes_to_a_tensor_are_told_by_its_name() -> None:
    module = Odd().requires_grad_(False)
    packing, host = packed(module)
    packing.attach(host)
    module(TOKENS)
    assert packing.written == ()
    with torch.inference_mode():
        module.frequencies.add_(1)
        module.embedding.weight[0] = 0
    assert set(packing.written) == {"frequencies", "embedding.weight"}
    packing.detach()
    packing.attach(host)
    assert packing.written == ()


def test_what_it_lay_in_before_is_let_go_of() -> None:
    array = np.ones(1 << 16, dtype=np.float32)
    module = nn.Module()
    module.register_buffer("big", torch.from_numpy(array))
    base = module.big.untyped_storage()
    uses = torch._C._storage_Use_Count(base._cdata)
    packed(module)
    assert torch._C._storage_Use_Count(base._cdata) < uses


@given(st.integers(1, 9), st.integers(0, 1 << 40))
def test_sums_differ_where_bytes_differ(pieces: int, where: int) -> None:
    memory = torch.randint(0, 256, (pieces * (1 << 18),), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    before = checksums(memory)
    memory[where % memory.numel()] ^= 1
    assert int((checksums(memory) != before).sum()) == 1


def test_sums_differ_where_pieces_have_changed_places() -> None:
    memory = torch.arange(1 << 19, dtype=torch.int64).view(torch.uint8)
    moved = torch.cat([memory[1 << 20 : 2 << 20], memory[: 1 << 20], memory[2 << 20 :]])
    assert int((checksums(memory) != checksums(moved)).sum()) == 2


class Scaled(torch.Tensor):
    """As quantised weights of other libraries are."""


def with_gradient() -> torch.Tensor:
    parameter = nn.Parameter(torch.ones(2))
    parameter.sum().backward()
    return parameter


def freed() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(0)
    return tensor


def under_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(2).as_subclass(Scaled), "a Scaled, a subclass of Tensor"),
        (nn.UninitializedParameter(), "UninitializedParameter, a subclass"),
        (torch.ones(2, device="meta"), "meta device"),
        (torch.eye(2).to_sparse(), "layout is torch.sparse_coo"),
        (torch.ones(2, dtype=torch.complex64).conj(), r"resolve_conj\(\)"),
        (with_gradient(), "has a gradient"),
        (nn.Parameter(torch.ones(2)) * 2, "detach"),
        (freed(), "freed"),
        (under_inference(), "inference_mode"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_is_more_than_its_bytes_is_refused_with_its_name_and_the_reason(tensor: torch.Tensor, reason: str) -> None:
    module = nn.Linear(1, 1)
    if isinstance(tensor, nn.Parameter):
        module.register_parameter("odd_one", tensor)
    else:
        module.register_buffer("odd_one", tensor)
    with pytest.raises(ConfigurationError, match=f"'odd_one' cannot be moved as bytes.*{reason}"):
        Packing.of(module)
    assert module.weight.numel() == 1, "nothing was done to it"


def test_what_belongs_to_a_service_already_is_refused() -> None:
    module = nn.Linear(2, 2)
    packed(module)
    with pytest.raises(ConfigurationError, match="belongs to a service already"):
        Packing.of(nn.Sequential(nn.ReLU(), module))
