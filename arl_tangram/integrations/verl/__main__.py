"""Check a job before it is started: `python -m arl_tangram.integrations.verl`, and the words for `main_ppo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.verl import supported

_MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


def main(words: Sequence[str]) -> int:
    """Check a configuration, print its tools and what is wrong, and return 0, or 1 for an error."""
    parser = argparse.ArgumentParser("python -m arl_tangram.integrations.verl", description=__doc__)
    parser.add_argument("--config-name", default="ppo_trainer")
    parser.add_argument("--config-path", help="an absolute path; that of verl's own if it is not said")
    parser.add_argument("settings", nargs="*", help="as verl.trainer.main_ppo takes them")
    given = parser.parse_intermixed_args(words)
    try:
        supported.check()
        print(_told(_composed(given.config_path, given.config_name, given.settings)))
    except TangramError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _composed(path: str | None, name: str, settings: list[str]) -> Any:
    """Return the configuration that verl would have.

    Raises:
        ConfigurationError: Hydra refuses it.
    """
    from hydra import compose, initialize_config_dir, initialize_config_module  # noqa: PLC0415 - it comes with verl
    from hydra.errors import HydraException  # noqa: PLC0415

    try:
        if path is None:
            where = initialize_config_module("verl.trainer.config", version_base=None)
        else:
            where = initialize_config_dir(path, version_base=None)
        with where:
            return compose(name, settings)
    except HydraException as error:
        raise ConfigurationError(f"Hydra refuses it: {type(error).__name__}: {error}") from error


def _told(config: Any) -> str:
    """Check a configuration, and return what it means.

    Raises:
        TangramError: something is wrong.
    """
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415 - it comes with verl

    from arl_tangram.integrations.verl.job import read_job  # noqa: PLC0415 - verl's version is looked at before

    try:
        job = read_job(config)
    except OmegaConfBaseException as error:
        raise ConfigurationError(f"the configuration cannot be read: {type(error).__name__}: {error}") from error
    if config.actor_rollout_ref.rollout.agent.get("agent_loop_manager_class") is None:
        ours = "arl_tangram.integrations.verl.TangramAgentLoopManager"
        raise ConfigurationError(f"nothing would open the runtime: say +{_MANAGER}={ours}")
    lines = [_line(tool) for tool in job.tools] or ["no tools: actor_rollout_ref.rollout.multi_turn.tool_config_path"]
    lines += [f"warning: {warning}" for warning in job.warnings]
    return "\n".join([*lines, f"right, as far as can be seen before its start: tangram.pools={job.settings.pools}"])


def _line(tool: Any) -> str:
    own: object = getattr(tool, "tool", None)
    if not isinstance(own, Tool):
        return f"tool {tool.name}: not ours"
    spec = own.action.spec
    return f"tool {tool.name}: {spec.name}, runs for {spec.timeout:g} s at most, and waits for {spec.queue_timeout:g} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
