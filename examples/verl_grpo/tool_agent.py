"""Play one rollout of VeRL's agent loop in this process: to try tools without a GPU, an engine or Ray.

The tools are those of a training job, from its file of tools, and so is the loop; only what the model says is written
down here. Beside VeRL, it needs the tokenizer of a model: `python tool_agent.py Qwen/Qwen2.5-0.5B-Instruct`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from transformers import AutoConfig, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.tools.tool_registry import load_all_tools
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

import arl_tangram as tangram
from arl_tangram.integrations.verl import TangramToolAgentLoop

TOOLS = """
tools:
  - class_name: arl_tangram.integrations.verl.TangramTool
    config: {type: native, action: "arl_tangram.integrations.rollouts.sandbox_tools:python", name: code_interpreter}
"""
CODE = ["print(open('n', 'w').write('42'))", "print(open('n').read())", "import time; time.sleep(3600)"]
SAYS = [json.dumps({"name": "code_interpreter", "arguments": {"code": code}}) for code in CODE]
SETTINGS = """
actor_rollout_ref:
  rollout:
    prompt_length: 4096
    response_length: 4096
    full_determinism: false
    multi_turn: {max_user_turns: 8, max_assistant_turns: 8, max_parallel_calls: 4, max_tool_response_length: 4096,
                 tool_response_truncate_side: middle, format: hermes}
data: {apply_chat_template_kwargs: {}}
tangram: {pools: "my_agent:pools", deadline_s: 3}
"""


class Written:
    """What stands for the engine: it says what is written down, one text in each turn."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.texts = iter([*(f"<tool_call>\n{call}\n</tool_call>" for call in SAYS), "It was 42."])

    async def generate(self, *_: Any, **__: Any) -> TokenOutput:
        text = next(self.texts) + self.tokenizer.eos_token
        return TokenOutput(token_ids=self.tokenizer.encode(text, add_special_tokens=False))


def load_tools() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tools.yaml"
        file.write_text(TOOLS)
        return load_all_tools(str(file), None)


async def main(model: str, tools: list[Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    settings = OmegaConf.create(SETTINGS)
    loop = TangramToolAgentLoop(
        trainer_config=DictConfigWrap(settings),
        server_manager=Written(tokenizer),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(settings.data),
        hf_model_type=AutoConfig.from_pretrained(model).model_type,
        tools=ToolListWrap(tools),
    )
    async with tangram.Tangram(tangram.LocalPool()):  # in a job, the manager opens it, and all workers share it
        output = await loop.run({}, raw_prompt=[{"role": "user", "content": "What was it?"}])
    print("what tools said:")
    for part in tokenizer.decode(output.response_ids).split("<tool_response>\n")[1:]:
        print("  " + part.partition("\n</tool_response>")[0].replace("\n", "\n  "))
    print(f"answer: {output.extra_fields['tangram_answer']}")
    print(f"tools: {output.extra_fields['tangram_tools']}")
    print(f"masked: {output.extra_fields['tangram_masked']}")


asyncio.run(main(sys.argv[1], load_tools()))
