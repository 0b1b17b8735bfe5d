"""Removes the containers that owners have left on a daemon: dead ones, and those of this process that have closed."""

from __future__ import annotations

import logging

from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.containers import Containers
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.labels import OWNER, sweep

# Daemons and owners of this process that have closed and left containers there: the process lives, they do not.
_abandoned: set[tuple[str, str]] = set()

_logger = logging.getLogger(__name__)


async def remove_leftovers(engine: Engine, containers: Containers, *, said: str) -> None:
    """Remove what others have left behind; never raises.

    Args:
        engine: the daemon.
        containers: what removes them.
        said: what the daemon is called in messages.
    """
    try:
        removed = await sweep(engine)
        for url, owner in sorted(_abandoned):
            if url == engine.url and not await containers.remove_all({OWNER: owner}):
                _abandoned.discard((url, owner))
    except DaemonError as error:
        _logger.warning("what dead owners may have left on %s cannot be removed: %s", said, error)
    else:
        if removed:
            _logger.info("%d containers of dead owners were removed from %s", removed, said)


async def remove_own(engine: Engine, containers: Containers, *, owner: str, said: str) -> None:
    """Remove all containers of an owner that closes, and tell of those that stay; never raises.

    Args:
        engine: the daemon.
        containers: what removes them.
        owner: the name under which they were created.
        said: what the daemon is called in messages.
    """
    try:
        left = await containers.remove_all({OWNER: owner})
    except DaemonError as error:
        left = list(containers.left)
        _abandoned.add((engine.url, owner))
        _logger.warning("%s does not say which containers are left: %s", said, error)
    if left:
        _abandoned.add((engine.url, owner))
    for container_id in left:
        _logger.warning(
            "container %s of %s is left behind; the next start of a DockerPool there removes it, and so does "
            "`python -m arl_tangram doctor`",
            container_id,
            said,
        )
