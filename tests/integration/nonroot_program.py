"""A user without rights on this machine, who may use a Docker daemon: the API-only mode, end to end.

`python nonroot_program.py URL IMAGE HOME` imports everything (nobody may not read all folders that Python is in), gives
up root and what comes with it, runs the checks and prints what it found as one line of JSON. Its exit code is 0 only if
nothing was wrong.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread as _threads  # noqa: F401 - what is imported later would be too late
import contextlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import aiodocker as _aiodocker  # noqa: F401 - the same

import arl_tangram as tangram
from arl_tangram import ConfigurationError, DockerPool, SandboxPathError, Tangram
from arl_tangram.testing import assert_idle
from contract.sandbox_contract import mark
from integration.docker_actions import cancel_at_random, command, command_on_two
from integration.docker_managers import own_containers

NOBODY = 65_534
CANCELS = 120
BOXES = 4


def give_up_root(url: str, home: str) -> None:
    """Become nobody, with no group but the one that may use the socket."""
    socket = os.stat(url.removeprefix("unix://"))
    groups = [socket.st_gid] if socket.st_mode & stat.S_IWGRP else []
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    os.environ.update(HOME=home, TMPDIR=home)
    assert os.geteuid() != 0


async def check_contract(url: str, image: str) -> dict[str, Any]:
    """Check what the grants are, and what a sandbox promises of commands, files and grants."""
    async with Tangram(DockerPool(url=url, image=image, cores=2, memory_gib=1)) as tg:
        told = tg.describe()
        async with tangram.trajectory():
            done = await command("sh", "-c", "echo out; echo err >&2; exit 3")
            assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n"), done
            for cores, run in ((1, command), (2, command_on_two), (1, command)):
                seen = await run("env", "-u", "OMP_NUM_THREADS", "nproc")
                assert int(seen.stdout) == cores, seen
            assert (await command("cat", stdin=bytes(range(256)) * 2000)).stdout == bytes(range(256)) * 2000
            assert (await command("sleep", mark(), timeout=0.3)).timed_out
            assert await round_trip() == bytes(range(256))
        assert_idle(tg)
    with contextlib.suppress(ConfigurationError):
        async with Tangram(DockerPool(url=url, image=image, cores=2, memory_gib=1, grants="direct")):
            raise AssertionError("direct grants were given to somebody who may not write them")
    return {"described": told}


@tangram.action(cpu=1)
async def round_trip() -> bytes:
    box = tangram.current_sandbox()
    await box.write_file("deep/er/file", bytes(range(256)))
    with contextlib.suppress(SandboxPathError):
        await box.read_file("../../etc/passwd")
        raise AssertionError("a path has left the sandbox")
    return await box.read_file("deep/er/file")


async def check_cancels(url: str, image: str) -> dict[str, Any]:
    """Cancel commands at random moments; count what survived, and the sandboxes that could not be used afterwards."""
    async with Tangram(DockerPool(url=url, image=image, cores=2, memory_gib=1)) as tg:
        found = await cancel_at_random(CANCELS, BOXES, seed=5)
        assert_idle(tg)
    return {"cancels": CANCELS, "survivors": found.survivors, "unusable": found.unusable}


async def main(url: str, image: str) -> dict[str, Any]:
    found = await check_contract(url, image) | await check_cancels(url, image)
    found["left"] = await asyncio.to_thread(own_containers, url)
    return found | {"uid": os.geteuid(), "groups": os.getgroups(), "descriptors": len(os.listdir("/proc/self/fd"))}


if __name__ == "__main__":
    url, image, home = sys.argv[1:]
    Path(home).chmod(0o777)
    give_up_root(url, home)
    result = asyncio.run(main(url, image))
    print(json.dumps(result))
    sys.exit(0 if result["survivors"] == result["unusable"] == 0 else 1)
