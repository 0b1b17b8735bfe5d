"""The rollouts of a batch, played on a loop of their own while the thread that trains serves the model."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.trl.episode import Chat, Episode, Message, Plan, play
from arl_tangram.integrations.trl.turns import Generate, Turns


def play_all(
    prompts: Sequence[Sequence[Message]], plan: Plan, chat: Chat, generate: Generate, runtime: str
) -> list[Episode]:
    """Play a rollout for each prompt, all side by side, and return them in their order; blocks.

    An error, or a Ctrl-C on this thread, ends all of them before it is raised.

    Args:
        prompts: where each begins.
        plan: what they have in common.
        chat: how they are written as tokens.
        generate: calls the model, on this thread.
        runtime: the name of the shared runtime that is used where this process has opened none.

    Raises:
        TangramError: something is declared or used in a wrong way; failures of the infrastructure are masked instead.
    """
    turns = Turns(len(prompts))
    cancel: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()
    played: concurrent.futures.Future[list[Episode]] = concurrent.futures.Future()

    async def all_of_them() -> list[Episode]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancel.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        here = await runtime_here(runtime)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(prompt, plan, chat, turns, here)) for prompt in prompts]
        return [one.result() for one in tasks]

    def run() -> None:
        try:
            played.set_result(asyncio.run(all_of_them()))
        except BaseExceptionGroup as group:
            played.set_exception(group.exceptions[0])
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            played.set_exception(error)
        finally:
            turns.end()

    # In a copy of the context: the runtime that is current here is current there.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="arl_tangram rollouts", daemon=True)
    thread.start()
    try:
        turns.serve(generate)
    except BaseException:
        _cancelled(cancel, played)
        raise
    finally:
        thread.join()
    return played.result()


def _cancelled(
    cancel: concurrent.futures.Future[Callable[[], object]], played: concurrent.futures.Future[list[Episode]]
) -> None:
    """Cancel what is played, unless it is over; it has at least begun, or it never will."""
    either: list[concurrent.futures.Future[Any]] = [cancel, played]
    concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
    if not played.done():
        with suppress(RuntimeError):  # its loop has closed since: it is over
            cancel.result()()


def columns_of(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return a batch as TRL takes it; what begins with `tangram_` is for reward functions."""
    with_logprobs = any(episode.has_logprobs for episode in episodes)
    return {
        "prompt_ids": [episode.prompt_ids for episode in episodes],
        "completion_ids": [episode.completion_ids for episode in episodes],
        "logprobs": [episode.logprobs for episode in episodes] if with_logprobs else None,
        "env_mask": [episode.mask for episode in episodes],
        "tangram_answer": [episode.answer for episode in episodes],
        "tangram_masked": [episode.masked for episode in episodes],
        "tangram_calls": [episode.calls for episode in episodes],
        "tangram_failures": [episode.failures for episode in episodes],
    }
