"""Engines that sleep and wake, of every kind, against stand-ins (standin_engines.py) over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, EvictedServiceError, RestoreError, ServiceLostError, UsageError
from arl_tangram.services.engine.probe import Probe
from hosted_engine import declare, hosting, until
from standin_engines import GIB, Faults, StandIn, StandInSglang, StandInVllm


@pytest.fixture(params=[StandInVllm, StandInSglang], ids=["vllm", "sglang"])
def stand_in(request: pytest.FixtureRequest) -> type[StandIn]:
    found: type[StandIn] = request.param
    return found


async def test_chat_and_other_routes(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        messages = [{"role": "user", "content": "Hello"}]
        answer = await engine.ask(messages, temperature=0)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert server.bodies[-1].items() >= {"model": "stand-in", "messages": messages, "temperature": 0}.items()
        await engine.ask("/v1/embeddings", {"input": "Hello"}, user="me")
        assert server.bodies[-1].items() >= {"model": "stand-in", "input": "Hello", "user": "me"}.items()


async def test_the_service_of_an_action_says_where_it_is_and_ends_with_it(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        service = engine.backend.service(1)
        assert (service.name, service.dop, service.devices) == ("judge", 1, ("meta",))
        assert (service.url, service.model) == (server.url, "stand-in")  # type: ignore[attr-defined]
        engine.backend.end(service)
        with pytest.raises(EvictedServiceError, match="has ended"):
            await service.call("Hello")


@pytest.mark.parametrize("args", [(), (3,), ("Hello", {"a": 1}), ("/v1/embeddings", "text"), ({"prompt": "x"},)])
async def test_a_call_that_makes_no_sense_is_not_sent(stand_in: type[StandIn], args: tuple[Any, ...]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        sent = len(server.log)
        with pytest.raises(UsageError, match="takes a prompt"):
            await engine.ask(*args)
        assert len(server.log) == sent


async def test_what_is_wrong_with_a_request_is_the_callers_fault(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        with pytest.raises(UsageError, match=r"404: .*does not exist"):
            await engine.ask("Hello", model="other")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_is_wrong_with_the_server_is_not(stand_in: type[StandIn], status: int) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.call_status = status
        with pytest.raises(ServiceLostError, match=f"was answered with {status}"):
            await engine.ask("Hello")
        server.faults.call_status = 0
        await engine.ask("Hello")
        assert engine.lost == []


async def test_an_answer_that_was_cut_off_is_a_failure(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.aborts = True
        with pytest.raises(ServiceLostError, match="finish_reason 'abort'"):
            await engine.ask("Hello")


async def test_a_cancelled_call_ends_at_the_server_and_does_not_hold_up_an_eviction(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.call_s = 3600
        asking = asyncio.ensure_future(engine.ask("Hello"))
        await until(lambda: server.running == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await engine.evict()
        assert server.used_bytes == GIB


async def test_a_call_has_a_limit(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server, call_s=0.5)) as engine:
        await engine.restore()
        server.faults.call_s = 3600
        with pytest.raises(ServiceLostError, match=r"did not answer /v1/completions within 0\.5 s"):
            await engine.ask("Hello")
        await until(lambda: server.running == 0)


async def test_two_devices_are_watched_both(stand_in: type[StandIn]) -> None:
    async with stand_in() as server:
        free = {"gpu:2": server.free_bytes, "gpu:3": lambda: 0}
        declared = declare(server, dop=2, devices=["gpu:2", 3], memory_of=lambda name: free[name](), asleep_gib=1)
        with pytest.raises(ConfigurationError, match=r"only|0\.00 GiB of a device became free"):
            async with hosting(declared, devices=["gpu:0", "gpu:1", "gpu:2", "gpu:3"]):
                pass
        free["gpu:3"] = server.free_bytes
        await server.stop()
        await server.start()
        async with hosting(declared, devices=["gpu:0", "gpu:1", "gpu:2", "gpu:3"]) as engine:
            assert engine.hosted is not None
            assert engine.hosted.chunks == ((2, (2, 2)),)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": [4]}, "there is no device 4; the pool has 0: gpu:0, 1: gpu:1"),
        ({"devices": ["gpu:7"]}, "there is no device 'gpu:7'"),
        ({}, "which devices is it on"),
        ({"dop": 2, "devices": [0, 2]}, "must stand beside each other"),
        ({"dop": 2, "devices": [1, 2]}, "must stand beside each other"),
        ({"dop": 8}, "which devices is it on"),
        ({"host_gib": 65, "devices": [0]}, "judge"),
    ],
)
async def test_what_cannot_be_hosted_is_refused_and_the_server_is_left_alone(
    stand_in: type[StandIn], options: dict[str, Any], said: str
) -> None:
    async with stand_in() as server:
        with pytest.raises(ConfigurationError, match=said):
            async with hosting(declare(server, **options), devices=["gpu:0", "gpu:1", "gpu:2", "gpu:3"]):
                pass
        assert server.log == []


async def test_no_server_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in() as server:
        await server.stop()
        with pytest.raises(ConfigurationError, match=f"{server.url} does not answer"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_frees_nothing_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in(faults=Faults(frees_nothing=True)) as server:
        with pytest.raises(ConfigurationError, match=r"0\.00 GiB of a device became free instead of 4\.00 GiB"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_has_more_than_was_said_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in(resident_bytes=12 * GIB) as server:
        with pytest.raises(ConfigurationError, match=r"gave up 11\.00 GiB of a device, more than gpu_gib=8"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_answers_at_random_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in(faults=Faults(probe_varies=True)) as server:
        with pytest.raises(ConfigurationError, match="does not answer /v1/completions as it did before"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_cuts_its_first_answer_off_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in(faults=Faults(aborts=True)) as server:
        with pytest.raises(ConfigurationError, match="was cut off"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_does_not_answer_the_question_is_refused(stand_in: type[StandIn]) -> None:
    async with stand_in(faults=Faults(call_s=3600)) as server:
        with pytest.raises(ConfigurationError, match=r"was not answered within 0\.1 s"):
            async with hosting(declare(server, probe=Probe(limit_s=0.1))):
                pass


@pytest.mark.parametrize("probe", [Probe(path="/v1/embeddings", body={"input": "Hello"}), None], ids=["own", "none"])
async def test_an_embedding_model_has_a_question_of_its_own_or_none(
    stand_in: type[StandIn], probe: Probe | None
) -> None:
    async with stand_in() as server, hosting(declare(server, probe=probe)) as engine:
        await engine.restore()
        await engine.evict()


async def test_a_server_that_lies_later_is_found_out(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.frees_nothing = True
        for _ in range(2):
            with pytest.raises(RestoreError, match=r"0\.00 GiB of a device became free instead of 7\.00 GiB"):
                await engine.evict()
        server.used_bytes = GIB
        await engine.evict()


async def test_other_weights_after_a_wake_fail_the_restore(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        server.faults.other_weights = True
        with pytest.raises(RestoreError, match=r"came back and is not usable: it does not answer .* as it did before"):
            await engine.restore()
        assert server.used_bytes == GIB
        server.faults.other_weights = False
        server.now = server.weights  # loaded again by whoever it belongs to
        await engine.restore()


async def test_rubbish_after_a_wake_fails_the_restore(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        server.faults.rubbish = True
        with pytest.raises(RestoreError, match=r"answer has no '(model|choices)'"):
            await engine.restore()


async def test_one_that_dies_while_it_sleeps_is_an_error_until_it_is_back(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await server.stop()
        with pytest.raises(RestoreError, match="did not wake"):
            await engine.restore()
        await engine.evict()
        await server.start()
        await engine.restore()
        await engine.ask("Hello")
        assert engine.lost == []


async def test_one_that_dies_of_a_call_is_told_as_lost(stand_in: type[StandIn]) -> None:
    async with stand_in() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.dies_at = "/v1/completions"
        with pytest.raises(ServiceLostError, match="gave no answer"):
            await engine.ask("Hello")
        await until(lambda: bool(engine.lost))
        (dop, error), *others = engine.lost
        assert dop == 1
        assert isinstance(error, ServiceLostError)
        assert others == []
        with pytest.raises(ServiceLostError, match="lost, not awake"):
            await engine.ask("Hello")
