"""Servers that can only be started and stopped: a real inference server, and one with every fault."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
import pytest_asyncio

import arl_tangram as tangram
from arl_tangram import GpuPool, Tangram
from arl_tangram.errors import (
    ConfigurationError,
    EvictedServiceError,
    InfrastructureError,
    RestoreError,
    ServiceLostError,
    UsageError,
    WrongLoopError,
)
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place, StillHeldError
from arl_tangram.managers.host.owner import started
from arl_tangram.model.gpu import Footprint
from arl_tangram.services.process import ProcessService
from arl_tangram.services.processes.backend import ProcessBackend
from arl_tangram.services.servers.launching import Server
from arl_tangram.testing import FakePool

TESTS = Path(__file__).parents[1]
GIB = 1 << 30


def odd(*faults: str, **options: Any) -> ProcessService:
    launch = [sys.executable, "-I", "-S", str(TESTS / "odd_server.py"), "{port}", *faults]
    return ProcessService("judge", **{"launch": launch, "gpu_gib": 1, "stop_s": 5, **options})


def llama() -> ProcessService:
    launch = [sys.executable, str(TESTS / "llama_server.py"), "{port}"]
    return ProcessService("teacher", launch=launch, gpu_gib=0.25, restore_s=1, start_s=60)


def places(*names: str) -> list[Place]:
    return [Place(FakeDevice(name, GIB), None) for name in names]


class Hosted:
    """A backend that is open, and what it has told."""

    def __init__(self, declared: ProcessService) -> None:
        self.backend: ProcessBackend = declared.backend()
        self.host = HostMemory(4 * GIB)
        self.lost: asyncio.Queue[tuple[int, Exception]] = asyncio.Queue()
        self.backend.on_lost(lambda dop, error: self.lost.put_nowait((dop, error)))

    async def restored(self, dop: int = 1, *names: str) -> Any:
        await self.backend.restore(dop, places(*(names or ("cpu:0",))))
        return self.backend.service(dop)


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Callable[[ProcessService], Any]]:
    """Return a function that opens a service, which is closed with the test."""
    opened: list[Hosted] = []

    async def start(declared: ProcessService) -> Hosted:
        opened.append(Hosted(declared))
        await opened[-1].backend.open(opened[-1].host, [FakeDevice("cpu:0", GIB)])
        return opened[-1]

    yield start
    for hosted in opened:
        await hosted.backend.aclose()
        assert hosted.host.used_bytes == 0
        await hosted.host.aclose()


async def is_alive(pid: int) -> bool:
    return await anyio.to_thread.run_sync(started, pid) >= 0


async def first_answer(service: Any) -> dict[str, Any]:
    question = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0, "logprobs": 1}
    answer: dict[str, Any] = (await service.call("/v1/completions", question))["choices"][0]
    return answer


async def test_a_real_inference_server_is_started_used_and_stopped(host: Callable[..., Any]) -> None:
    hosted = await host(llama())
    service = await hosted.restored()
    answer = await first_answer(service)
    assert answer["text"].startswith(" Paris")
    first = answer["logprobs"]["content"][0]
    assert math.exp(first["logprob"]) > 0.5
    told = await service.call("/health")
    assert told == {"status": "ok"}
    assert service.devices == ("meta",)
    hosted.backend.end(service)
    with pytest.raises(EvictedServiceError):
        await service.call("/health")
    await hosted.backend.evict(1)

    again = await hosted.restored()
    assert again.url != service.url
    assert (await first_answer(again))["logprobs"] == answer["logprobs"]  # the same weights, to the last bit
    assert hosted.lost.empty()


async def test_several_actions_share_a_real_server(host: Callable[..., Any]) -> None:
    hosted = await host(llama())
    await hosted.restored()
    services = [hosted.backend.service(1) for _ in range(4)]
    answers = await asyncio.gather(*map(first_answer, services))
    assert {answer["text"] for answer in answers} == {answers[0]["text"]}


async def test_it_sees_just_its_devices(host: Callable[..., Any]) -> None:
    hosted = await host(odd(dops=(1, 2), env={"DOP": "{dop}"}))
    one = await hosted.restored(1, "cpu:0")
    two = await hosted.restored(2, "GPU-2", "GPU-3")
    told = [await service.call("/echo", {"n": 1}) for service in (one, two)]
    assert [(each["CUDA_VISIBLE_DEVICES"], each["DOP"]) for each in told] == [("", "1"), ("GPU-2,GPU-3", "2")]
    assert told[0]["body"] == {"n": 1}
    assert one.url != two.url


async def test_it_is_called_on_the_event_loop_of_its_action(host: Callable[..., Any]) -> None:
    service = await (await host(odd())).restored()
    with pytest.raises(WrongLoopError, match="belongs to another event loop"):
        await asyncio.to_thread(asyncio.run, service.call("/echo", {"n": 1}))
    await service.call("/echo", {"n": 1})


async def test_nothing_of_it_is_left_when_it_is_evicted(host: Callable[..., Any]) -> None:
    hosted = await host(odd("workers", "stubborn", stop_s=0.2))
    service = await hosted.restored()
    pid = (await service.call("/echo", {}))["pid"]
    await hosted.backend.evict(1)
    assert not await is_alive(pid)
    with pytest.raises(ServiceLostError, match="got no answer"):  # an action that holds on to it
        await service.call("/health")
    await hosted.backend.evict(1)  # it is evicted already
    assert hosted.lost.empty()


async def test_one_that_does_not_start_is_told_with_its_words(host: Callable[..., Any]) -> None:
    hosted = await host(odd("exits"))
    with pytest.raises(
        RestoreError, match=r"judge/1: its server ended with exit code 4 before it was healthy.*no such"
    ):
        await hosted.restored()
    with pytest.raises(RestoreError):  # nothing is in the way of another try
        await hosted.restored()


@pytest.mark.parametrize(
    ("fault", "words"), [("sick", r"it answered 500: \{\"error\": \"no room\"\}"), ("deaf", "ConnectError")]
)
async def test_one_that_does_not_get_healthy_is_ended(host: Callable[..., Any], fault: str, words: str) -> None:
    hosted = await host(odd(fault, start_s=1.5))
    with pytest.raises(RestoreError, match=f"/health was not healthy after 1.5 s .*{words}"):
        await hosted.restored()


async def test_a_stranger_on_its_port_is_not_taken_for_it(host: Callable[..., Any]) -> None:
    first = await host(odd())
    service = await first.restored()
    port = service.url.rpartition(":")[2]
    launch = [sys.executable, "-I", "-S", str(TESTS / "odd_server.py"), port]
    second = await host(odd(launch=launch, url=service.url))
    with pytest.raises(RestoreError, match=f"something answers at {service.url} already"):
        await second.restored()
    await first.backend.evict(1)
    assert (await (await second.restored()).call("/echo", {}))["pid"] > 0


async def test_its_death_is_told_and_it_can_be_restored(host: Callable[..., Any]) -> None:
    hosted = await host(odd("workers"))
    service = await hosted.restored()
    with pytest.raises(ServiceLostError, match=r"judge/1: GET /exit got no answer"):
        await service.call("/exit")
    async with asyncio.timeout(20):
        dop, error = await hosted.lost.get()
    assert dop == 1
    assert isinstance(error, ServiceLostError)
    assert str(error).startswith("judge/1: its server ended with exit code 3; the last that it printed: worker ")
    assert str(error).endswith("out of memory")
    assert not await is_alive(int(str(error).split("worker ")[1].split()[0]))
    assert (await (await hosted.restored()).call("/echo", {}))["pid"] > 0


async def test_an_eviction_that_meets_its_death_tells_nothing(host: Callable[..., Any]) -> None:
    hosted = await host(odd())
    service = await hosted.restored()
    server = hosted.backend._instances[1].server
    dying = asyncio.create_task(service.call("/exit"))
    await asyncio.wait([server.ended])
    assert not server.is_gone  # its keeper looks for what it has left
    await hosted.backend.evict(1)
    with pytest.raises(ServiceLostError):
        await dying
    assert hosted.lost.empty()


async def test_who_calls_one_that_dies_learns_of_it_after_the_pool(host: Callable[..., Any]) -> None:
    """Until then its action keeps its seat, so that nobody else is sent to what is dead."""
    hosted = await host(odd())
    service = await hosted.restored()
    with pytest.raises(ServiceLostError, match="its server ended with exit code 3"):
        await service.call("/exit")
    assert isinstance(hosted.lost.get_nowait()[1], ServiceLostError)


async def test_one_that_cannot_be_killed_holds_its_memory(
    host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = await host(odd())
    await hosted.restored()
    with monkeypatch.context() as patched:
        patched.setattr(Server, "is_gone", property(lambda server: False))
        with pytest.raises(StillHeldError, match="judge/1: something of its server cannot be killed now"):
            await hosted.backend.evict(1)
    await hosted.backend.evict(1)  # as the manager does from time to time
    assert not hosted.backend._instances


async def test_one_that_died_and_has_left_what_cannot_be_killed_holds_its_memory(
    host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = await host(odd())
    service = await hosted.restored()
    with monkeypatch.context() as patched:
        patched.setattr(Server, "is_gone", property(lambda server: False))
        with pytest.raises(ServiceLostError):
            await service.call("/exit")
        async with asyncio.timeout(20):
            _, error = await hosted.lost.get()
        assert isinstance(error, StillHeldError)
        assert str(error).startswith("judge/1: its server ended with exit code 3")
        assert str(error).endswith("something of it cannot be killed now")
        with pytest.raises(StillHeldError):
            await hosted.backend.evict(1)
    await hosted.backend.evict(1)  # as the manager does from time to time
    assert not hosted.backend._instances


class Card:
    """The memory of a device, of which some servers each have a share while they are alive, and what stays of it."""

    def __init__(self, *shares: int) -> None:
        self.shares = list(shares)
        self.stays = [0 for _ in shares]
        self.backends: list[ProcessBackend] = []

    def __call__(self, name: str) -> int:
        free = 10 * GIB
        for backend, share, stays in zip(self.backends, self.shares, self.stays, strict=True):
            is_alive = any(instance.server.is_alive for instance in list(backend._instances.values()))
            free -= max(share if is_alive else 0, stays)
        return free


async def test_memory_that_stays_when_it_has_ended_is_told_and_held(host: Callable[..., Any]) -> None:
    card = Card(GIB)
    hosted = await host(odd(memory_of=card, settle_s=0.2))
    card.backends.append(hosted.backend)
    await hosted.restored()
    card.stays = [GIB // 2]
    for _ in range(2):  # the manager asks from time to time
        with pytest.raises(
            StillHeldError, match=r"judge/1: its server has ended, and 0.50 GiB of cpu:0 became free instead of 1.00"
        ):
            await hosted.backend.evict(1)
    card.stays = [0]
    await hosted.backend.evict(1)
    await hosted.restored()
    await hosted.backend.evict(1)


async def test_it_is_evicted_where_what_measures_is_wrong(host: Callable[..., Any]) -> None:
    readings = {"cpu:0": GIB}
    hosted = await host(odd(memory_of=readings.__getitem__))
    service = await hosted.restored()
    pid = (await service.call("/echo", {}))["pid"]
    readings.clear()
    await hosted.backend.evict(1)
    assert not await is_alive(pid)


async def test_memory_of_a_start_that_failed_is_looked_at(host: Callable[..., Any]) -> None:
    card = Card(GIB)
    hosted = await host(odd("sick", start_s=1, memory_of=card, settle_s=0.2))
    card.backends.append(hosted.backend)
    with pytest.raises(RestoreError, match="was not healthy") as caught:
        await hosted.restored()
    assert not isinstance(caught.value, StillHeldError)
    restoring = asyncio.create_task(hosted.restored())
    async with asyncio.timeout(20):
        while card("cpu:0") == 10 * GIB:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    card.stays = [GIB]
    with pytest.raises(StillHeldError, match=r"0.00 GiB of cpu:0 became free"):
        await restoring
    card.stays = [0]
    await hosted.backend.evict(1)


async def test_what_a_neighbour_takes_during_its_start_is_not_missed_at_its_end(host: Callable[..., Any]) -> None:
    class Shared(Card):
        """A neighbour takes 1.5 GiB as soon as the server runs, and keeps them."""

        taken = 0

        def __call__(self, name: str) -> int:
            free = super().__call__(name)
            if free < 10 * GIB:
                self.taken = GIB * 3 // 2
            return free - self.taken

    card = Shared(GIB)
    hosted = await host(odd(memory_of=card, settle_s=0.2))
    card.backends.append(hosted.backend)
    await hosted.restored()
    assert card("cpu:0") == 10 * GIB - GIB * 5 // 2
    await hosted.backend.evict(1)
    await hosted.restored()
    await hosted.backend.evict(1)


async def test_memory_that_stays_when_it_has_died_is_told_and_held(host: Callable[..., Any]) -> None:
    card = Card(GIB)
    hosted = await host(odd(memory_of=card, settle_s=0.2))
    card.backends.append(hosted.backend)
    service = await hosted.restored()
    card.stays = [GIB * 3 // 4]
    with pytest.raises(ServiceLostError):
        await service.call("/exit")
    async with asyncio.timeout(20):
        _, error = await hosted.lost.get()
    assert isinstance(error, StillHeldError)
    assert str(error).startswith("judge/1: its server ended with exit code 3")
    assert str(error).endswith("and 0.75 GiB of cpu:0 are not free that were before it began")
    with pytest.raises(StillHeldError, match=r"judge/1: its server has died, and 0.75 GiB of cpu:0 are not free"):
        await hosted.backend.evict(1)
    card.stays = [0]
    await hosted.backend.evict(1)  # as the manager does from time to time
    await hosted.restored()
    await hosted.backend.evict(1)


async def test_what_it_gives_up_by_itself_or_by_its_death_is_not_missed(host: Callable[..., Any]) -> None:
    card = Card(GIB)
    hosted = await host(odd(memory_of=card, settle_s=0.2))
    card.backends.append(hosted.backend)
    await hosted.restored()
    card.shares = [0]
    await hosted.backend.evict(1)
    card.shares = [GIB]
    service = await hosted.restored()
    with pytest.raises(ServiceLostError):
        await service.call("/exit")
    async with asyncio.timeout(20):
        await hosted.lost.get()
    await hosted.restored()
    await hosted.backend.evict(1)


async def test_servers_of_one_device_start_and_end_in_turn_so_that_each_is_measured(host: Callable[..., Any]) -> None:
    card = Card(GIB, 3 * GIB)
    both = [await host(odd(gpu_gib=gib, memory_of=card, settle_s=0.2)) for gib in (1, 3)]
    card.backends += [hosted.backend for hosted in both]
    await asyncio.gather(*(hosted.restored() for hosted in both))
    ending = asyncio.create_task(both[0].backend.evict(1))
    await both[1].backend.evict(1)
    again = asyncio.create_task(both[1].restored())
    await ending
    await again
    card.stays[1] = 2 * GIB
    with pytest.raises(StillHeldError, match=r"1.00 GiB of cpu:0 became free instead of 3.00"):
        await both[1].backend.evict(1)
    await both[0].restored()  # what another one has left is not missed from this one
    await both[0].backend.evict(1)


async def test_closing_ends_a_start_that_is_under_way(host: Callable[..., Any]) -> None:
    hosted = await host(odd("deaf", "stubborn", stop_s=0.2))
    restoring = asyncio.create_task(hosted.restored())
    async with asyncio.timeout(20):
        while not (instances := hosted.backend._instances) or not instances[1].server.is_alive:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    server = instances[1].server
    await hosted.backend.aclose()
    assert server.is_gone
    with pytest.raises(RestoreError):
        await restoring


@pytest.mark.parametrize(
    "path", ["Once upon a time", "", "//x/echo", "http://127.0.0.1:1/x", {"prompt": "Once"}, "/\0"]
)
async def test_what_is_no_path_is_sent_nowhere(path: Any, host: Callable[..., Any]) -> None:
    service = await (await host(odd())).restored()
    with pytest.raises(UsageError, match=r"takes a path of the server|is no path"):
        await service.call(path, {})
    assert (await service.call("/echo", {"n": 1}))["body"] == {"n": 1}


async def test_closing_at_once_starts_nothing(host: Callable[..., Any]) -> None:
    hosted = await host(odd())
    restoring = asyncio.create_task(hosted.restored())
    await asyncio.sleep(0)
    server = hosted.backend._instances[1].server
    await hosted.backend.aclose()
    with pytest.raises(RestoreError, match="its pool was closed"):
        await restoring
    assert server.is_gone
    assert not server.is_alive


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/500", ServiceLostError, "was answered with 500: as you wish"),
        ("/429", ServiceLostError, "429"),
        ("/404", UsageError, "GET /404 was answered with 404"),
        ("/nonsense", ServiceLostError, "is no JSON: {not json"),
        ("/aborted", ServiceLostError, "cut the answer off"),
        ("/slow", ServiceLostError, "was not answered within 0.5 s"),
    ],
)
async def test_bad_answers_are_errors(host: Callable[..., Any], path: str, error: type[Exception], words: str) -> None:
    hosted = await host(odd(call_s=0.5))
    service = await hosted.restored()
    with pytest.raises(error, match=words):
        await service.call(path)
    assert await service.call("/text") == "plain"
    assert await service.call("/empty") is None


@tangram.action(service="teacher")
async def teach(prompt: str) -> float:
    answer = await tangram.current_service().call(
        "/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1}
    )
    logprob: float = answer["choices"][0]["logprobs"]["content"][0]["logprob"]
    return logprob


@tangram.action(service="judge")
async def judge(number: int) -> tuple[int, int]:
    told = await tangram.current_service().call("/echo", {"number": number})
    return told["body"]["number"], told["pid"]


@tangram.action(service="other")
async def judge_elsewhere(number: int) -> tuple[int, int]:
    return await judge.body(number)


@tangram.action(service="judge")
async def judge_slowly(begun: asyncio.Event) -> int:
    begun.set()
    told = await tangram.current_service().call("/later")
    pid: int = told["pid"]
    return pid


def room_for_one(*services: ProcessService) -> GpuPool:
    return GpuPool(*services, devices=["cpu:0:300MiB"])


async def test_servers_take_turns_in_a_pool() -> None:
    """A real server and another one, in a pool that has room for one of them."""
    async with Tangram(FakePool(cores=1), room_for_one(llama(), odd("workers", gpu_gib=0.25))) as tg:
        first = await tg.run(teach, "The capital of France is")
        number, pid = await tg.run(judge, 7)
        assert number == 7
        assert await is_alive(pid)
        assert await tg.run(teach, "The capital of France is") == first
        assert not await is_alive(pid)
        _, again = await tg.run(judge, 8)
    assert not await is_alive(again)


async def test_case_106_calls_to_a_server_that_is_stopped_share_one_start() -> None:
    async with Tangram(FakePool(cores=1), room_for_one(odd(gpu_gib=0.25))) as tg:
        answers = await asyncio.gather(*(tg.run(judge, number) for number in range(32)))
        assert [number for number, _ in answers] == list(range(32))
        assert len({pid for _, pid in answers}) == 1


async def test_case_120_a_server_is_stopped_after_its_last_answer() -> None:
    services = odd(gpu_gib=0.25), replace(odd(gpu_gib=0.25), name="other")
    async with Tangram(FakePool(cores=1), room_for_one(*services)) as tg:
        begun = asyncio.Event()
        slow = asyncio.create_task(tg.run(judge_slowly, begun))
        await begun.wait()
        _, pid = await tg.run(judge_elsewhere, 1)  # wants the room that is in use
        assert slow.done()
        assert await slow != pid
        assert not await is_alive(await slow)


async def test_a_server_that_cannot_be_started_is_an_error_of_the_infrastructure() -> None:
    async with Tangram(FakePool(cores=1), GpuPool(odd("exits"), devices=["cpu:0:2GiB"])) as tg:
        with pytest.raises(RestoreError, match=r"no such model") as caught:
            await tg.run(judge, 1)
        assert isinstance(caught.value, InfrastructureError)


async def test_what_it_needs_is_told() -> None:
    host = HostMemory(4 * GIB)
    backend = odd(gpu_gib=1.5, dops=(2, 1), host_gib=1, restore_s=7, max_concurrency=3, exclusive=True).backend()
    hosted = await backend.open(host, [FakeDevice("cpu:0", GIB)])
    needs = Footprint(GIB * 3 // 2, GIB * 3 // 2)
    assert hosted.footprints == ((1, needs), (2, needs))
    assert hosted.restore_s == ((1, 7), (2, 7))
    assert (hosted.name, hosted.max_concurrency, hosted.exclusive, hosted.chunks) == ("judge", 3, True, ())
    assert host.used_bytes == 2 * GIB
    await backend.aclose()
    assert host.used_bytes == 0
    await host.aclose()


async def test_what_cannot_be_hosted_is_refused() -> None:
    host = HostMemory(GIB)
    with pytest.raises(
        ConfigurationError, match=r"ProcessService\('judge'\): there is no program '/no/such/server' to launch"
    ):
        await odd(launch=["/no/such/server", "{port}"]).backend().open(host, [])
    with pytest.raises(ConfigurationError, match="judge"):
        await odd(host_gib=2).backend().open(host, [])
    await host.aclose()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"launch": "server {port}"}, "a list of words"),
        ({"launch": []}, "a list of words"),
        ({"launch": ["server", 8000]}, "a list of words"),
        ({"launch": ["server", "--port", "8000"]}, r"neither launch= nor env= has \{port\}"),
        ({"launch": ["server"], "url": "http://127.0.0.1:8000", "dops": (1, 2)}, "is one place"),
        ({"url": "127.0.0.1:{port}"}, "url="),
        ({"url": "http://127.0.0.1:http"}, "url="),
        ({"url": 8000}, "url="),
        ({"health": "health"}, "health="),
        ({"dops": (1, 3)}, "dops="),
        ({"dops": ()}, "dops="),
        ({"gpu_gib": -1}, "gpu_gib"),
        ({"gpu_gib": "2"}, "gpu_gib"),
        ({"start_s": 0}, "start_s"),
        ({"stop_s": math.inf}, "stop_s"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"exclusive": "no"}, "exclusive"),
        ({"env": {"A": 1}}, "env="),
        ({"env": {"A=B": "1"}}, "env="),
        ({"env": ["A"]}, "env="),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env= must not have CUDA_VISIBLE_DEVICES"),
        ({"env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}, "env= must not have CUDA_DEVICE_ORDER"),
        ({"memory_of": 3}, "memory_of= takes a function"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        odd(**options)
    assert str(caught.value).startswith("ProcessService('judge')")


def test_a_name_without_meaning_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name of a service"):
        ProcessService("a judge", launch=["server", "{port}"], gpu_gib=1)
