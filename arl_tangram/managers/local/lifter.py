"""A process that lifts all limits of time when the trainer is gone, so that what was suspended then is killed at once.

The keepers of suspended sandboxes notice that, too, but have a hundredth of a core for all that they have to do about
it, and share that with what they are to kill: it takes many seconds, and longer the more cores there are.
"""

from __future__ import annotations

import asyncio

from arl_tangram.managers.environment import DEFAULT_PATH, SANDBOX_VARIABLE
from arl_tangram.managers.host.cgroup import CgroupTree
from arl_tangram.managers.host.hierarchy import FILES
from arl_tangram.managers.local.channel import Channel

CLOSE_LIMIT_S = 2.0

# `read` ends with the socket, which the trainer holds until it closes this, or dies.
LIFT = 'read -r _; for group in "$1"/*/; do echo "$3" >"$group$2"; echo "$5" >"$group$4"; done'


class QuotaLifter:
    """Stands by from when it is made; within the event loop, which must outlive it.

    Args:
        tree: the cgroups of the sandboxes, with the controller `cpu`.
        owner: the name under which sandboxes are created.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, tree: CgroupTree, owner: str) -> None:
        files = FILES[tree.version]
        lifted = (files.quota, files.no_quota, files.weight, files.usual_weight)
        argv = ("/bin/sh", "-c", LIFT, "sh", str(tree.folders["cpu"]), *lifted)
        self._channel = Channel(argv, env={"PATH": DEFAULT_PATH, SANDBOX_VARIABLE: f"{owner}.lifter"}, entrances=())

    async def aclose(self) -> None:
        """End it, once the sandboxes are gone; bounded."""
        self._channel.close()
        await asyncio.wait([self._channel.exited], timeout=CLOSE_LIMIT_S)
        self._channel.kill()
        await asyncio.wait([self._channel.exited], timeout=CLOSE_LIMIT_S)
        self._channel.release()
