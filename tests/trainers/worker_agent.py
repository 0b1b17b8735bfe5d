"""The agent of `test_workers`: what the model says, its tools, and the pools; for all processes of its program."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from scripted import tool_call
from spans import span

import arl_tangram as tangram
from docker_engine import EngineApi

CORES = 2
GRADERS = 1
FATAL, HANGING = 5, 9
HANGS_S = 3


def pools() -> tangram.Tangram:
    return tangram.Tangram(
        tangram.DockerPool(cores=CORES, memory_gib=1, image=os.environ["IMAGE"], url=os.environ["URL"]),
        tangram.Quota("grading", concurrency=GRADERS),
    )


@tangram.action(cpu=1, timeout=60)
async def note(text: str) -> int:
    """Write a line into the notes.

    Args:
        text: the line.
    """
    with span("tool"):
        done = await tangram.current_sandbox().exec(
            ["sh", "-c", f"echo {text} >> notes; cat notes | wc -l; sleep 0.05"]
        )
        return int(done.stdout)


@tangram.action(cpu=1, timeout=60)
async def vanish() -> str:
    """End the container."""
    box = tangram.current_sandbox()
    name = (await box.exec(["cat", "/etc/hostname"])).stdout.decode().strip()
    EngineApi(os.environ["URL"]).call("POST", f"/containers/{name}/kill")
    return (await box.exec(["true"])).stdout.decode()


@tangram.action(cpu=1, timeout=HANGS_S)
async def hang() -> str:
    """Take for ever."""
    with span("tool"):
        await tangram.current_sandbox().exec(["sleep", "600"])
    return "it has ended"


@tangram.action(cpu=1, timeout=60)
async def begin() -> None:
    """Write the first line of the notes, before the model does anything."""
    with span("tool"):
        await tangram.current_sandbox().write_file("notes", b"begun\n")


@tangram.action(cpu=1, timeout=60)
async def count(answer: str) -> dict[str, Any]:
    """Score a rollout by its notes: how many lines are in them."""
    with span("tool"):
        lines = (await tangram.current_sandbox().read_file("notes")).decode().splitlines()
        return {"score": len(lines), "first": lines[0], "is_known": answer == str(len(lines))}


@tangram.action(quota={"grading": 1}, timeout=60)
def grade(answer: str, ground_truth: str) -> dict[str, Any]:
    with span("grade"):
        time.sleep(0.02)
        return {"score": float(answer == ground_truth), "letters": len(answer)}


def question(number: int) -> str:
    return f"Question {number}: how many lines have your notes?"


def says(prompt: str, turn: int) -> str:
    found = re.search(r"Question (\d+):", prompt)
    assert found is not None
    number = int(found[1])
    if turn == 0 and number in {FATAL, HANGING}:
        return tool_call("vanish" if number == FATAL else "hang")
    if turn < 2 and number != HANGING:
        return tool_call("note", text=f"line{turn}")
    told = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", prompt, re.DOTALL)
    return str(told[-1])
