"""The commonest user is not root: the API-only mode as somebody who may use the daemon's socket and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from docker_images import Images
from integration.nonroot_program import CANCELS, NOBODY

TESTS = Path(__file__).parent.parent


@pytest.mark.timeout(300)
async def test_somebody_without_rights_uses_sandboxes_through_the_daemon(docker_url: str, images: Images) -> None:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as home:
        program = await asyncio.create_subprocess_exec(
            sys.executable, str(TESTS / "integration" / "nonroot_program.py"), docker_url, images.busybox, home,
            env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await program.communicate()
    assert program.returncode == 0, err.decode() + out.decode()
    found = json.loads(out.splitlines()[-1])
    assert (found["cancels"], found["survivors"], found["unusable"]) == (CANCELS, 0, 0)
    assert found["uid"] == (NOBODY if os.geteuid() == 0 else os.geteuid())
    assert len(found["groups"]) <= 1
    assert "API" in found["described"] or "daemon" in found["described"]
    assert found["left"] == []
