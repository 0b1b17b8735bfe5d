"""The breakers of a shared runtime as a client has them: it tells how calls go, and the owner refuses or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from arl_tangram.deciding import Deciding
from arl_tangram.errors import BackendDownError
from arl_tangram.integrations.ray.wire import Called, Command, Judged, Said
from arl_tangram.managers.breakers import blames_the_backend
from arl_tangram.model.lifecycle import RunningAction


class RemoteBreakers:
    """The breakers as a client sees them; a `BreakerCalls`.

    Args:
        post: sends a command to the owner.
        dispatcher: knows which quotas have one.
    """

    def __init__(self, post: Callable[[Command], None], dispatcher: Deciding) -> None:
        self._post = post
        self._dispatcher = dispatcher

    def refusal(self, quotas: Iterable[tuple[str, int]], now_s: float) -> BackendDownError | None:
        """Nothing: the owner refuses calls when they are submitted."""
        return None

    def called(
        self,
        caller: RunningAction,
        holds: Iterable[tuple[str, int]],
        takes: Iterable[tuple[str, int]],
        now_s: float,
    ) -> None:
        """Tell the owner that a running call waits for another one."""
        if self._have(holds) and (names := self._have(takes)):
            self._post(Called(caller.pending.id, names))

    def say(self, running: RunningAction, name: str, now_s: float, *, failed: bool | None) -> None:
        """Tell the owner what a body says of a call."""
        if self._have([(name, 0)]):
            self._post(Said(running.pending.id, name, failed))

    def answered(
        self,
        running: RunningAction,
        quotas: Iterable[tuple[str, int]],
        error: BaseException | None,
        now_s: float,
    ) -> None:
        """Tell the owner that a caller has its answer, and the body has not ended."""
        self._judge(running, quotas, error, is_over=False)

    def ended(
        self,
        running: RunningAction,
        quotas: Iterable[tuple[str, int]],
        error: BaseException | None,
        now_s: float,
    ) -> None:
        """Tell the owner how a call ended that has given its units back."""
        self._judge(running, quotas, error, is_over=True)

    def _judge(
        self, running: RunningAction, quotas: Iterable[tuple[str, int]], error: BaseException | None, *, is_over: bool
    ) -> None:
        if self._have(quotas):
            failed = None if error is not None and not blames_the_backend(error) else error is not None
            self._post(Judged(running.pending.id, is_over, failed, type(error).__name__))

    def _have(self, quotas: Iterable[tuple[str, int]]) -> tuple[str, ...]:
        """Return the names of those that have a breaker."""
        known = self._dispatcher.topology.quotas
        return tuple(name for name, _ in quotas if known[name][0].breaker)
