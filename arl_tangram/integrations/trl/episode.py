"""One rollout with tools: turns of the model and answers of tools, as the tokens that TRL trains on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from arl_tangram.action import BoundAction
from arl_tangram.calling import Calling
from arl_tangram.integrations.rollouts.rollout import Rollout, Used
from arl_tangram.integrations.rollouts.scoring import taken_by
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.rollouts.wording import is_masked
from arl_tangram.integrations.trl.turns import Turns

Message = Mapping[str, Any]


class ToolCall(NamedTuple):
    """A call that the model has asked for: of a tool, with what stands for its arguments."""

    name: str
    arguments: object


class Turn(NamedTuple):
    """What the model said in one turn: to be read, and to be done."""

    text: str
    calls: Sequence[ToolCall]


class Chat(Protocol):
    """How conversations are written as tokens."""

    end_id: int
    """The token that ends a turn."""

    def begin(self, prompt: Sequence[Message]) -> list[int]:
        """Return a prompt with its tools, up to where the model is to speak."""
        ...

    def read(self, context: list[int], ids: list[int]) -> Turn:
        """Return what the model said after a context."""
        ...

    def tell(self, answers: Sequence[tuple[str, str]]) -> list[int]:
        """Return what follows a turn of the model: what each tool answered, up to where the model is to speak again."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What the rollouts of a batch have in common.

    Attributes:
        tools: by their names.
        setup: an action that is called first, in the sandbox; it may ask for the `prompt`.
        max_turns: how often the model speaks at most.
        max_tokens: how many tokens follow the prompt at most, those of tools included.
        max_context: how many tokens there are at most, those of the prompt included.
        image: as for `tangram.trajectory`.
        memory_gib: as for `tangram.trajectory`.
        deadline_s: seconds for all calls of a rollout, from its beginning.
    """

    tools: Mapping[str, Tool]
    setup: BoundAction[..., Any] | None
    max_turns: int
    max_tokens: int
    max_context: int
    image: str | None = None
    memory_gib: float = 0
    deadline_s: float | None = None


@dataclass(slots=True)
class Episode:
    """The tokens of a rollout.

    Attributes:
        prompt_ids: what it began with.
        completion_ids: what followed: what the model said, and what it was told.
        mask: for each of these, 1 if the model said it and is to be trained on it.
        logprobs: for each of these, 0 where the model did not say it, or where they are not known.
        has_logprobs: whether the model's server tells them.
        answer: the text of the model's last turn.
        calls: how many calls of tools there were.
        failures: how many of them returned nothing.
        masked: whether the infrastructure failed, so that nothing of it is to be trained on.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    has_logprobs: bool = False
    answer: str = ""
    calls: int = 0
    failures: int = 0
    masked: bool = False

    @property
    def context(self) -> list[int]:
        """All of its tokens."""
        return self.prompt_ids + self.completion_ids

    def add(self, ids: Sequence[int], *, said: bool, logprobs: Sequence[float] | None = None) -> None:
        """Append tokens, of the model or of others."""
        self.completion_ids += ids
        self.mask += [int(said)] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs[: len(ids)]
        self.has_logprobs = self.has_logprobs or logprobs is not None

    def mask_all(self) -> None:
        """Let nothing of it be trained on."""
        self.masked = True
        self.mask = [0] * len(self.mask)


async def play(prompt: Sequence[Message], plan: Plan, chat: Chat, turns: Turns, runtime: Calling) -> Episode:
    """Play one rollout to its end: a turn without calls, the last one that it may have, or a failed infrastructure.

    Cancelling ends it, and what it has called.

    Raises:
        TangramError: something is declared or used in a wrong way; failures of the infrastructure are masked instead.
    """
    episode = Episode(chat.begin(prompt))
    rollout = Rollout(runtime, image=plan.image, memory_gib=plan.memory_gib, deadline_s=plan.deadline_s)
    async with rollout:
        try:
            if plan.setup is not None:
                with turns.away():
                    await rollout.set_up(plan.setup, **taken_by(plan.setup, {"prompt": prompt}))
            await _converse(episode, plan, chat, turns, rollout)
        except Exception as error:
            if not is_masked(error):
                raise
            episode.mask_all()
        finally:
            turns.leave()  # before its sandbox is removed, which takes a while
    if not episode.completion_ids:
        episode.add([chat.end_id], said=False)  # TRL looks at the last token of each
    return episode


async def _converse(episode: Episode, plan: Plan, chat: Chat, turns: Turns, rollout: Rollout) -> None:
    for number in range(1, plan.max_turns + 1):
        before = episode.context
        said = await turns.ask(before)
        room = _room(episode, plan)
        episode.add(said.ids[:room], said=True, logprobs=said.logprobs)
        turn = chat.read(before, said.ids[:room])
        episode.answer = turn.text
        if not turn.calls or number == plan.max_turns:
            return
        with turns.away():
            answers = await _use_all(turn.calls, plan, rollout, episode)
        told = chat.tell(answers)
        if len(told) >= _room(episode, plan):
            return  # no room for a further turn: it ends with the calls, as in TRL's own loop
        episode.add(told, said=False)


def _room(episode: Episode, plan: Plan) -> int:
    """Return how many tokens more there may be."""
    completion, prompt = len(episode.completion_ids), len(episode.prompt_ids)
    return max(min(plan.max_tokens - completion, plan.max_context - prompt - completion), 0)


async def _use_all(calls: Sequence[ToolCall], plan: Plan, rollout: Rollout, episode: Episode) -> list[tuple[str, str]]:
    """Make the calls of a turn, all at once; each ends by its own bounds."""

    async def use(call: ToolCall) -> Used:
        tool = plan.tools.get(call.name)
        if tool is None:
            known = ", ".join(plan.tools)
            return Used(f"Error: there is no tool {call.name!r}, but {known}", ok=False, error="UnknownTool")
        return await rollout.use(tool, call.arguments)

    used = await asyncio.gather(*(use(call) for call in calls), return_exceptions=True)
    episode.calls += len(calls)
    episode.failures += sum(isinstance(one, BaseException) or not one.ok for one in used)
    answers: list[tuple[str, str]] = []
    for call, one in zip(calls, used, strict=True):
        if isinstance(one, BaseException):
            raise one
        answers.append((call.name, one.text))
    return answers
