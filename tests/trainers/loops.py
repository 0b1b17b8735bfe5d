"""verl's agent loops in this process, as its workers make them: no Ray, no engine, and a tiny tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.tool_registry import load_all_tools
from verl.utils.dataset.rl_dataset import RLHFDataset

from trainers.scripted import ScriptedLLM, tool_call

TOOL = "arl_tangram.integrations.verl.TangramTool"


def tools_file(folder: Path, *configs: Mapping[str, Any]) -> Path:
    """Write the YAML file of tools; each mapping is what stands under `config:`, without its type."""
    entries = [{"class_name": TOOL, "config": {"type": "native", **config}} for config in configs]
    path = folder / "tools.yaml"
    path.write_text(yaml.safe_dump({"tools": entries}))
    return path


def load_tools(folder: Path, *names: str) -> list[Any]:
    """Return what verl makes of the actions with these names in `tool_actions`."""
    return load_all_tools(
        str(tools_file(folder, *({"action": f"trainers.tool_actions:{name}"} for name in names))), None
    )


def make_loop(
    kind: type[ToolAgentLoop],
    model: Path,
    answer: Callable[[str, int], str],
    tools: Sequence[Any],
    *,
    settings: Mapping[str, Any] | None = None,
    **multi_turn: Any,
) -> Any:
    """Return an agent loop for one rollout, or for several behind each other.

    Args:
        kind: verl's own, or ours.
        model: the folder of the tokenizer.
        answer: what the model says; see `ScriptedLLM`.
        tools: as verl has loaded them.
        settings: the block `tangram` of the trainer's configuration, but for its pools; None for no block.
        multi_turn: what is not as below.
    """
    limits = {
        "max_user_turns": None,
        "max_assistant_turns": 6,
        "max_parallel_calls": 8,
        "max_tool_response_length": 999,
    }
    turns = {**limits, "tool_response_truncate_side": "middle", "format": "hermes", **multi_turn}
    rollout = {"prompt_length": 4096, "response_length": 4096, "full_determinism": False, "multi_turn": turns}
    whole: dict[str, Any] = {"actor_rollout_ref": {"rollout": rollout}, "data": {"apply_chat_template_kwargs": {}}}
    if settings is not None:
        whole["tangram"] = {"pools": "trainers.tool_actions:none", **settings}
    config = OmegaConf.create(whole)
    return kind(
        trainer_config=DictConfigWrap(config),
        server_manager=ScriptedLLM(model, answer),
        tokenizer=AutoTokenizer.from_pretrained(model),
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
        tools=ToolListWrap(list(tools)),
    )


def calls(*turns: Sequence[tuple[str, Mapping[str, Any]]], then: str = "Done.") -> Callable[[str, int], str]:
    """Return a model that calls these tools, one list in each turn, and says `then` in the end."""
    texts = ["".join(tool_call(name, **arguments) for name, arguments in turn) for turn in turns]
    return lambda _prompt, turn: texts[turn] if turn < len(texts) else then


def sample(question: str = "Why?", **columns: Any) -> dict[str, Any]:
    """Return what a worker of verl gives to `run` of one sample."""
    return {"raw_prompt": [{"role": "user", "content": question}], **columns}


def tool_texts(loop: Any, output: Any) -> list[str]:
    """Return what the model was told by tools, in order."""
    text = loop.tokenizer.decode(output.response_ids)
    return [part.partition("\n</tool_response>")[0] for part in text.split("<tool_response>\n")[1:]]
