"""The event loop that a service belongs to: it is called there, and nowhere else."""

from __future__ import annotations

import asyncio

from arl_tangram.errors import WrongLoopError


class OwnLoop:
    """The event loop that runs where this is made.

    Args:
        name: of the service, for the message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Check that this loop is the one that runs here.

        Raises:
            WrongLoopError: another one is.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError(f"service {self._name!r} belongs to another event loop, that of its action")
