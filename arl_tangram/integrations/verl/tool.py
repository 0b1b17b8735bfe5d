"""An action as a tool of verl, named in its YAML file of tools."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.rollout_trace import rollout_trace_op

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.verl.schemas import verl_schema
from arl_tangram.integrations.verl.using import use

_KEYS = ("type", "action", "name", "timeout_s", "queue_timeout_s", "given", "runtime")
# What people write here because a tool elsewhere has it; each process would have limits of its own.
_PER_PROCESS = frozenset(
    {"pools", "pool", "cores", "memory_gib", "quota", "quotas", "num_workers", "rate_limit", "tangram"}
)


class TangramTool(BaseTool):
    """A tool of verl whose calls are calls of an action.

    Making one needs no runtime and touches nothing but the module of the action: verl makes its tools in every worker,
    and in the process that reads the data. With `TangramToolAgentLoop`, all calls of a rollout are in one trajectory;
    in verl's own loop, each call has one of its own.

    Args:
        config: what stands under `config:` in the YAML file.

            - `type`: "native", as for every tool of verl;
            - `action`: the action, "package.module:name";
            - `name`: what the model calls it; the name of the action if there is none;
            - `timeout_s`: seconds that a call may run, if the action has no `timeout` of its own, or another one;
            - `queue_timeout_s`: seconds that it may wait to run, 600 if neither this nor the action says so;
            - `given`: a list of parameters that come from the dataset and not from the model: from
              `extra_info.tools_kwargs.<name>.create_kwargs` of the sample;
            - `runtime`: the name of the shared runtime; if there is none, that of the trainer's `tangram.name` in our
              loop, and "tangram" in verl's own.
        tool_schema: what stands under `tool_schema:` there; made from the action's signature if there is nothing.

    Raises:
        ConfigurationError: a key is missing or unknown, or the action cannot be imported; all is named.
        DefinitionError: a parameter of the action has a type that no schema can express.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        where = f"{type(self).__name__}({config.get('action', '')!s})"
        _check_keys(config, where)
        self.runtime: str | None = config.get("runtime")
        self.tool = Tool.declare(
            config["action"],
            name=config.get("name"),
            timeout_s=config.get("timeout_s"),
            queue_timeout_s=config.get("queue_timeout_s"),
            given=config.get("given") or (),
            where=where,
        )
        if tool_schema is not None:
            _check_schema(tool_schema, self.tool, config.get("name"), where)
        self._given: dict[str, Mapping[str, Any]] = {}  # of each call that has not been released
        super().__init__(config, tool_schema)

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        """Return the schema made from the signature of the action."""
        return verl_schema(self.tool.schema)

    def check_sample(self, create_kwargs: Mapping[str, Any]) -> None:
        """Check that a sample of the dataset brings what `given` says it does.

        Raises:
            ConfigurationError: something is missing; the tool and the parameters are named.
        """
        if missing := self.tool.lacking(create_kwargs):
            raise ConfigurationError(
                f"the tool {self.name!r} takes {', '.join(missing)} from the dataset (given:), and this sample has no "
                f"such thing in extra_info.tools_kwargs.{self.name}.create_kwargs, which holds "
                f"{', '.join(map(str, create_kwargs)) or 'nothing'}"
            )

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Keep what the dataset gives to this call. Nothing is acquired: verl does not release what failed here."""
        instance_id = instance_id or uuid.uuid4().hex
        self._given[instance_id] = kwargs.get("create_kwargs") or {}
        return instance_id, ToolResponse()

    @rollout_trace_op
    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Call the action and return what the model is to read; what went wrong in the call is a short text, too.

        Raises:
            InfrastructureError: in a rollout, which ends with it.
            NoRuntimeError: there is no runtime to call it on.
        """
        text = await use(self.tool, parameters, self._given.get(instance_id, {}), self.runtime)
        return ToolResponse(text=text), None, {}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the call. It never raises: that would fail the rollout, and in some workers the batch."""
        self._given.pop(instance_id, None)


def _check_keys(config: Mapping[str, Any], where: str) -> None:
    """Check which keys there are."""
    problems: list[str] = []
    if unknown := [key for key in config if key not in _KEYS]:
        problems.append(f"unknown: {', '.join(unknown)}")
    if not isinstance(config.get("action"), str):
        problems.append('missing: action, as "package.module:name"')
    if not isinstance(runtime := config.get("runtime"), str | None):
        problems.append(f"runtime is the name of a shared runtime, not {runtime!r}")
    if not problems:
        return
    hint = ""
    if _PER_PROCESS.intersection(unknown):
        hint = (
            "; pools and quotas are not given to a tool: verl makes it once per worker, so that each worker would have "
            "limits of its own. Give them to the trainer, with +tangram.pools=package.module:function"
        )
    raise ConfigurationError(f"{where}: {'; '.join(problems)}; it takes {', '.join(_KEYS)}{hint}")


def _check_schema(schema: OpenAIFunctionToolSchema, tool: Tool, name: str | None, where: str) -> None:
    """Check that a schema of the user's own fits the action."""
    if name is not None and schema.function.name != name:
        raise ConfigurationError(f"{where}: its name is {name!r}, and {schema.function.name!r} in its tool_schema")
    taken = tool.schema["function"]["parameters"]["properties"]
    if unknown := [parameter for parameter in schema.function.parameters.properties if parameter not in taken]:
        raise ConfigurationError(
            f"{where}: its tool_schema has the parameters {', '.join(unknown)}, which the model cannot give to the "
            f"action; it takes {', '.join(taken) or 'none'}"
        )
