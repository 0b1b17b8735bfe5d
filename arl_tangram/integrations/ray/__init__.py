"""One pool for many processes and nodes: the scheduler in a Ray actor, thin clients, an agent on each node."""

from __future__ import annotations

from arl_tangram.integrations.ray.sharing import Node, Shared, connect, share

__all__ = ["Node", "Shared", "connect", "share"]
