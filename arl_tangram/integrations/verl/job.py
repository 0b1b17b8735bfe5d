"""What a job's configuration says of us, read as verl reads it, and checked: by its manager, or before its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl.tools.tool_registry import load_all_tools
from verl.utils.import_utils import resolve_config_path

from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.integrations.verl.checks import check_job
from arl_tangram.integrations.verl.settings import Settings, read_settings

__all__ = ["Job", "read_job"]

_SHAPE = "under tools:, each has a class_name: that can be imported, and config: with type: native"


@dataclass(frozen=True, slots=True)
class Job:
    """What a configuration says.

    Attributes:
        settings: its block `tangram`.
        tools: those that its workers will have.
        warnings: what it probably does not mean.
    """

    settings: Settings
    tools: list[Any]
    warnings: list[str]


def read_job(config: Any) -> Job:
    """Read and check the configuration of a whole job; nothing is opened.

    Raises:
        ConfigurationError: something in it is wrong.
        DefinitionError: what a tool takes cannot be told to a model.
    """
    settings = read_settings(config)
    multi_turn = config.actor_rollout_ref.rollout.multi_turn
    paths = [multi_turn.tool_config_path, multi_turn.function_tool_path]
    tools = _tools(*paths)
    return Job(settings, tools, check_job(config, settings, tools))


def _tools(*paths: str | None) -> list[Any]:
    """Return the tools of verl's files.

    Raises:
        TangramError: one of ours is declared in a wrong way.
        ConfigurationError: verl cannot load them; the files are named.
    """
    try:
        return load_all_tools(*[resolve_config_path(path) if path else None for path in paths])
    except TangramError:
        raise
    except Exception as error:
        files = " and ".join(path for path in paths if path)
        why = " ".join(str(error).split())  # omegaconf's have several lines
        text = f"verl cannot load the tools of {files}: {type(error).__name__}: {why}; {_SHAPE}"
        raise ConfigurationError(text) from error
