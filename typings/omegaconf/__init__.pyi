from typing import Any

class OmegaConf:
    @staticmethod
    def create(obj: Any = ..., parent: Any = None, flags: dict[str, bool] | None = None) -> Any: ...
