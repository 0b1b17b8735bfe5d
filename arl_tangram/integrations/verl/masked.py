"""What stands in a batch for a rollout that the infrastructure ended, where verl cannot leave a row out."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop


async def masked_output(
    loop: ToolAgentLoop, messages: list[dict[str, Any]], extra_fields: dict[str, Any], *, logprobs: bool
) -> AgentLoopOutput:
    """Return a row with the prompt of the sample and one token of response, which no loss sees.

    Its reward is 0 so that nobody is asked for one; `TangramBatchAgentLoopManager` makes that the mean of its group.

    Args:
        loop: the loop of the rollout.
        messages: the prompt.
        extra_fields: what stands beside the row.
        logprobs: whether the rows of this batch have log probabilities, which all must have, or none.
    """
    inputs = await loop.process_multi_modal_info(messages)
    prompt = await loop.ct_build_initial_tokens(
        messages,
        tools=loop.tool_schemas,
        images=inputs.get("images"),
        videos=inputs.get("videos"),
        audios=inputs.get("audios"),
    )
    return AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=[loop.tokenizer.eos_token_id],
        response_mask=[0],
        response_logprobs=[0.0] if logprobs else None,
        multi_modal_data=inputs,
        reward_score=0.0,
        num_turns=1,
        metrics=AgentLoopMetrics(),
        extra_fields={**extra_fields, "turn_scores": [], "tool_rewards": [], "reward_extra_info": {}},
    )
