"""Commands in containers that are cancelled at any moment: nothing survives, and the sandboxes go on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from docker_images import Images
from integration.docker_actions import cancel_at_random, docker_runtime


def groups_of(containers: list[str]) -> list[Path]:
    """Return the cgroups of containers, and those inside of them, that are there."""
    # Not with glob, which fails when a folder of somebody else's goes away.
    folders = [Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup")]
    return [folder for folder in folders if any(each in folder.name for each in containers)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("grants", "channel", "cancels"),
    [("direct", "session", 120), ("api", "session", 120), ("direct", "exec", 40)],
    ids=["direct", "api", "gated"],
)
async def test_commands_that_are_cancelled_at_random_leave_nothing(
    docker_url: str, images: Images, grants: str, channel: str, cancels: int
) -> None:
    async with docker_runtime(docker_url, images.busybox, grants=grants, channel=channel):
        found = await cancel_at_random(cancels, boxes=4, seed=120)
        assert (found.survivors, found.unusable) == (0, 0)
    assert await asyncio.to_thread(groups_of, found.containers) == []
