"""Train a tiny model with TRL's GRPOTrainer in each way that the integration offers, and print what happened as JSON.

Two of the ways have a scripted model in the place of the tiny one, so that there are tool calls; the weights that are
trained are those of the tiny one.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import arl_tangram as tangram
from arl_tangram.integrations.trl import Said, batch_reward, tool_rollouts
from trainers.tiny_model import write_tiny_model

CORES = 2
GROUP = 4  # rollouts of a prompt
BATCH = 8


class Spans:
    """When bodies ran, on whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.reset()

    def reset(self) -> None:
        self.peak = 0
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            self.count += 1
            self.peak = max(self.peak, self._running)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1


spans = Spans()
boxes: list[str] = []


@tangram.action(quota={"judge": 1}, timeout=30)
async def length(completion_ids: list[int], truth: int) -> float:
    with spans:
        return float(sum(completion_ids) % truth)


@tangram.action(cpu=1, timeout=30)
async def shell(command: str) -> str:
    """Run a command.

    Args:
        command: what to run.
    """
    box = tangram.current_sandbox()
    boxes.append(box.id)
    with spans:
        done = await box.exec(["sh", "-c", command])
    return done.stdout.decode()


@tangram.action(quota={"judge": 1}, timeout=30)
async def right(tangram_answer: str, truth: int) -> float:
    return float(tangram_answer.strip() == str(truth))


def scripted(tokenizer: Any, loses: Callable[[int], bool]) -> Callable[[GRPOTrainer, list[list[int]]], Sequence[Said]]:
    """Return a model that keeps a number in a file, reads it in its next turn, and answers what it has read.

    Every second rollout keeps the right number; one that is to lose its sandbox kills what keeps that alive.
    """
    begun = 0

    def say(text: str) -> Said:
        return Said(tokenizer.encode(text + "<|im_end|>", add_special_tokens=False))

    def call(command: str) -> Said:
        arguments = json.dumps({"name": "shell", "arguments": {"command": command}})
        return say(f"<tool_call>\n{arguments}\n</tool_call>")

    def turn(context: str) -> Said:
        nonlocal begun
        answers = context.split("<tool_response>\n")[1:]
        if not answers:
            begun += 1
            keep = f"echo {41 + begun % 2} > kept; sleep 0.1"
            return call("kill -KILL $PPID; sleep 30" if loses(begun) else keep)
        return call("cat kept") if len(answers) == 1 else say(answers[-1].split("\n")[0])

    return lambda trainer, contexts: [turn(tokenizer.decode(ids)) for ids in contexts]


def train(model_folder: Path, output: str, dataset: Any, **options: Any) -> dict[str, Any]:
    """Train for two steps, and return what can be seen of it."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    config = GRPOConfig(
        output_dir=output,
        per_device_train_batch_size=BATCH,
        num_generations=GROUP,
        max_completion_length=options.pop("max_completion_length", 512),
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        beta=0.0,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=1,
    )
    trainer = GRPOTrainer(model=model, args=config, train_dataset=dataset, processing_class=tokenizer, **options)
    trainer.train()
    changed = max(float((now.detach() - before[name]).abs().max()) for name, now in model.named_parameters())
    logs = [log for log in trainer.state.log_history if "reward" in log]
    return {"changed": changed, "steps": trainer.state.global_step, "logs": logs}


def main() -> None:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    torch.set_num_threads(1)
    templates = Path(trl.__file__).parent / "chat_templates"
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder) / "model", chat_template=(templates / "qwen2_5.jinja").read_text())
        tokenizer = AutoTokenizer.from_pretrained(model)
        rows = [{"prompt": [{"role": "user", "content": f"{n}: 40 + 2?"}], "truth": 42} for n in range(16)]
        dataset = Dataset.from_list(rows)
        pools = (tangram.LocalPool(cores=CORES, isolation="none"), tangram.Quota("judge", concurrency=3))
        ways: dict[str, dict[str, Any]] = {
            "plain": {"reward_funcs": batch_reward(length), "max_completion_length": 24},
            "by_model": {
                "reward_funcs": batch_reward(length),
                "rollout_func": tool_rollouts([shell]),
                "max_completion_length": 24,
            },
            "scripted": {
                "reward_funcs": batch_reward(right),
                "rollout_func": tool_rollouts([shell], generate=scripted(tokenizer, lambda n: n == BATCH + 3)),
            },
            "all_lost": {
                "reward_funcs": batch_reward(right),
                "rollout_func": tool_rollouts([shell], generate=scripted(tokenizer, lambda n: True)),
            },
        }
        for name, options in ways.items():
            spans.reset()
            boxes.clear()
            with tangram.Tangram(*pools) as runtime:
                found = train(model, folder, dataset, **options)
                found["left"] = runtime.statistics().trajectories
            found |= {"name": name, "peak": spans.peak, "calls": spans.count, "boxes": len(set(boxes))}
            print("FOUND", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
