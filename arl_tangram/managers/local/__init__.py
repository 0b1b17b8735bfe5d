"""Sandboxes and cores of this machine."""

from __future__ import annotations

from arl_tangram.managers.local.pool import LocalPool

__all__ = ["LocalPool"]
