"""verl's agent loop with tools, each of its rollouts in one trajectory: from its first tool to its reward."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from arl_tangram.errors import ConfigurationError, InfrastructureError, TangramError
from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.scoring import find_bounded, score, taken_by
from arl_tangram.integrations.verl.masked import masked_output
from arl_tangram.integrations.verl.readable import ReadableCalls
from arl_tangram.integrations.verl.settings import Settings, read_sample, read_settings
from arl_tangram.integrations.verl.tool import TangramTool
from arl_tangram.integrations.verl.using import Uses, uses_var


@register("tangram_tool_agent")
class TangramToolAgentLoop(ToolAgentLoop):
    """Plays one rollout as `ToolAgentLoop` does, with one sandbox for all its tools, and for its reward if it has one.

    What the trainer's `+tangram.*` says holds for each rollout: `image`, `memory_gib` and `deadline_s`, and the actions
    `setup` and `reward`, which run in the sandbox of the rollout before its first turn and after its last. The
    trajectory has the `uid` of its sample as its group.

    `extra_fields` of what it returns has `tangram_answer`, the last turn of the model as text, `tangram_tools`, the
    calls and failures of each tool, `tangram`, the image and memory of its sandbox, and `tangram_masked`.

    A rollout that the infrastructure ends, and not what the model did, stops at once. In verl's v1 trainer its error
    leaves the loop, so that it has no row; elsewhere, where the error would end the whole batch, it is one masked row.

    Raises:
        ConfigurationError: `+tangram.*` is wrong, or a tool names another runtime.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tool_parser = ReadableCalls(self.tool_parser)
        block = self.config.get("tangram")
        self._settings = Settings(pools="") if block is None else read_settings(self.config)
        for tool in self._tangram_tools():
            if tool.runtime not in {None, self._settings.name}:
                raise ConfigurationError(
                    f"the tool {tool.name!r} names the runtime {tool.runtime!r}, and the trainer's tangram.name is "
                    f"{self._settings.name!r}: a rollout is on one runtime"
                )

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **kwargs: Any) -> AgentLoopOutput:
        """Play one rollout.

        Raises:
            InfrastructureError: in verl's v1 trainer, if the infrastructure ended it.
            ConfigurationError: the sample lacks what a tool takes from it, or asks for what there is not.
            NoSharedRuntimeError: nobody has opened the runtime.
            TangramError: a tool is declared in a way that cannot work, such as a cost that no pool can meet.
        """
        settings = read_sample(kwargs.get("extra_info") or {}, self._settings)
        self._check_sample(kwargs)
        ending = _Ending()
        uses = Uses(ending.end)
        outer = uses_var.set(uses)
        try:
            async with Rollout(
                await runtime_here(settings.name),
                group=None if kwargs.get("uid") is None else str(kwargs["uid"]),
                image=settings.image,
                memory_gib=settings.memory_gib,
                deadline_s=settings.deadline_s,
            ) as rollout:
                rollout.on_failure(ending.end)  # also in tools that are not ours, whose errors verl tells the model
                if settings.setup is not None:
                    setup = find_bounded(settings.setup, where="tangram.setup")
                    await rollout.set_up(setup, **taken_by(setup, _fields(kwargs, {})))
                output = await ending.of(asyncio.create_task(super().run(sampling_params, priority, **kwargs)))
                output.extra_fields["tangram"] = {"image": settings.image, "memory_gib": settings.memory_gib}
                output.extra_fields["tangram_masked"] = False
                output.extra_fields["tangram_answer"] = self._last_turn(output)
                output.extra_fields["tangram_tools"] = uses.counts
                if settings.reward is not None:
                    await self._reward(rollout, settings.reward, kwargs, output)
                return output
        except InfrastructureError:
            if "session_id" in kwargs:
                raise
            fields = {"tangram_masked": True, "tangram_answer": "", "tangram_tools": uses.counts}
            messages = list(kwargs["raw_prompt"])
            return await masked_output(self, messages, fields, logprobs=bool(sampling_params.get("logprobs")))
        finally:
            uses_var.reset(outer)

    async def _reward(self, rollout: Rollout, address: str, sample: Mapping[str, Any], output: AgentLoopOutput) -> None:
        """Let an action score the rollout in its sandbox; the time of the rollout is not that of its reward."""
        action = find_bounded(address, where="tangram.reward")
        rollout.lift_deadline()
        fields = _fields(sample, output.extra_fields)
        fields["solution_str"] = self._text(output.response_ids)
        fields["answer"] = output.extra_fields["tangram_answer"]
        fields["extra_info"]["num_turns"] = output.num_turns
        scored = await score(rollout, action, fields)
        output.reward_score = scored["score"]
        output.extra_fields["reward_extra_info"] = scored

    def _tangram_tools(self) -> list[TangramTool]:
        return [tool for tool in self.tools.values() if isinstance(tool, TangramTool)]

    def _check_sample(self, sample: Mapping[str, Any]) -> None:
        """Check that a sample brings what the tools that it may use take from it."""
        told: Mapping[str, Any] = sample.get("extra_info") or {}
        columns: Mapping[str, Any] = sample.get("tools_kwargs") or {}
        selected: Collection[str] = told.get("tool_selection") or self.tools
        for tool in self._tangram_tools():
            if tool.name in selected:
                given: Mapping[str, Any] = columns.get(tool.name) or {}
                tool.check_sample(given.get("create_kwargs") or {})

    def _last_turn(self, output: AgentLoopOutput) -> str:
        """Return the last turn of the model as text, without what tools said: the last tokens that count."""
        mask = output.response_mask
        end = next((place for place in range(len(mask), 0, -1) if mask[place - 1]), 0)
        start = next((place for place in range(end, 0, -1) if not mask[place - 1]), 0)
        return self._text(output.response_ids[start:end])

    def _text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class _Ending:
    """What makes a rollout end before its time: verl tells the model of every error of a tool, and goes on."""

    def __init__(self) -> None:
        self._error: TangramError | None = None
        self._playing: asyncio.Task[AgentLoopOutput] | None = None

    def end(self, error: TangramError) -> None:
        """End what is played, with this error; the first one counts."""
        self._error = self._error or error
        if self._playing is not None:
            self._playing.cancel()

    async def of(self, playing: asyncio.Task[AgentLoopOutput]) -> AgentLoopOutput:
        """Return what is played, or raise what has ended it. Cancelling cancels it."""
        self._playing = playing
        try:
            output = await playing
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._error is None or (this is not None and this.cancelling()):
                raise
            raise self._error from None
        if self._error is not None:
            raise self._error
        return output


def _fields(sample: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an action can ask for: the columns of the sample, and what rewards are given in verl."""
    told: Mapping[str, Any] = sample.get("reward_model") or {}
    return {
        **sample,
        "ground_truth": told.get("ground_truth"),
        "extra_info": {**(sample.get("extra_info") or {}), **beside},
    }
