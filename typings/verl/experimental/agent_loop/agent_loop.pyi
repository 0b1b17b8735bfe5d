from collections.abc import Callable
from typing import Any, TypeVar

from verl.protocol import DataProto

class AgentLoopMetrics:
    generate_sequences: float
    tool_calls: float
    compute_score: float
    num_preempted: int
    def __init__(
        self,
        *,
        generate_sequences: float = ...,
        tool_calls: float = ...,
        compute_score: float = ...,
        num_preempted: int = ...,
    ) -> None: ...

class AgentLoopOutput:
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None
    multi_modal_data: dict[str, Any] | None
    reward_score: float | None
    num_turns: int
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any]
    def __init__(
        self,
        *,
        prompt_ids: list[int],
        response_ids: list[int],
        response_mask: list[int],
        metrics: AgentLoopMetrics,
        response_logprobs: list[float] | None = ...,
        multi_modal_data: dict[str, Any] | None = ...,
        reward_score: float | None = ...,
        num_turns: int = ...,
        extra_fields: dict[str, Any] = ...,
    ) -> None: ...

class AgentLoopBase:
    config: Any
    rollout_config: Any
    tokenizer: Any
    processor: Any
    async def process_multi_modal_info(self, messages: list[dict[str, Any]]) -> dict[str, Any]: ...
    async def ct_build_initial_tokens(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        images: list[Any] | None = None,
        videos: list[Any] | None = None,
        audios: list[Any] | None = None,
        mm_inputs_out: dict[str, Any] | None = None,
    ) -> list[int]: ...

_L = TypeVar("_L", bound=type[AgentLoopBase])

def register(agent_name: str) -> Callable[[_L], _L]: ...

class AgentLoopWorker:
    def __init__(
        self, config: Any, llm_client: Any, teacher_client: Any = None, reward_loop_worker_handles: Any = None
    ) -> None: ...
    def _postprocess(
        self, inputs: list[Any], input_non_tensor_batch: dict[str, Any] | None = None, validate: bool = False
    ) -> DataProto: ...

class AgentLoopManager:
    agent_loop_workers_class: Any
    def __init__(
        self, config: Any, llm_client: Any, teacher_client: Any = None, reward_loop_worker_handles: Any = None
    ) -> None: ...
    async def _init_agent_loop_workers(self) -> None: ...
    def generate_sequences(self, prompts: Any) -> Any: ...  # awaited or not: see auto_await
