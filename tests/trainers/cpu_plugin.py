"""Teach verl to train on a CPU, with an engine that answers what a script says; loaded into each of its processes.

By the environment: `VERL_USE_EXTERNAL_MODULES=cpu_plugin VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda`, and `SCRIPT`, the
address `module:function` of what the model says, given all that is in its context. Ray must be told of one GPU.
It reaches into private parts of verl 0.9.1.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ray
import torch
import torch.distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.utils import import_utils
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

SERVER = "scripted_engine"
GIB = 1 << 30

import_utils.is_trl_available = lambda: False  # its models moved: verl imports from where they were

_init_process_group = torch.distributed.init_process_group


def init_process_group(backend: str | None = None, **others: Any) -> Any:
    """Undo what verl makes of the names of the CPU's backend: it appears twice, which torch refuses."""
    return _init_process_group(backend="cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **others)


torch.distributed.init_process_group = init_process_group


class CpuModule(ModuleType):
    """What `torch.cuda` is elsewhere."""

    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    get_device_name = staticmethod(lambda *_: "cpu")
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    mem_get_info = staticmethod(lambda *_: (16 * GIB, 16 * GIB))
    memory_allocated = memory_reserved = staticmethod(lambda *_: 0)
    max_memory_allocated = max_memory_reserved = staticmethod(lambda *_: 0)
    set_device = synchronize = empty_cache = ipc_collect = reset_peak_memory_stats = staticmethod(lambda *_: None)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """The machine's cores in the place of one GPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuModule("cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


class ScriptedServer:
    """The engine: an actor that says what the script says, and counts how often it was given weights."""

    def __init__(self, model: str) -> None:
        from transformers import AutoTokenizer

        module, _, name = os.environ["SCRIPT"].partition(":")
        self._says = getattr(importlib.import_module(module), name)
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._steps: int | None = None
        self._loads = 0

    async def generate(self, request_id: str, prompt_ids: list[int], **others: Any) -> TokenOutput:
        text = self._says(self._tokenizer.decode(prompt_ids)) + "<|im_end|>"
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        return TokenOutput(
            token_ids=tokens,
            log_probs=[-1.0] * len(tokens),
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self._steps},
        )

    async def load(self, global_steps: int | None) -> int:
        self._steps = self._steps if global_steps is None else global_steps
        self._loads += 1
        return self._loads

    async def _do_nothing(self, **others: Any) -> None: ...

    sleep = wake_up = clear_kv_cache = abort_all_requests = resume_generation = _do_nothing


class ScriptedReplica(RolloutReplica):
    """Starts the engine."""

    async def launch_servers(self) -> None:
        server = (
            ray.remote(ScriptedServer)
            .options(name=SERVER, num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(self.model_config.path)
        )
        self.servers = [server]
        self._server_handle, self._server_address = server, SERVER


class ScriptedRollout(BaseRollout):
    """Brings the weights of the trainer to the engine."""

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        self.replica_rank, self.is_leader_rank = 0, True

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int | None = None, **others: Any) -> None:
        total = sum(float(tensor.detach().double().sum()) for _, tensor in weights)
        loads = await ray.get_actor(SERVER).load.remote(global_steps)
        print(f"[weights] {loads} {total!r}", flush=True)


RolloutReplicaRegistry.register("scripted", lambda: ScriptedReplica)
_ROLLOUT_REGISTRY["scripted", "async"] = "cpu_plugin.ScriptedRollout"
