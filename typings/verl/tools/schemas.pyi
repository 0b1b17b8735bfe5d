from typing import Any, ClassVar, Self

# What is used of pydantic's models, which need not be installed where types are checked.
class _Model:
    model_config: ClassVar[dict[str, Any]]
    @classmethod
    def model_validate(cls, obj: Any) -> Self: ...
    def model_dump(self, *, exclude_unset: bool = ..., exclude_none: bool = ...) -> dict[str, Any]: ...

class OpenAIFunctionPropertySchema(_Model):
    type: str | list[str]
    description: str | None
    enum: list[Any] | None

class OpenAIFunctionParametersSchema(_Model):
    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str]

class OpenAIFunctionSchema(_Model):
    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema
    strict: bool

class OpenAIFunctionToolSchema(_Model):
    type: str
    function: OpenAIFunctionSchema

class ToolResponse(_Model):
    text: str | None
    image: list[Any] | None
    video: list[Any] | None
    def __init__(
        self, *, text: str | None = ..., image: list[Any] | None = ..., video: list[Any] | None = ...
    ) -> None: ...
