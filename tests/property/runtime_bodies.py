"""The bodies of the model-based test: they do what their scripts say, and tell the account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import arl_tangram as tangram
from arl_tangram import QuotaUse
from property.runtime_calls import Call
from property.runtime_kinds import KINDS, SLOW_S, Options, OwnError, Script
from property.runtime_setup import calling_var


@cache
def _declared(kind: int) -> Any:
    """Return the action of a kind."""
    cost = KINDS[kind]
    quota: dict[str, float | QuotaUse] = {}
    for name, (calls, tokens) in cost.quota.items():
        quota[name] = QuotaUse(calls=calls, tokens=tokens) if tokens else calls
    body: Callable[..., Any] = thread_body if cost.thread else async_body
    return tangram.action(cpu=cost.cpu, memory_gib=cost.memory_gib, quota=quota or None)(body)


@cache
def action_of(kind: int, options: Options) -> Any:
    """Return the action of a kind with options."""
    if options == Options():
        return _declared(kind)
    again: dict[str, Any] = {}
    if options.retries:
        again = {"idempotent": True, "retries": options.retries, "retry_on": options.retry_on}
    return _declared(kind).with_options(
        priority=options.priority, timeout=options.timeout, queue_timeout=options.queue_timeout, **again
    )


# On the loop.


async def async_body(call: Call) -> int:
    with call.reporting():
        call.begin()
    try:
        return await _work(call)
    finally:
        with call.reporting():
            call.end()


async def _work(call: Call) -> int:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + call.script.for_s
    while (left_s := until_s - loop.time()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            if call.script.end == "deaf":
                continue
            if call.script.end == "swallow":
                return call.number
            if call.script.end == "slow":
                await asyncio.sleep(SLOW_S)
            raise
    if call.script.children:
        await _call_others(call)
        call.natural_at_s = loop.time()
    return outcome(call)


async def _call_others(call: Call) -> None:
    loop = asyncio.get_running_loop()
    for group in [call.script.children] if call.script.together else [(child,) for child in call.script.children]:
        call.away_from_s = loop.time()
        try:
            if len(group) == 1:
                await _call_one(call, *group[0])
            else:
                await asyncio.gather(*(_call_one(call, *child) for child in group))
        finally:
            call.away_s += loop.time() - call.away_from_s
            call.away_from_s = None


async def _call_one(parent: Call, kind: int, options: Options, script: Script) -> None:
    child = parent.world.note(kind, options, script, parent.rollout, parent)
    parent.waits_for += 1
    error: BaseException | None = None
    value: int | None = None
    outer = calling_var.set(child)
    try:
        if child.number % 2:  # as a task of its own, it can be cancelled without its parent
            child.task = asyncio.ensure_future(parent.world.tg.run(action_of(kind, options), child))
            value = await child.task
        else:
            value = await parent.world.tg.run(action_of(kind, options), child)
    except asyncio.CancelledError as cancelled:
        error = cancelled
        this = asyncio.current_task()
        if child.cancelled_at_s is None or this is None or this.cancelling():
            raise
    except Exception as raised:  # noqa: BLE001 - checked by the account
        error = raised
    finally:
        calling_var.reset(outer)
        parent.waits_for -= 1
        parent.world.answered(child, value, error)


# On threads.


def thread_body(call: Call) -> int:
    loop = call.world.loop
    try:
        with call.reporting():
            call.begin()
        if call.script.for_s:
            loop.lockstep.sleep_until(loop.time() + call.script.for_s)
        for child in call.script.children:
            _call_one_from_a_thread(call, *child)
        if call.script.children:
            call.natural_at_s = loop.time()
        return outcome(call)
    finally:
        with call.reporting():
            call.end()
        loop.lockstep.ends()


def _call_one_from_a_thread(parent: Call, kind: int, options: Options, script: Script) -> None:
    loop = parent.world.loop
    child = parent.world.note(kind, options, script, parent.rollout, parent)
    parent.waits_for += 1
    parent.away_from_s = loop.time()
    block_for(child)
    parent.waits_for -= 1
    parent.away_s += loop.time() - parent.away_from_s
    parent.away_from_s = None


def block_for(call: Call) -> None:
    """On a thread that moves in lockstep: make a call, and block for its answer."""
    value: int | None = None
    error: BaseException | None = None
    outer = calling_var.set(call)
    try:
        with call.world.loop.lockstep.calls_the_loop():
            value = call.world.tg.run_sync(action_of(call.kind, call.options), call)
    except BaseException as raised:  # noqa: BLE001 - checked by the account
        error = raised
    calling_var.reset(outer)
    call.world.answered(call, value, error)


def outcome(call: Call) -> int:
    """Return or raise what a body does by itself."""
    if call.attempts <= call.script.fails or call.script.end == "raise":
        raise OwnError(call.number)
    if call.script.end == "rude" and not call.cost.thread:
        raise asyncio.CancelledError
    return call.number
