"""Write a model of a few thousand weights with its tokenizer: what a trainer's test loads instead of a real one."""

from __future__ import annotations

from pathlib import Path

# The turns of a conversation between `<|im_start|>` and `<|im_end|>`; a tool call is JSON between `<tool_call>` tags
# (the format that verl calls "hermes"), and the answers of tools that follow each other share one turn of the user.
CHAT_TEMPLATE = r"""
{%- set system = messages[0].content if messages[0].role == 'system' else 'You answer questions.' %}
{{- '<|im_start|>system\n' + system }}
{%- if tools %}
    {{- '\n<tools>' }}
    {%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
    {{- '\n</tools>' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
""".strip()


def write_tiny_model(folder: Path, *, chat_template: str | None = None) -> Path:
    """Write the files of a Qwen2 model with 40,000 random weights, the same in every run, and return the folder.

    Its tokenizer has one token for each byte and one for each tag, so that every text comes back as it was. Nothing is
    fetched. `chat_template` takes the place of the one above.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        [], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
    # Not special, as in Qwen2.5: what is decoded without special tokens keeps its tool calls.
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"])
    tokenizer.chat_template = chat_template or CHAT_TEMPLATE
    config = Qwen2Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
