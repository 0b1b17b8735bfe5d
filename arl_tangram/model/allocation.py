"""What a running action was granted, as the user sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Allocation:
    """The grant of one running action: a value that can be replaced, not a constant of the action.

    Attributes:
        cores: cores granted, whole or a fraction; 0 for none.
        core_ids: the host's numbers of the cores it runs on; empty where nothing is pinned, and while it is suspended.
        memory_gib: memory reserved by the action itself.
        quota: calls granted per quota.
        node: the name of the node whose cores or memory these are, if the pool has several; else None.
        service: the name of the service that it uses, or None.
        devices: the GPUs of that service, or those that it has to itself: their UUIDs, or names such as `cpu:0`.
        max_units: whole cores (rounded up) that it may have at most while it runs, where they can change
            (`Elastic(..., resizable=True)` in a sandbox of a pool with `share=`); else those that it has. Start as many
            workers.
    """

    cores: float = 0
    core_ids: tuple[int, ...] = ()
    memory_gib: float = 0
    quota: Mapping[str, float] = field(default_factory=dict[str, float])
    node: str | None = None
    service: str | None = None
    devices: tuple[str, ...] = ()
    max_units: int = 0
