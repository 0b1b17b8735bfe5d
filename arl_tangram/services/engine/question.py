"""Asks an engine the question whose answer is known once it was given for the first time."""

from __future__ import annotations

import asyncio
from typing import Any

from arl_tangram.errors import RestoreError
from arl_tangram.services.engine.probe import Probe, difference
from arl_tangram.services.engine.remote import Door, RefusedFault
from arl_tangram.services.servers.answers import aborted


class Question:
    """A question to one engine.

    Args:
        door: the connections to its server.
        probe: what is asked; None for nothing.
        model: what the server calls its model; None to ask for that first.

    Attributes:
        model: as above, once it is known.
    """

    def __init__(self, door: Door, probe: Probe | None, model: str | None) -> None:
        self._door = door
        self._probe = probe
        self._known: Any = None
        self.model = model

    async def ask(self) -> None:
        """Ask; the first answer is the one that all later ones must be.

        Raises:
            RemoteFault: no proper answer.
            RestoreError: another one than before.
        """
        if self.model is None:
            self.model = await self._first_model()
        probe = self._probe
        if probe is None:
            return
        answer = await self._answer(probe)
        if self._known is None:
            self._known = answer
        elif (what := difference(self._known, answer, tolerance=probe.tolerance)) is not None:
            raise RestoreError(f"it does not answer {probe.path} as it did before: {what}")

    async def _answer(self, probe: Probe) -> Any:
        body = dict(probe.body) if self.model is None else {"model": self.model, **probe.body}
        asking = asyncio.get_running_loop().create_task(self._door.post(probe.path, body))
        try:
            await asyncio.wait([asking], timeout=probe.limit_s)
            if not asking.done():
                raise RefusedFault(f"{probe.path} was not answered within {probe.limit_s:g} s", 504)
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        answer: object = asking.result()
        if answer is None:  # it would tell nothing of what comes back
            raise RefusedFault(f"{probe.path} was answered with nothing", 200)
        if aborted(answer):
            raise RefusedFault(f"{probe.path} was cut off (finish_reason 'abort')", 503)
        return answer

    async def _first_model(self) -> str | None:
        told: Any = await self._door.get("/v1/models")
        try:
            return str(told["data"][0]["id"])
        except (LookupError, TypeError):
            return None
