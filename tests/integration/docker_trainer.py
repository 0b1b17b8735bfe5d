"""A trainer of its own process, for tests that kill it: runs one command in a container, and says which container.

`python docker_trainer.py URL IMAGE GRANTS SCRIPT [suspended]`; the last word has it suspended as soon as a line comes.
"""

from __future__ import annotations

import asyncio
import sys

from arl_tangram import DockerPool
from arl_tangram.managers.docker.sandbox import DockerSandbox


async def main(url: str, image: str, grants: str, script: str, suspended: str = "") -> None:
    manager = DockerPool(
        url=url, image=image, cores=2, memory_gib=1, grants=grants, share="resize" if suspended else None
    ).manager()  # type: ignore[arg-type]
    await manager.prepare()
    await manager.start()
    sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
    assert isinstance(sandbox, DockerSandbox)
    lease = manager.lease(1000, sandbox)
    print(sandbox.container.id, flush=True)
    running = asyncio.ensure_future(sandbox.exec(["sh", "-c", script]))
    if suspended:
        await asyncio.to_thread(sys.stdin.readline)
        lease.resize(0)
        print(suspended, flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
