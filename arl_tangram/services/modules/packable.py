"""Which tensors can be packed as plain bytes, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arl_tangram.errors import ConfigurationError

# Of evicted tensors: without elements, and in sizes that no layer has. A stub of shape (0,) would be broadcast, and a
# stray call give an empty result without a word.
STUB_SHAPE = (0, 97, 0, 89, 83)

HOSTED_ALREADY = "it belongs to a service already; each service needs a module of its own"


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of its storage that a tensor uses, and the one after the last; equal if it uses none."""
    start = int(tensor.storage_offset()) * tensor.dtype.itemsize
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.dtype.itemsize


def refuse_unpackable(tensors: Mapping[str, torch.Tensor]) -> None:
    """Check that each tensor is its bytes, and nothing else.

    Raises:
        ConfigurationError: one is not; the message names it and says why.
    """
    for name, tensor in tensors.items():
        if reason := _reason(tensor):
            raise ConfigurationError(f"{name!r} cannot be moved as bytes: {reason}")


def _reason(tensor: torch.Tensor) -> str | None:
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
        return f"it is a {type(tensor).__qualname__}, a subclass of Tensor that may keep more than its bytes"
    if tensor.shape == STUB_SHAPE:
        return HOSTED_ALREADY
    if tensor.is_meta:
        return "it is on the meta device and has no data"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}; only dense tensors have one run of bytes"
    if tensor.is_quantized:
        return "it is quantized, with scales outside of its bytes"
    if tensor.is_conj() or tensor.is_neg():
        return "it is a lazily conjugated or negated view; call resolve_conj() or resolve_neg() on it"
    if tensor.is_inference():
        return "it was made under inference_mode(), and cannot be changed outside of it; load it under no_grad()"
    if not tensor.is_leaf:
        return "it was computed from others and remembers how; detach() it"
    if tensor.grad is not None:
        return "it has a gradient: what is hosted is not trained"
    if tensor.untyped_storage().nbytes() < extent(tensor)[1]:
        return "its memory has been freed"
    return None
