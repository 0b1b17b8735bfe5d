"""Commands in containers that are cancelled at any moment: nothing survives, and the sandboxes go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from docker_images import Images
from integration.docker_actions import cancel_at_random, docker_runtime

CANCELS = 120


def session_groups() -> list[Path]:
    """Return the cgroups that sessions have had inside those of containers."""
    return list(Path("/sys/fs/cgroup").glob("**/arl_tangram-[0-9]*"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("grants", "channel"), [("direct", "session"), ("api", "session"), ("direct", "exec")], ids=lambda each: each
)
async def test_commands_that_are_cancelled_at_random_leave_nothing(
    docker_url: str, images: Images, grants: str, channel: str
) -> None:
    before = set(await asyncio.to_thread(session_groups))
    async with docker_runtime(docker_url, images.busybox, grants=grants, channel=channel):
        found = await cancel_at_random(CANCELS, boxes=4, seed=120)
        assert (found.survivors, found.unusable) == (0, 0)
    assert set(await asyncio.to_thread(session_groups)) <= before
