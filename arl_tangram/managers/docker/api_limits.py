"""The limits of a container of another machine, or of one whose cgroups we may not write, changed by its daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.absence import DaemonAwayError
from arl_tangram.managers.docker.allotment import (
    LOOK_INSIDE,
    SUSPENDED,
    Allotment,
    Wish,
    allotment_of,
    check_seen_inside,
)
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.limits import Shell
from arl_tangram.managers.host.cgroup import PERIOD_US, cpulist
from arl_tangram.managers.host.hierarchy import FILES

IDLE_AFTER_S = 0.25
AGAIN_S = 5.0  # after an update that failed, of which no command hears
GIVE_UP_S = 8.0  # after the first one of a running action that failed: the third one, unless its cores change meanwhile
LOOK_LIMIT_S = 10.0
CLOSE_LIMIT_S = 1.0
RUSH_LIMIT_S = 3.0
DYING = "marked for removal"  # which daemons tell as a failure of their own
LEAST_SHARES, USUAL_SHARES = int(FILES[1].least_weight), int(FILES[1].usual_weight)  # daemons translate for version 2

_logger = logging.getLogger(__name__)


class Updater(Protocol):
    """A daemon, as far as limits are concerned."""

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        """Change the limits of a container; no quota is -1, no cores and no shares are those that it has.

        Raises `DaemonError`, at its own deadline at the latest.
        """
        ...


class ApiLimits:
    """Has a daemon change the limits of a container: one change at a time, only the one that was wanted last.

    An update that has begun is never given up: the daemon would do it nevertheless, at any time. To be idle is asked
    for a moment later, so that a sandbox whose next action comes at once, with the same grant, needs no update at all.

    What the daemon says is not believed before the container has told the same, once for each action: nothing of that
    action runs in it yet. Later, there may be no room for another process in it, or no time.

    Args:
        engine: the daemon.
        container_id: which container, created with the allotment of an idle one.
        idle_cores: asks for the cores of the pool, which an idle container may use.
        idle_after_s: how long after its last grant a container is made idle.
    """

    is_direct = False

    def __init__(
        self,
        engine: Updater,
        container_id: str,
        *,
        idle_cores: Callable[[], Sequence[int]],
        idle_after_s: float = IDLE_AFTER_S,
    ) -> None:
        self._engine = engine
        self._id = container_id
        self._idle_cores = idle_cores
        self._idle_after_s = idle_after_s
        self._wish: Wish = None
        self._rushing = 0
        self._was_last = False  # it may have the least weight
        self._in_effect: Allotment | None = allotment_of(None, idle_cores())  # None: not known
        self._failure: InfrastructureError | None = None  # of what is wanted now
        self._later: asyncio.TimerHandle | None = None
        self._may_try_again = True
        self._work: asyncio.Task[None] | None = None
        self._failing_since_s: float | None = None  # what a running action is to have; None: it has that
        self._tell_granted: Callable[[], None] = lambda: None
        self._tell_failed: Callable[[InfrastructureError], None] = lambda _: None
        self._shell: Shell | None = None
        self._is_seen = False  # inside, since the last action began
        self._closed = False
        self._loop = asyncio.get_running_loop()  # of which `want` may be called outside

    def want(self, wish: Wish) -> None:
        """Remember it, and begin; see `Limits.want`."""
        if self._closed:  # a lease that outlives its sandbox gives back what nobody needs
            return
        before, self._wish = self._wish, wish
        if before is None:
            self._is_seen = False
            self._failing_since_s = None
        self._failure = None
        self._may_try_again = True
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if wish is None and before != SUSPENDED and self._in_effect is not None:
            self._later = self._loop.call_later(self._idle_after_s, self._begin_after_all)
        elif not self._begin():
            self._tell_if_granted()

    async def settled(self) -> None:
        """Wait for the daemon, and for the look inside; see `Limits.settled`."""
        while self._wish is not None:
            if self._failure is not None:
                raise self._failure
            if not self._begin():
                return
            await self._worked()

    @contextlib.asynccontextmanager
    async def rush(self) -> AsyncGenerator[None]:
        """Have the quota of a suspended container lifted for a while; see `Limits.rush`."""
        self._rushing += 1
        try:
            if self._wish == SUSPENDED:
                self._failure = None
                with contextlib.suppress(OSError):  # also when that takes too long: nothing is lost but time
                    async with asyncio.timeout(RUSH_LIMIT_S):
                        await self.settled()
            yield
        finally:
            self._rushing -= 1
            unheard = self._failure is not None and self._later is None
            if self._wish == SUSPENDED or unheard:
                self._failure = None
                self._begin()

    def session_group(self, number: int) -> None:
        """Return None: cgroups of other machines, or of other users, are not ours to write."""

    def cpu_s(self) -> None:
        """Return None: they are not ours to read either."""

    def forget(self) -> None:
        """Ask for the next wish even if it is the one before; see `Limits.forget`."""
        self._in_effect = None
        self._is_seen = False

    def listen(self, on_granted: Callable[[], None], on_failed: Callable[[InfrastructureError], None]) -> None:
        """Take who is told what becomes of grants; see `Limits.listen`."""
        self._tell_granted, self._tell_failed = on_granted, on_failed

    def see_inside(self, shell: Shell) -> None:
        """Take what runs a script of ours in the container; see `Limits.see_inside`."""
        self._shell = shell

    async def aclose(self) -> None:
        """Wait for an update on its way, for a second at most; see `Limits.aclose`."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
        if self._work is not None:
            await asyncio.wait([self._work], timeout=CLOSE_LIMIT_S)
            self._work.cancel()

    async def _worked(self) -> None:
        work = self._work  # another one may follow while this one is waited for
        if work is not None:
            await asyncio.wait([work])
            if not work.cancelled():
                work.result()

    def _wanted(self) -> Allotment | None:
        """Return what is to be in effect; None leaves it as it is."""
        if self._rushing and self._wish == SUSPENDED:
            return Allotment((), None)
        return None if self._later is not None else allotment_of(self._wish, self._idle_cores())

    def _begin(self) -> bool:
        """Have the work done if there is any; return whether there is."""
        if self._work is not None and not self._work.done():
            return True
        if self._closed or self._wanted() in (None, self._in_effect):
            return False
        self._work = self._loop.create_task(self._catch_up(), name=f"limits of {self._id[:12]}")
        return True

    def _begin_after_all(self) -> None:
        self._later = self._failure = None
        self._begin()

    async def _catch_up(self) -> None:
        """Update until what is in effect is what is wanted, or that fails."""
        while not self._closed and (wanted := self._wanted()) is not None and wanted != self._in_effect:
            self._in_effect = None
            try:
                await self._update(wanted)
            except InfrastructureError as error:
                if wanted == self._wanted():
                    self._failure = error
                    self._tell_unheard(error)
                    return
            else:
                self._in_effect, self._failing_since_s = wanted, None
        self._tell_if_granted()

    def _tell_if_granted(self) -> None:
        if isinstance(self._wish, Placement) and self._in_effect == self._wanted():
            self._tell_granted()

    def _tell_unheard(self, error: InfrastructureError) -> None:
        """Tell of a failure that no command hears of, and have the same tried again a little later.

        That is so when a container is to be idle, where once more is enough, and when what runs in it is to have more
        or less than it had: it would have that for as long as it runs, so that ends when it has failed for a while.
        """
        if self._closed or self._rushing:
            return
        if isinstance(self._wish, Placement) and not self._is_seen:
            self._tell_granted()  # nothing runs: the commands to come hear of it
            return
        is_away = isinstance(error, DaemonAwayError)  # which is waited for elsewhere, and not for ever
        if isinstance(error, SandboxLostError) and not is_away:
            return  # its end is heard otherwise, and why it came
        now_s = self._loop.time()
        if self._failing_since_s is None or is_away:
            self._failing_since_s = now_s
        if self._wish is not None and now_s - self._failing_since_s > GIVE_UP_S:
            self._tell_failed(error)
            return
        what = "give back what its last action had" if self._wish is None else "have what its action has now"
        again = f"; that is tried again in {AGAIN_S:g} s" if self._may_try_again else ""
        if not is_away:
            _logger.warning("container %s does not %s: %s%s", self._id[:12], what, error, again)
        if self._may_try_again:
            self._may_try_again = self._wish is not None
            self._later = self._loop.call_later(AGAIN_S, self._begin_after_all)

    async def _update(self, wanted: Allotment) -> None:
        quota_us = -1 if wanted.quota_us is None else wanted.quota_us
        self._was_last = self._was_last or wanted.comes_last
        try:
            await self._engine.update(
                self._id,
                quota_us=quota_us,
                period_us=PERIOD_US,
                cpus=cpulist(wanted.core_ids),
                shares=LEAST_SHARES if wanted.comes_last else USUAL_SHARES if self._was_last else None,
            )
        except DaemonError as error:
            raise _refused(error, wanted) from error
        self._was_last = wanted.comes_last
        # Idle or suspended, also if that is not wanted any more, a look would take long, and nothing depends on it.
        is_granted = isinstance(self._wish, Placement) and wanted == self._wanted()
        if self._shell is not None and is_granted and not self._is_seen:
            self._is_seen = True
            try:
                await self._look(self._shell, wanted)
            except BaseException:
                self._is_seen = False
                raise

    async def _look(self, shell: Shell, wanted: Allotment) -> None:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                _, told, _ = await shell(LOOK_INSIDE)
        except TimeoutError as error:
            raise AllocationError(f"wanted {wanted}; the container does not tell what is in effect") from error
        check_seen_inside(wanted, told)


def _refused(error: DaemonError, wanted: Allotment) -> InfrastructureError:
    if error.kind == "gone":
        return DaemonAwayError(f"wanted {wanted}: {error}")
    if error.status in (404, 409) or DYING in str(error):
        return SandboxLostError(f"wanted {wanted}: {error}")
    return AllocationError(f"wanted {wanted}; the daemon did not do it: {error}")
