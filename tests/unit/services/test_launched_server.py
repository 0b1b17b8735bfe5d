"""The server of an engine that we start: it is not forgotten before it is gone."""

from __future__ import annotations

import pytest

from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.remote import Door
from arl_tangram.services.engine.server import LaunchedServer

pytestmark = pytest.mark.looptime


class Undying:
    """A server that is gone at the third try."""

    def __init__(self) -> None:
        self.tries = 0

    async def stop(self, grace_s: float) -> bool:
        self.tries += 1
        return self.tries > 2


async def test_one_that_cannot_be_killed_is_tried_again() -> None:
    door = Door("http://127.0.0.1")
    limits = Limits(transition_s=1.0, settle_s=1.0, start_s=1.0, stop_s=1.0)
    server = LaunchedServer(
        "judge", ["x"], {}, dop=1, url=None, health_path="/", door=door, limits=limits, on_end=lambda _: None
    )
    server._server = undying = Undying()  # type: ignore[assignment]
    for begin in (server.stop, server.start):
        with pytest.raises(StillHeldError, match="judge: something of its server cannot be killed now"):
            await begin()
    await server.stop()
    await server.stop()
    assert undying.tries == 3
    await door.aclose()
