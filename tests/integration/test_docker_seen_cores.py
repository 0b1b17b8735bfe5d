"""The cores that programs see in a container are those that their action was granted, in each call anew."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

import arl_tangram as tangram
from arl_tangram.machine_image import image_of_this_machine, interpreter
from arl_tangram.managers.docker.declared import Grants

PYTHON = interpreter()
WORKERS_TEST = (
    b"import os\ndef test_workers(): print(os.environ['PYTEST_XDIST_WORKER_COUNT'], file=open('workers', 'w'))\n"
)


@dataclass(frozen=True)
class Seen:
    nproc: int
    affinity: int
    workers: int


async def look() -> Seen:
    """Count the cores as programs do: nproc, sched_getaffinity, and pytest-xdist, which asks psutil where it can."""
    box = tangram.current_sandbox()
    await box.write_file("test_workers.py", WORKERS_TEST)
    # Not as the exported variable says, which tells the same.
    nproc = await box.exec(["env", "-u", "OMP_NUM_THREADS", "nproc"])
    affinity = await box.exec([PYTHON, "-c", "import os; print(len(os.sched_getaffinity(0)))"])
    has_psutil = await box.exec([PYTHON, "-c", "import psutil"])
    assert has_psutil.exit_code == 0, has_psutil.stderr.decode()
    tests = await box.exec([PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "test_workers.py"])
    assert tests.exit_code == 0, (tests.stdout + tests.stderr).decode()
    return Seen(int(nproc.stdout), int(affinity.stdout), int(await box.read_file("workers")))


on_one = tangram.action(cpu=1)(look)
on_two = tangram.action(cpu=2)(look)
on_half = tangram.action(cpu=0.5)(look)


@pytest.mark.parametrize("grants", ["direct", "api"])
async def test_nproc_affinity_and_xdist_see_each_grant_in_one_trajectory(docker_url: str, grants: Grants) -> None:
    assert len(os.sched_getaffinity(0)) >= 2
    packages = ("pytest", "pytest-xdist", "psutil")
    async with (
        image_of_this_machine("arl_tangram-test-xdist", packages, url=docker_url, tell=lambda *_: None) as image,
        tangram.Tangram(tangram.DockerPool(cores=2, image=image, url=docker_url, grants=grants)),
        tangram.trajectory(),
    ):
        assert await on_one() == Seen(1, 1, 1)
        assert await on_two() == Seen(2, 2, 2)
        assert await on_half() == Seen(1, 1, 1)
        assert await on_two() == Seen(2, 2, 2)
