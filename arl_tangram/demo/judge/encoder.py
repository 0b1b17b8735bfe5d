"""The models of `demo --judge`: transformer encoders with seeded weights, which score each token of a text."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from arl_tangram.demo.judge.catalogue import HEADS, LAYERS, LENGTH, SERVICES, VOCABULARY, WIDTH, ServiceName


class Encoder(nn.Module):
    """Reads a text in both directions; the embeddings are used for its head, too."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each token; shape (texts, tokens) as that of `text`."""
        hidden = self.tokens(text) + self.positions.weight[: text.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden)
        logits = functional.linear(hidden, self.tokens.weight)
        return functional.log_softmax(logits, dim=-1).gather(-1, text.unsqueeze(-1)).squeeze(-1)


def load(service: ServiceName) -> Encoder:
    """Return the model of a service, always with the same weights; may be called from several threads at once."""
    with torch.device("meta"):
        model = Encoder(LAYERS[service])
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(SERVICES.index(service))
    for name, parameter in model.named_parameters():
        _fill(name, parameter, generator)
    return model.eval().requires_grad_(requires_grad=False)


def _fill(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    with torch.no_grad():
        if parameter.dim() == 2:
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
        else:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
