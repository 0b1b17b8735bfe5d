"""Sandboxes in Docker containers, on one daemon or several."""

from __future__ import annotations

from arl_tangram.managers.docker.pool import DockerHost, DockerPool

__all__ = ["DockerHost", "DockerPool"]
