"""The module that is swapped: two layers of a transformer with tied embeddings, 167 million parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VOCABULARY = 32_000
WIDTH = 2_048
LAYERS = 2

_QUICK = 16
"""A quick run divides the width by it."""


class Model(nn.Module):
    """A small language model; what comes out depends on every weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, nhead=8, dim_feedforward=4 * width, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last token."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(hidden[:, -1])
        return logits


def load(*, quick: bool) -> Model:
    """Return the module, always with the same weights."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(6)
    model = Model(WIDTH // (_QUICK if quick else 1)).eval()
    generator.set_state(state)
    return model


def some_tokens() -> torch.Tensor:
    """Return an input."""
    return torch.arange(24).reshape(2, 12) * 997 % VOCABULARY


def answered(model: Model) -> torch.Tensor:
    """Return what the module makes of it."""
    with torch.inference_mode():
        answer: torch.Tensor = model(some_tokens())
    return answer


def as_to_does(model: nn.Module) -> None:
    """Do to a module what `.to()` does when the device is another one: new memory and a copy for each of its tensors.

    On a CPU, `.to("cpu")` itself does nothing.
    """
    module: Any = model  # what `.to()` calls is not public
    module._apply(torch.clone)
