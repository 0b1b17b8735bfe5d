"""A trainer that is killed, run as `python -m arl_tangram.bench.resize.trainer MARK [options] ROOT`.

It starts busy processes in a sandbox, suspends it, tells on standard output that it has, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from arl_tangram.bench.faults.where import Where
from arl_tangram.bench.resize.ending import start
from arl_tangram.bench.resize.place import bed


async def main(where: Where, mark: str) -> None:
    """Have a suspended sandbox for ever."""
    async with bed(where, mark) as made, made.lease(1) as lease:
        running = await start(made)
        await made.resize(lease, 0)
        print(json.dumps({"suspended": True}), flush=True)
        await running


if __name__ == "__main__":
    asyncio.run(main(Where.read(sys.argv[2:])[0], sys.argv[1]))
