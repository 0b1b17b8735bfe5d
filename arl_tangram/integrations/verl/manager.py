"""The agent loop manager of verl's v1 trainer, which owns the shared runtime of the job."""

from __future__ import annotations

import copy
import logging
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1 import AgentLoopManagerTQ

from arl_tangram.integrations.ray.sharing import Shared
from arl_tangram.integrations.verl.job import read_job
from arl_tangram.integrations.verl.owning import Owned, at_end_of_run, disown, own

__all__ = ["TangramAgentLoopManager", "opened", "with_loop"]

logger = logging.getLogger(__name__)

_LOOP = "arl_tangram.integrations.verl.agent_loop"


def opened(config: Any) -> Owned:
    """Check the configuration of a job, warn of what it probably does not mean, and open its runtime in this process.

    Raises:
        ConfigurationError: something in it is wrong.
        InfrastructureError: the runtime did not start in time.
    """
    job = read_job(config)
    for warning in job.warnings:
        logger.warning("%s", warning)
    return own(job.settings, int(config.actor_rollout_ref.rollout.n), threshold_of(config))


def with_loop(config: Any) -> Any:
    """Return the configuration for the workers: it has them import our loop, which is registered then.

    Else they have it only if one of their tools is ours.
    """
    config = copy.deepcopy(config)
    model = config.actor_rollout_ref.model
    given: Any = model.get("external_lib") or []
    model.external_lib = [*([given] if isinstance(given, str) else given), _LOOP]
    return config


class TangramAgentLoopManager(AgentLoopManagerTQ):
    """verl's own manager, in whose process the shared runtime lives: from before its workers until the run has ended.

    It takes the place of `AgentLoopManagerTQ` by
    `+actor_rollout_ref.rollout.agent.agent_loop_manager_class=arl_tangram.integrations.verl.TangramAgentLoopManager`,
    and is told by the block `tangram` which pools there are. The runtime is closed, with its sandboxes, when verl
    closes its transfer queue, the last thing that it does, whether training succeeds or fails.

    Raises:
        ConfigurationError: something in the configuration is wrong.
        InfrastructureError: the runtime did not start in time.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self._owned = opened(config)
        at_end_of_run(self.close, transfer_queue)
        super().__init__(with_loop(config), *args, **kwargs)

    @property
    def runtime(self) -> Shared:
        """The shared runtime of the job."""
        return self._owned.runtime

    def generate_sequences(self, prompts: Any) -> None:
        """Send prompts to the workers, which does not block; what is too old to be trained on is ended meanwhile.

        Raises:
            OwnerLostError: the runtime is gone for good: all rollouts would fail, and verl would ask for others.
        """
        self._owned.check()
        is_validation = prompts["validate"] if "validate" in prompts else False  # noqa: SIM401 - no mapping: it has no get
        if not is_validation:
            self._owned.begin([str(uid) for uid in prompts["uid"]], int(prompts["global_steps"]))
        super().generate_sequences(prompts)

    def close(self) -> None:
        """Close the runtime, and all that it holds in all processes; idempotent; it blocks."""
        disown()


def threshold_of(config: Any) -> int | None:
    """Return how many versions of the weights a group may span before verl drops it, or None if it drops none."""
    sampler = config.trainer.v1.sampler
    if config.trainer.v1.trainer_mode == "sync" or sampler.max_off_policy_strategy != "drop":
        return None
    threshold: int | None = sampler.max_off_policy_threshold
    return threshold
