"""What one client says of how its calls went, told to the breakers of their quotas."""

from __future__ import annotations

from arl_tangram.integrations.ray.owner.breaking import OwnerBreakers
from arl_tangram.integrations.ray.wire import Called, Judged, Said
from arl_tangram.model.lifecycle import RunningAction


class Judging:
    """Waits for the word on each call that its client ends, which comes after the end.

    Args:
        breakers: those of the quotas.
    """

    def __init__(self, breakers: OwnerBreakers) -> None:
        self._breakers = breakers
        self._unjudged: dict[int, RunningAction] = {}

    def ends(self, local: int, running: RunningAction) -> None:
        """Its client ends a call, and says then how it went."""
        if self._breakers.concerns(running.pending.demand):
            self._unjudged[local] = running

    def ended(self, local: int, running: RunningAction) -> None:
        """A call has ended: if not by its client, nobody will say how it went."""
        if local not in self._unjudged:
            self._breakers.over(running)

    def take(self, command: Called | Said | Judged, running: RunningAction | None) -> None:
        """Do what the client says of a call.

        Args:
            command: what it says.
            running: the call, if it runs.
        """
        match command:
            case Called() if running is not None:
                self._breakers.called(running, command.quotas)
            case Said() if running is not None:
                self._breakers.said(running, command.quota, command.failed)
            case Judged() if command.is_over:
                if (ended := self._unjudged.pop(command.id, None)) is not None:
                    self._breakers.judged(ended, command)
            case Judged() if running is not None:
                self._breakers.judged(running, command)
            case _:
                pass

    def stop(self) -> None:
        """Wait for no word any more."""
        for running in self._unjudged.values():
            self._breakers.over(running)
        self._unjudged.clear()
