"""A process that lifts all limits of time when the trainer is gone, so that what was suspended then is killed at once.

The keepers and guards of suspended sandboxes notice that, too, but have a hundredth of a core for all that they have to
do about it, and share that with what they are to kill: it takes many seconds, and longer the more cores there are.
"""

from __future__ import annotations

import asyncio
import os

from arl_tangram.managers.channel import Channel
from arl_tangram.managers.environment import DEFAULT_PATH, SANDBOX_VARIABLE
from arl_tangram.managers.host.hierarchy import FILES

CLOSE_LIMIT_S = 2.0

# Each message is a number and a pattern of groups. The last one ends with the socket, which the trainer holds until it
# closes this, or dies. `dd` reads a message as a whole, which `read` does not.
LIFT = """\
last=0
while line=$(dd bs=8192 count=1 2>/dev/null) && [ "$line" ]; do
  number=${line%% *}
  eval "groups_$number=\\${line#* }"
  [ "$number" -le "$last" ] || last=$number
done
IFS=
while [ "$last" -ge 0 ]; do
  eval "groups=\\$groups_$last"
  for group in $groups; do
    echo "$2" >"$group/$1"
    echo "$4" >"$group/$3"
  done
  last=$((last - 1))
done
"""


class QuotaLifter:
    """Stands by from when it is made; within the event loop, which must outlive it.

    Args:
        version: of the cgroups.
        owner: the name under which sandboxes are created.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, version: int, owner: str) -> None:
        files = FILES[version]
        argv = ("/bin/sh", "-c", LIFT, "sh", files.quota, files.no_quota, files.weight, files.usual_weight)
        self._channel = Channel(argv, env={"PATH": DEFAULT_PATH, SANDBOX_VARIABLE: f"{owner}.lifter"}, entrances=())
        self._numbers: dict[str, int] = {}
        self._unused: list[int] = []

    def watch(self, key: str, groups: str | os.PathLike[str]) -> None:
        """Have it lift the limits of these cgroups of the controller `cpu`.

        Args:
            key: under which they can be forgotten.
            groups: the path of one, or a pattern of the shell for several, as they are then.
        """
        self._numbers[key] = number = self._unused.pop() if self._unused else len(self._numbers)
        self._channel.send([b"%d " % number + os.fsencode(groups)])

    def forget(self, key: str) -> None:
        """Leave these alone, which are gone; those that it does not know are no error."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._unused.append(number)
            self._channel.send([b"%d " % number])

    async def aclose(self) -> None:
        """End it, once the sandboxes are gone; bounded."""
        self._channel.close()
        await asyncio.wait([self._channel.exited], timeout=CLOSE_LIMIT_S)
        self._channel.kill()
        await asyncio.wait([self._channel.exited], timeout=CLOSE_LIMIT_S)
        self._channel.release()
