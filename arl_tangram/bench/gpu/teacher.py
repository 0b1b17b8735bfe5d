"""The modules that are swapped: transformers of any size, which tell how likely each token of a text is."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_GIB = 1 << 30
_VOCABULARY = 32_000
_SMALL_VOCABULARY = 512
_HEAD = 64
AT_ONCE = 4
"""Sequences: with more, what is computed would need more memory, and not be faster."""

_BLOCK = 1 << 20


class Block(nn.Module):
    """One layer: attention to what was before, and a perceptron, of four times the width within."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.mixes = nn.Linear(width, 3 * width, bias=False)
        self.joins = nn.Linear(width, width, bias=False)
        self.between = nn.LayerNorm(width)
        self.widens = nn.Linear(width, 4 * width, bias=False)
        self.narrows = nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of it."""
        rows, length, width = hidden.shape
        mixed: torch.Tensor = self.mixes(self.before(hidden))
        query, key, value = mixed.view(rows, length, 3, -1, _HEAD).transpose(1, 3).unbind(2)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.joins(seen.transpose(1, 2).reshape(rows, length, width))
        added: torch.Tensor = self.narrows(functional.gelu(self.widens(self.between(hidden))))
        return hidden + added


class Teacher(nn.Module):
    """A language model with tied embeddings."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each token but the first of each sequence, by those before it."""
        tokens = tokens % self.embedding.num_embeddings
        firsts = range(0, len(tokens), AT_ONCE)
        return torch.cat([self._scored(tokens[first : first + AT_ONCE]) for first in firsts])

    def _scored(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        hidden = self.last(hidden)
        # Sequence by sequence: the logits of all would be larger than all else together.
        likely = [
            -functional.cross_entropy(self.head(one[:-1]).float(), wanted[1:], reduction="none")
            for one, wanted in zip(hidden, tokens, strict=True)
        ]
        return torch.stack(likely)


def load(size: int, seed: int, dtype: torch.dtype) -> Teacher:
    """Return a model of about so many bytes, on the host, always with the same weights.

    Drawing billions of numbers takes minutes, so each weight gets pieces of one drawn block, shifted differently.
    """
    width = 4096 if size > 2 * _GIB else 2048 if size > _GIB // 2 else 1024 if size > _GIB // 8 else 128
    vocabulary = _VOCABULARY if width >= 1024 else _SMALL_VOCABULARY
    left = size // dtype.itemsize - vocabulary * width
    with torch.device("meta"):
        model = Teacher(width, max(1, round(left / (12 * width * width))), vocabulary)
    model = model.to(dtype).to_empty(device="cpu").eval().requires_grad_(False)
    model.head.weight = model.embedding.weight
    draw = torch.Generator().manual_seed(seed)
    block = torch.randn(_BLOCK, generator=draw).mul_(0.02).to(dtype).repeat(2)
    start = 0
    for parameter in model.parameters():
        flat = parameter.view(-1)
        for first in range(0, flat.numel(), _BLOCK):
            piece = flat[first : first + _BLOCK]
            piece.copy_(block[start : start + piece.numel()])
            start = (start + 100_003) % _BLOCK
    return model


def some_tokens(rows: int, length: int) -> torch.Tensor:
    """Return an input."""
    return (torch.arange(rows * length).view(rows, length) * 7919) % 30_011


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return its parameters and buffers as they are now."""
    return {name: value.data for name, value in (*model.named_parameters(), *model.named_buffers())}
