from typing import Any

class KVBatchMeta:
    keys: list[str]
    tags: list[dict[str, Any]]
    partition_id: str | None
    extra_info: dict[str, Any] | None

def close() -> None: ...
