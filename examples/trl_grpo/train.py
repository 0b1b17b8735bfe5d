"""Train with TRL on a CPU: a model that may run shell commands, each rollout in a sandbox of its own.

    pip install 'arl-tangram[trl]'
    python examples/trl_grpo/train.py --steps 20

A model of half a billion weights takes minutes for each step on a CPU. Nothing but the model is fetched.
"""

from __future__ import annotations

import argparse
import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import arl_tangram as tangram
from arl_tangram.integrations.rollouts.sandbox_tools import shell
from arl_tangram.integrations.trl import batch_reward, tool_rollouts

QUESTION = "How many bytes has the text {!r}? Use the shell, and answer with the number alone."


@tangram.action(cpu=1, timeout=10)
def right(tangram_answer: str, truth: int) -> float:
    """1 for the right number, and a little for any number at all: `tangram_answer` has no output of tools in it."""
    words = tangram_answer.strip().rstrip(".").split()
    return 1.0 if words[-1:] == [str(truth)] else 0.1 * any(word.isdigit() for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct", help="a name on the hub, or a folder")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="of a completion, at most")
    options = parser.parse_args()
    texts = ["ab" * n for n in range(3, 19)]
    rows = [{"prompt": [{"role": "user", "content": QUESTION.format(text)}], "truth": len(text)} for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=options.model,
            reward_funcs=batch_reward(right),
            rollout_func=tool_rollouts([shell], deadline_s=120),
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=options.tokens,
                max_steps=options.steps,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
            ),
        )
        with tangram.Tangram(tangram.LocalPool()) as tg:
            trainer.train()
            print(tg.report())


if __name__ == "__main__":
    main()
