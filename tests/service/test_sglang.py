"""What only `SglangService` does, against a stand-in for SGLang 0.5.23 (standin_engines.py) over real HTTP.

The stand-in dies of what the real one dies of; a test in which it does not is one in which we do not do that.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, RestoreError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.probe import Probe
from arl_tangram.services.sglang import SglangService
from hosted_engine import declare, hosting, until
from standin_engines import GIB, StandInSglang

CONTROL = (
    "/flush_cache",
    "/pause_generation",
    "/continue_generation",
    "/release_memory_occupation",
    "/resume_memory_occupation",
)
SLEEP = ["/flush_cache", "/pause_generation", "/flush_cache", "/release_memory_occupation"]
WAKE = ["/resume_memory_occupation", "/continue_generation"]


async def test_it_is_paused_when_nothing_is_left_and_released_then() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        assert engine.hosted is not None
        assert dict(engine.hosted.footprints)[1].evicted_bytes == GIB
        assert server.calls(*CONTROL) == SLEEP
        await engine.restore()
        answer = await engine.ask("Hello")
        assert answer["choices"][0]["finish_reason"] == "length"
        await engine.evict()
        assert server.calls(*CONTROL) == [*SLEEP, *WAKE, *SLEEP]
        assert not server.is_dead


async def test_each_transition_is_made_once_whoever_wants_it_how_often() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        wishes = [engine.restore(), engine.restore(), engine.evict(), engine.evict(), engine.restore(), engine.evict()]
        await asyncio.gather(*wishes)
        await engine.evict()
        assert server.calls(*CONTROL) == [*SLEEP, *WAKE, *SLEEP, *WAKE, *SLEEP]
        assert not server.is_dead


async def test_health_is_never_asked_for() -> None:
    async with StandInSglang(health_generates=True) as server, hosting(declare(server)) as engine:
        await engine.backend._opened().suspect()  # asks whether it is alive, while it is released
        await engine.restore()
        with pytest.raises(UsageError, match="for the scheduler alone"):
            await engine.ask("/health")
        assert server.calls("/health", "/health_generate") == []


async def test_what_its_scheduler_has_left_over_is_waited_for() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.leftover_s = 0.2
        await engine.ask("Hello")
        assert server.leftover
        await engine.evict()
        assert not server.is_dead
        assert server.used_bytes == GIB


async def test_a_request_that_slips_in_before_the_pause_is_let_go_on() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await engine.restore()
        was_paused = server.answer

        async def slip_in(method: str, path: str, query: dict[str, str], body: Any) -> Any:
            if path == "/pause_generation":
                server.leftover = True
            return await was_paused(method, path, query, body)

        server.answer = slip_in  # type: ignore[method-assign]
        with pytest.raises(RestoreError, match="still awake: POST /flush_cache was answered with 400"):
            await engine.evict()
        assert not server.is_dead
        assert not server.is_paused
        server.answer = was_paused  # type: ignore[method-assign]
        server.leftover = False
        await engine.evict()


async def test_a_cancelled_call_is_aborted_there_and_waited_for() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.call_s = 3600
        asking = asyncio.ensure_future(engine.ask("Hello"))
        await until(lambda: server.running == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await engine.evict()
        assert server.calls("/abort_request") == ["/abort_request"]
        assert not server.is_dead


async def test_a_request_may_have_a_label_of_its_own() -> None:
    async with StandInSglang() as server, hosting(declare(server, call_s=0.5)) as engine:
        await engine.restore()
        await engine.ask("Hello", rid="mine")
        assert server.bodies[-1]["rid"] == "mine"
        server.faults.call_s = 3600
        with pytest.raises(ServiceLostError, match="did not answer"):
            await engine.ask("Hello", rid="mine")
        await until(lambda: server.running == 0)


async def test_without_the_memory_saver_it_is_refused() -> None:
    async with StandInSglang(saver=False) as server:
        with pytest.raises(ConfigurationError, match=r"0\.00 GiB .*must be started with --enable-memory-saver"):
            async with hosting(declare(server)):
                pass


async def test_without_the_backup_the_first_restore_fails() -> None:
    async with StandInSglang(backup=False) as server, hosting(declare(server)) as engine:
        with pytest.raises(RestoreError, match="does not answer /v1/completions as it did before"):
            await engine.restore()
        assert server.used_bytes == GIB
        assert not server.is_dead


async def test_one_that_was_left_released_is_refused_and_not_touched() -> None:
    async with StandInSglang() as server:
        async with hosting(declare(server)):
            pass
        server.log.clear()
        with pytest.raises(ConfigurationError, match=r"was not answered within 0\.2 s"):
            async with hosting(declare(server, probe=Probe(limit_s=0.2))):
                pass
        assert server.calls(*CONTROL) == []
        assert not server.is_dead


async def test_its_two_keys_are_sent_to_their_routes() -> None:
    async with StandInSglang(key="secret") as server:
        async with hosting(
            declare(server, api_key="other", admin_api_key="secret", probe=None, model="stand-in")
        ) as engine:
            await engine.restore()
            with pytest.raises(UsageError, match="401"):
                await engine.ask("Hello")
        assert not server.is_dead


async def test_a_release_that_is_refused_is_an_error() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.sleep_status = 400
        with pytest.raises(RestoreError, match="/release_memory_occupation was answered with 400"):
            await engine.evict()
        # Whether it has released anything it does not tell: it is not told again.
        server.faults.sleep_status = 0
        with pytest.raises(RestoreError, match="cannot be told now"):
            await engine.evict()
        with pytest.raises(RestoreError, match="cannot be told now"):
            await engine.restore()
        assert not server.is_dead
        await server.stop()
        await engine.evict()


async def test_a_resume_that_is_refused_holds_what_is_not_known() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        server.faults.wake_status = 400
        with pytest.raises(StillHeldError, match="what it holds is not known"):
            await engine.restore()
        assert not server.is_dead


async def test_a_hanging_resume_is_waited_for_and_undone() -> None:
    async with StandInSglang() as server, hosting(declare(server, transition_s=0.5)) as engine:
        server.faults.wake_hangs = True
        for _ in range(2):
            with pytest.raises(StillHeldError):
                await engine.restore()
        server.released.set()
        await until(lambda: server.calls(*CONTROL) == [*SLEEP, *WAKE, *SLEEP] and server.used_bytes == GIB)
        assert not server.is_dead


async def test_one_that_comes_back_after_its_death_is_a_new_one() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await server.stop()
        with pytest.raises(RestoreError, match="did not wake"):
            await engine.restore()
        await server.start()  # awake, as it was started
        await engine.restore()
        await engine.ask("Hello")
        await engine.evict()
        assert not server.is_dead


async def test_one_that_was_replaced_unseen_is_not_resumed() -> None:
    async with StandInSglang() as server, hosting(declare(server)) as engine:
        await server.stop()
        await server.start()  # nobody noticed; it is awake, and would die of a resume
        server.log.clear()
        await engine.restore()
        await engine.ask("Hello")
        assert server.calls("/resume_memory_occupation") == []
        assert not server.is_dead


async def test_a_launched_server_is_told_not_to_generate_for_its_health(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "standin_engines.py"
    declared = SglangService(
        "judge", launch=[sys.executable, str(script), "sglang", "--port", "{port}"], gpu_gib=8, asleep_gib=1, start_s=30
    )
    async with hosting(declared) as engine:
        assert engine.hosted is not None
        assert engine.hosted.footprints[0][1].evicted_bytes == GIB  # nothing can be measured: as it was said
        await engine.restore()
        await engine.ask("Hello")
        await engine.evict()
