"""What only `VllmService` does, against a stand-in for vLLM 0.33.0 (standin_engines.py) over real HTTP."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import (
    ConfigurationError,
    RestoreError,
    ServiceLostError,
    UsageError,
    WrongLoopError,
)
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from hosted_engine import declare, hosting, until
from standin_engines import GIB, Faults, StandInVllm


async def test_an_engine_sleeps_when_it_is_opened_and_answers_when_it_is_restored() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        assert engine.hosted is not None
        footprint = dict(engine.hosted.footprints)[1]
        assert (footprint.resident_bytes, footprint.evicted_bytes) == (8 * GIB, GIB)
        assert server.executor_sleeps
        await engine.restore()
        answer = await engine.ask("Hello", max_tokens=3)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert server.bodies[-1] == {"model": "stand-in", "prompt": "Hello", "max_tokens": 3}
        await engine.evict()
        assert server.used_bytes == GIB


async def test_parameters_of_sleep_stand_in_the_url_and_requests_may_end_first() -> None:
    async with StandInVllm() as server, hosting(declare(server)):
        assert [each for each in server.log if "/sleep" in each] == ["POST /sleep?level=1&mode=wait"]


async def test_it_is_called_on_the_event_loop_of_its_action() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        service = engine.backend.service(1)
        with pytest.raises(WrongLoopError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, service.call("Hello"))
        await service.call("Hello")
        engine.backend.end(service)


@pytest.mark.parametrize(
    "path",
    [
        "/sleep",
        "/sleep/",
        "/wake_up?tags=weights",
        "/pause",
        "/collective_rpc",
        "/v1/../sleep",
        "/%73leep#x",
        "//sleep",
    ],
)
async def test_no_action_may_put_it_to_sleep(path: str) -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        with pytest.raises(UsageError, match="is no path"):
            await engine.ask("/\0", {})
        with pytest.raises(UsageError, match="for the scheduler alone"):
            await engine.ask(path, {})
        with pytest.raises(UsageError, match="streams"):
            await engine.ask("Hello", stream=True)
        assert not server.is_paused


@pytest.mark.parametrize("path", ["//x/sleep", "//127.0.0.1/sleep?level=1", "///x/sleep"])
async def test_no_action_may_put_it_to_sleep_by_what_looks_like_another_host(path: str) -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        with pytest.raises(UsageError, match="is no path: it begins with more than one '/'"):
            await engine.ask(path, {})
        assert not server.is_paused


async def test_a_server_without_sleep_mode_is_refused() -> None:
    async with StandInVllm(faults=Faults(sleep_status=404)) as server:
        with pytest.raises(ConfigurationError, match="404"):
            async with hosting(declare(server)):
                pass


async def test_one_that_was_left_asleep_is_woken_when_it_is_opened() -> None:
    async with StandInVllm() as server:
        async with hosting(declare(server)):
            assert server.executor_sleeps
        assert server.executor_sleeps  # left as it was
        async with hosting(declare(server, asleep_gib=1)) as engine:
            await engine.restore()
            await engine.ask("Hello")


async def test_a_server_without_its_routes_for_development_is_refused() -> None:
    async with StandInVllm(has_dev_mode=False) as server:
        with pytest.raises(ConfigurationError, match=r"must be started with .*VLLM_SERVER_DEV_MODE=1"):
            async with hosting(declare(server)):
                pass


async def test_a_key_is_sent() -> None:
    async with StandInVllm(key="secret") as server:
        async with hosting(declare(server, api_key="secret")) as engine:
            await engine.restore()
        with pytest.raises(ConfigurationError, match="401") as caught:
            async with hosting(declare(server, api_key="wrong-key")):
                pass
        assert "wrong-key" not in str(caught.value)


async def test_level_2_loads_the_weights_between_two_wakes() -> None:
    async with StandInVllm() as server, hosting(declare(server, level=2)) as engine:
        server.log.clear()
        await engine.restore()
        assert [each for each in server.log if "completions" not in each and "models" not in each] == [
            "POST /wake_up?tags=weights",
            "POST /collective_rpc",
            "POST /wake_up?tags=kv_cache",
            "POST /reset_prefix_cache",
        ]


# It fails.


async def test_a_sleep_that_is_answered_with_500_is_an_error_and_can_be_repeated() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.sleep_status = 500
        with pytest.raises(RestoreError, match="still awake: POST /sleep was answered with 500"):
            await engine.evict()
        await engine.ask("Hello")
        server.faults.sleep_status = 0
        await engine.evict()


async def test_a_wake_that_is_answered_with_500_is_an_error_and_can_be_repeated() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.wake_status = 500
        with pytest.raises(RestoreError, match="did not wake: POST /wake_up was answered with 500"):
            await engine.restore()
        assert server.used_bytes == GIB
        server.faults.wake_status = 0
        await engine.restore()


async def test_a_wake_that_is_done_and_answered_with_500_is_found_out() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.wake_does_500 = True
        await engine.restore()
        await engine.ask("Hello")


async def test_a_hanging_wake_is_never_met_by_another_call() -> None:
    async with StandInVllm() as server, hosting(declare(server, transition_s=0.5)) as engine:
        server.faults.wake_hangs = True
        for _ in range(2):
            with pytest.raises(StillHeldError, match=r"waking for more than 0\.5 s"):
                await engine.restore()
        with pytest.raises(RestoreError):
            await engine.evict()
        assert server.calls("/sleep", "/wake_up") == ["/sleep", "/wake_up"]
        server.released.set()
        await until(lambda: server.used_bytes == GIB and server.calls("/sleep", "/wake_up")[-1] == "/sleep")
        server.faults.wake_hangs = False
        await engine.restore()
        await engine.ask("Hello")
        assert not server.is_corrupt


async def test_a_hanging_sleep_is_never_met_by_a_wake() -> None:
    async with StandInVllm() as server, hosting(declare(server, transition_s=0.5)) as engine:
        await engine.restore()
        server.faults.sleep_hangs = True
        with pytest.raises(RestoreError, match=r"sleeping for more than 0\.5 s"):
            await engine.evict()
        waking = asyncio.ensure_future(engine.restore())
        await asyncio.sleep(0.02)
        server.released.set()
        await waking
        assert server.calls("/sleep", "/wake_up") == ["/sleep", "/wake_up", "/sleep", "/wake_up"]
        await engine.ask("Hello")
        assert not server.is_corrupt


async def test_one_that_dies_of_a_wake_is_an_error() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.dies_at = "/wake_up"
        with pytest.raises(RestoreError, match="did not wake"):
            await engine.restore()
        await engine.evict()


async def test_those_who_share_a_device_are_opened_one_after_the_other() -> None:
    async with StandInVllm() as first, StandInVllm() as second:
        seen: list[int] = []

        def free(_: str) -> int:
            seen.append(first.used_bytes + second.used_bytes)
            return 16 * GIB - seen[-1]

        async def opens(server: StandInVllm) -> None:
            server.lie_down()
            async with hosting(declare(server, memory_of=free)):
                pass

        await asyncio.gather(opens(first), opens(second))
        assert max(seen) == 9 * GIB  # one is awake, the other one asleep


async def test_one_whose_engine_dies_behind_its_server_is_told_as_lost() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.engine_is_dead = True
        server.faults.call_status = 500
        with pytest.raises(ServiceLostError, match="500"):
            await engine.ask("Hello")
        await until(lambda: bool(engine.lost))
