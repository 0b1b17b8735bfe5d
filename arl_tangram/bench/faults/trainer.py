"""The trainer that has the faults, run as `python -m arl_tangram.bench.faults.trainer [options] ROOT CASE...`.

It tells on standard output, one JSON object per line, which case begins, what came of it, and that its runtime is
closed. Whoever started it bounds everything that can hold it up for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

import arl_tangram as tangram
from arl_tangram.bench.faults.actions import faulty, following, has_sandbox, memory_gib
from arl_tangram.bench.faults.cases import BY_NAME, KILL_GRACE_S, Case, Promise
from arl_tangram.bench.faults.left import VARIABLE, words
from arl_tangram.bench.faults.where import Where
from arl_tangram.model.topology import MEMORY, SANDBOXES

LOOK_S = 0.002
LEFT_S = 3.0
"""How long what is on its way out may take."""

_HELD = (MEMORY, SANDBOXES)
"""What a trajectory holds from its first to its last turn."""

NEXT_S = 5.0
LINGERS_S = 0.3
"""How long a thread is given to show that it does not end."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a case; times in seconds from its call.

    Attributes:
        name: of the case.
        outcome: what the caller got.
        infrastructure: whether that is an `InfrastructureError`.
        answer_s: until the caller had it, or None.
        capacity_s: until all units were free again, or None.
        held_s: the longest time for which the event loop did not turn.
        lingering: whether the runtime named it as lingering when its caller had been answered.
        served: whether the next action had its result.
        left: what was there afterwards and not before.
        note: what else there is to say.
    """

    name: str
    outcome: str
    infrastructure: bool = False
    answer_s: float | None = None
    capacity_s: float | None = None
    held_s: float | None = None
    lingering: bool = False
    served: bool = False
    left: tuple[str, ...] = ()
    note: str = ""


class Ticks:
    """Measures how long the event loop does not turn."""

    EVERY_S = 0.005

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(self.EVERY_S)
            self.longest_s = max(self.longest_s, time.monotonic() - began_s - self.EVERY_S)

    async def stop(self) -> float:
        """End it and return the longest time."""
        await asyncio.sleep(0)
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.longest_s


async def attempt(tg: tangram.Tangram, where: Where, mark: str, case: Case) -> Row:
    """Call a faulty action, then another one, and look at what is left."""
    outside = await where.look(mark)
    async with AsyncExitStack() as stack:
        if has_sandbox(case):
            await stack.enter_async_context(tg.trajectory(memory_gib=memory_gib(case)))
        wanted = await following(case.kind)()
        before = await where.look(mark)
        _tell({"begins": case.name})
        ticks, began_s = Ticks(), time.monotonic()
        outcome, infrastructure, answered = await _called(case)
        answer_s = time.monotonic() - began_s
        lingering = bool(tg.statistics().lingering)
        capacity = await _is_idle(tg, LINGERS_S if case.promise is Promise.LINGERS else case.answer_s)
        capacity_s = time.monotonic() - began_s
        held_s = await ticks.stop()
        served = await _is_served(following(case.kind)(), wanted)
        left = await _left(where, mark, before)
    left |= await _left(where, mark, outside)  # of the trajectory, too
    return Row(
        case.name,
        outcome,
        infrastructure,
        answer_s if answered else None,
        capacity_s if capacity else None,
        held_s,
        lingering,
        served,
        words(left),
    )


async def main(where: Where, mark: str, cases: Sequence[Case]) -> None:
    """Have all faults in one runtime, one after the other."""
    runtime = tangram.Tangram(where.pool(), kill_grace_s=KILL_GRACE_S)
    try:
        await _try_all(runtime, where, mark, cases)
    finally:
        _tell({"closed": not runtime.is_open})


async def _try_all(runtime: tangram.Tangram, where: Where, mark: str, cases: Sequence[Case]) -> None:
    async with runtime as tg:
        _tell({"opened": tg.describe()})
        for kind in dict.fromkeys(case.kind for case in cases):
            if not has_sandbox(next(case for case in cases if case.kind is kind)):
                await following(kind)()  # what is kept for later calls is there from now on
        for case in cases:
            _tell({"row": asdict(await attempt(tg, where, mark, case))})


async def _called(case: Case) -> tuple[str, bool, bool]:
    """Return what the caller got, whether that is an infrastructure error, and whether it got anything."""
    call = asyncio.ensure_future(faulty(case)(case.fault))
    done, _ = await asyncio.wait([call], timeout=2 * case.answer_s)
    if not done:
        call.cancel()
        await asyncio.wait([call], timeout=1)
        return "no answer", False, False
    error = call.exception()
    if error is not None:
        return _words(error), isinstance(error, tangram.InfrastructureError), True
    value = call.result()
    return f"exit code {value.exit_code}" if isinstance(value, tangram.ExecResult) else "returned", False, True


def _words(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name} ({error.error})" if isinstance(error, tangram.RemoteError) else name


async def _is_idle(tg: tangram.Tangram, within_s: float) -> bool:
    """Wait until nothing runs and only what the trajectory holds is held."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        state = tg.statistics()
        if state.running == 0 and not any(d.used for name, d in state.dimensions.items() if name not in _HELD):
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def _is_served(call: Awaitable[object], wanted: object) -> bool:
    """Whether the next action has the result that it had before."""
    try:
        async with asyncio.timeout(NEXT_S):
            return await call == wanted
    except (tangram.TangramError, TimeoutError, OSError):
        return False


async def _left(where: Where, mark: str, before: Counter[str]) -> Counter[str]:
    until_s = time.monotonic() + LEFT_S
    while (left := await where.look(mark) - before) and time.monotonic() < until_s:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(10 * LOOK_S)
    return left


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    _where, _names = Where.read(sys.argv[1:])
    asyncio.run(main(_where, os.environ[VARIABLE], [BY_NAME[name] for name in _names]))
