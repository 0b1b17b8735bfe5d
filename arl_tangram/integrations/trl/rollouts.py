"""Rollouts with tools for TRL: those of a batch run side by side, and share the model's turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trl import GRPOTrainer

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.errors import ConfigurationError, UsageError
from arl_tangram.integrations.rollouts.addresses import find_action
from arl_tangram.integrations.rollouts.scoring import taken_by, within_bounds
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.trl.batch import columns_of, play_all
from arl_tangram.integrations.trl.chat import TemplateChat
from arl_tangram.integrations.trl.episode import Plan
from arl_tangram.integrations.trl.turns import Said
from arl_tangram.model.quantities import bytes_of_gib, seconds

GenerateTurns = Callable[[GRPOTrainer, list[list[int]]], Sequence[Said]]
"""Calls the model with the tokens of several conversations; on the thread that trains."""

Rollouts = Callable[[Sequence[Any], GRPOTrainer], dict[str, Any]]

_WHERE = "tool_rollouts()"


def tool_rollouts(
    tools: Sequence[BoundAction[..., Any] | Tool | str],
    *,
    generate: GenerateTurns | None = None,
    max_turns: int = 5,
    image: str | None = None,
    memory_gib: float = 0,
    deadline_s: float | None = None,
    setup: BoundAction[..., Any] | str | None = None,
    runtime: str = "tangram",
) -> Rollouts:
    """Return what `GRPOTrainer(rollout_func=…)` takes: rollouts in which the model calls tools, all of a batch at once.

    Each has a sandbox of its own, from its first call to its end. Errors of tools are told to the model; where the
    infrastructure failed, nothing of the rollout is trained on: the column `tangram_masked` is true, for which
    `batch_reward` gives no reward. The columns `tangram_answer`, the text of the model's last turn, and `tangram_calls`
    and `tangram_failures` are there for reward functions, too.

    Args:
        tools: actions, their addresses, or `Tool`s.
        generate: calls the model in place of the trainer.
        max_turns: how often the model speaks at most, from 1.
        image: of the sandboxes, as for `tangram.trajectory`.
        memory_gib: of the sandboxes, as for `tangram.trajectory`.
        deadline_s: seconds for the calls of a rollout, from its beginning; what runs or waits then is ended.
        setup: an action with a `timeout` that is called first in each sandbox; it may ask for the `prompt`.
        runtime: the name of the shared runtime that is used where this process has opened none.

    Raises:
        ConfigurationError: an address that leads nowhere, two tools of one name, a tool without a `timeout`, or with
            parameters that come from the dataset, which TRL does not give to rollouts; a number that is not possible.
        DefinitionError: what a tool takes cannot be told to a model.
    """
    if max_turns < 1:
        raise ConfigurationError(f"{_WHERE} takes max_turns from 1, not {max_turns}")
    if deadline_s is not None:
        seconds(deadline_s, f"{_WHERE}: deadline_s", ConfigurationError)
    bytes_of_gib(memory_gib, f"{_WHERE}: memory_gib", ConfigurationError)
    named = _named(tools)
    first = find_action(setup, where=f"{_WHERE}: setup") if isinstance(setup, str) else setup
    if first is not None:
        first = _checked_setup(first)
    call_model = _by_trainer if generate is None else generate

    def rollouts(prompts: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        plan = Plan(
            tools=named,
            setup=first,
            max_turns=max_turns,
            max_tokens=trainer.max_completion_length,
            max_context=_longest(trainer),
            image=image,
            memory_gib=memory_gib,
            deadline_s=deadline_s,
        )
        chat = TemplateChat(
            trainer.processing_class,
            [tool.schema for tool in named.values()],
            template=trainer.chat_template,
            options=trainer.chat_template_kwargs,
        )
        return columns_of(play_all(prompts, plan, chat, lambda ids: call_model(trainer, ids), runtime))

    return rollouts


def _named(tools: Sequence[BoundAction[..., Any] | Tool | str]) -> dict[str, Tool]:
    if isinstance(tools, str) or not isinstance(tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{_WHERE} takes a list of tools, not {tools!r}")
    found = [one if isinstance(one, Tool) else Tool.declare(one, where=_WHERE) for one in tools]
    named = {tool.name: tool for tool in found}
    if not named:
        raise ConfigurationError(f"{_WHERE} takes one tool or more")
    if len(named) < len(found):
        raise ConfigurationError(f"{_WHERE}: two tools have one name, among {', '.join(tool.name for tool in found)}")
    for tool in found:
        if tool.given:
            text = "which TRL does not give to rollouts"
            raise ConfigurationError(f"{_WHERE}: {tool.name} takes {', '.join(tool.given)} from the dataset, {text}")
    return named


def _checked_setup(setup: BoundAction[..., Any]) -> BoundAction[..., Any]:
    try:
        invocable_of(setup)
    except UsageError as error:
        raise ConfigurationError(f"{_WHERE}: setup: {error}") from None
    taken_by(setup, {"prompt": None})
    return within_bounds(setup, where=f"{_WHERE}: setup")


def _longest(trainer: GRPOTrainer) -> int:
    return int(getattr(trainer.model.config, "max_position_embeddings", None) or 1 << 31)


def _by_trainer(trainer: GRPOTrainer, ids: list[list[int]]) -> list[Said]:
    """Generate as the trainer itself does, with the current weights; each conversation has a history of its own."""
    said, logprobs = trainer._generate_single_turn(ids, None, {}, 1)
    if logprobs is None:
        return [Said(list(one)) for one in said]
    return [Said(list(one), list(told)) for one, told in zip(said, logprobs, strict=True)]
