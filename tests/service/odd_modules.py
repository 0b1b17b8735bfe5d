"""A torch module with every kind of tensor that is hard to move, and what must be the same after it was moved."""

from __future__ import annotations

import gc
import hashlib
from dataclasses import dataclass

import torch
from torch import nn

from arl_tangram.services.modules.packing import named_tensors

torch.set_num_threads(1)
# Torch makes some hundred thousand objects that stay: without this, every test would look through them twice.
gc.collect()
gc.freeze()

_PLAIN = (
    *(torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
)
_SHELLS = (torch.uint4, torch.int4, torch.float4_e2m1fn_x2)  # types that hold bytes, and compute nothing


class Odd(nn.Module):
    """Ties, aliases, strides, mixed and low-precision types, buffers of all kinds."""

    def __init__(self, seed: int = 0, width: int = 16) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(32, width)
        self.head = nn.Linear(width, 32, bias=False)
        self.embedding.weight = nn.Parameter(torch.randn(32, width, generator=draw))
        self.head.weight = self.embedding.weight  # tied
        fused = torch.randn(3 * width, width, generator=draw)
        self.q, self.k, self.v = (nn.Parameter(part) for part in fused.chunk(3))  # three views of one storage
        self.turned = nn.Parameter(torch.randn(width, width, generator=draw).t())  # not contiguous
        self.norm = nn.LayerNorm(width)
        self.register_buffer("frequencies", torch.rand(width, generator=draw), persistent=False)
        self.register_buffer("scale", torch.tensor(1.5 + seed))  # no dimension
        self.register_buffer("nothing", torch.empty(0, 3))
        self.register_buffer("broadcast", torch.randn(1, 3, generator=draw).expand(4, 3))
        raw = torch.randint(0, 256, (4096,), dtype=torch.uint8, generator=draw)
        self.register_buffer("few_of_many", raw[3:9])
        self.register_buffer("other_type_of_same", raw[1032:1064].view(torch.float32))
        self.register_buffer("overlapping", raw[1048:1100])
        for dtype in _PLAIN:
            self.register_buffer(str(dtype).replace(".", "_"), torch.randint(0, 2, (5,), generator=draw).to(dtype))
        for dtype in _SHELLS:
            shell = torch.empty(0, dtype=dtype).set_(raw.clone().untyped_storage(), 0, (9,), (1,))
            self.register_buffer(str(dtype).replace(".", "_"), shell)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * self.scale + self.frequencies
        x = self.norm(x @ self.q.t() + torch.tanh(x @ self.k) @ self.v + x @ self.turned)
        return self.head(x)


@dataclass(frozen=True)
class Looks:
    """What is seen of a tensor: the object, and its content bit by bit."""

    identity: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    content: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Looks:
        size = tensor.dtype.itemsize
        shape, stride = (*tensor.shape, size), (*(step * size for step in tensor.stride()), 1)
        content = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        content.set_(tensor.untyped_storage(), tensor.storage_offset() * size, shape, stride)
        digest = hashlib.sha256(content.cpu().numpy().tobytes()).hexdigest()
        return cls(id(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), digest)


def looks(module: nn.Module) -> dict[str, Looks]:
    """Return how all parameters and buffers look, by name."""
    return {name: Looks.of(tensor) for name, tensor in named_tensors(module).items()}
