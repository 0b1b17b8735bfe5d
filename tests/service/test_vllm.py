"""`VllmService` against a stand-in for vLLM 0.33.0 (standin_engines.py), over real HTTP: no real one can run here."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from arl_tangram.errors import ConfigurationError, EvictedServiceError, RestoreError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.probe import Probe
from arl_tangram.services.vllm import VllmService
from hosted_engine import declare, hosting, until
from standin_engines import GIB, Faults, StandInVllm

STAND_IN = Path(__file__).parent.parent / "standin_engines.py"


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


async def test_chat_and_other_routes() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        messages = [{"role": "user", "content": "Hello"}]
        answer = await engine.ask(messages, temperature=0)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert server.bodies[-1] == {"model": "stand-in", "messages": messages, "temperature": 0}
        await engine.ask("/v1/embeddings", {"input": "Hello"}, user="me")
        assert server.bodies[-1] == {"model": "stand-in", "input": "Hello", "user": "me"}


async def test_the_service_of_an_action_says_where_it_is_and_ends_with_it() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        service = engine.backend.service(1)
        assert (service.name, service.dop, service.devices) == ("judge", 1, ("meta",))
        assert (service.url, service.model) == (server.url, "stand-in")  # type: ignore[attr-defined]
        engine.backend.end(service)
        with pytest.raises(EvictedServiceError, match="has ended"):
            await service.call("Hello")


@pytest.mark.parametrize("args", [(), (3,), ("Hello", {"a": 1}), ("/v1/embeddings", "text"), ({"prompt": "x"},)])
async def test_a_call_that_makes_no_sense_is_not_sent(args: tuple[Any, ...]) -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        sent = len(server.log)
        with pytest.raises(UsageError, match="takes a prompt"):
            await engine.ask(*args)
        assert len(server.log) == sent


@pytest.mark.parametrize("path", ["/sleep", "/wake_up?tags=weights", "/pause", "/collective_rpc"])
async def test_no_action_may_put_it_to_sleep(path: str) -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        with pytest.raises(UsageError, match="for the scheduler alone"):
            await engine.ask(path, {})
        with pytest.raises(UsageError, match="streams"):
            await engine.ask("Hello", stream=True)
        assert not server.is_paused


async def test_what_is_wrong_with_a_request_is_the_callers_fault() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        with pytest.raises(UsageError, match=r"404: .*does not exist"):
            await engine.ask("Hello", model="other")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_is_wrong_with_the_server_is_not(status: int) -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.call_status = status
        with pytest.raises(ServiceLostError, match=f"was answered with {status}"):
            await engine.ask("Hello")
        server.faults.call_status = 0
        await engine.ask("Hello")
        assert engine.lost == []


async def test_an_answer_that_was_cut_off_is_a_failure() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.aborts = True
        with pytest.raises(ServiceLostError, match="finish_reason 'abort'"):
            await engine.ask("Hello")


async def test_a_cancelled_call_ends_at_the_server_and_does_not_hold_up_an_eviction() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.call_s = 3600
        asking = asyncio.ensure_future(engine.ask("Hello"))
        await until(lambda: server.running == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await engine.evict()
        assert server.executor_sleeps


async def test_a_call_has_a_limit() -> None:
    async with StandInVllm() as server, hosting(declare(server, call_s=0.1)) as engine:
        await engine.restore()
        server.faults.call_s = 3600
        with pytest.raises(ServiceLostError, match=r"did not answer /v1/completions within 0\.1 s"):
            await engine.ask("Hello")
        await until(lambda: server.running == 0)


async def test_two_devices_are_watched_both() -> None:
    async with StandInVllm() as server:
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
    options: dict[str, Any], said: str
) -> None:
    async with StandInVllm() as server:
        with pytest.raises(ConfigurationError, match=said):
            async with hosting(declare(server, **options), devices=["gpu:0", "gpu:1", "gpu:2", "gpu:3"]):
                pass
        assert server.log == []


async def test_no_server_is_refused() -> None:
    async with StandInVllm() as server:
        await server.stop()
        with pytest.raises(ConfigurationError, match=f"{server.url} does not answer"):
            async with hosting(declare(server)):
                pass


async def test_a_server_without_sleep_mode_is_refused() -> None:
    async with StandInVllm(faults=Faults(sleep_status=404)) as server:
        with pytest.raises(ConfigurationError, match="404"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_frees_nothing_is_refused() -> None:
    async with StandInVllm(faults=Faults(frees_nothing=True)) as server:
        with pytest.raises(ConfigurationError, match=r"0\.00 GiB of a device became free instead of 4\.00 GiB"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_has_more_than_was_said_is_refused() -> None:
    async with StandInVllm(resident_bytes=12 * GIB) as server:
        with pytest.raises(ConfigurationError, match=r"gave up 11\.00 GiB of a device, more than gpu_gib=8"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_answers_at_random_is_refused() -> None:
    async with StandInVllm(faults=Faults(probe_varies=True)) as server:
        with pytest.raises(ConfigurationError, match="does not answer /v1/completions as it did before"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_cuts_its_first_answer_off_is_refused() -> None:
    async with StandInVllm(faults=Faults(aborts=True)) as server:
        with pytest.raises(ConfigurationError, match="was cut off"):
            async with hosting(declare(server)):
                pass


async def test_a_server_that_does_not_answer_the_question_is_refused() -> None:
    async with StandInVllm(faults=Faults(call_s=3600)) as server:
        with pytest.raises(ConfigurationError, match=r"was not answered within 0\.1 s"):
            async with hosting(declare(server, probe=Probe(limit_s=0.1))):
                pass


async def test_one_that_was_left_asleep_is_woken_when_it_is_opened() -> None:
    async with StandInVllm() as server:
        async with hosting(declare(server)):
            assert server.executor_sleeps
        assert server.executor_sleeps  # left as it was
        async with hosting(declare(server, asleep_gib=1)) as engine:
            await engine.restore()
            await engine.ask("Hello")


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


async def test_an_embedding_model_has_a_question_of_its_own_or_none() -> None:
    async with StandInVllm() as server:
        for probe in (Probe(path="/v1/embeddings", body={"input": "Hello"}), None):
            async with hosting(declare(server, probe=probe)) as engine:
                await engine.restore()
                await engine.evict()


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


async def test_a_server_that_lies_later_is_found_out() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.faults.frees_nothing = True
        for _ in range(2):
            with pytest.raises(RestoreError, match=r"0\.00 GiB of a device became free instead of 7\.00 GiB"):
                await engine.evict()
        server.used_bytes = GIB
        await engine.evict()


async def test_a_hanging_wake_is_never_met_by_another_call() -> None:
    async with StandInVllm() as server, hosting(declare(server, transition_s=0.1)) as engine:
        server.faults.wake_hangs = True
        for _ in range(2):
            with pytest.raises(StillHeldError, match=r"waking for more than 0\.1 s"):
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
    async with StandInVllm() as server, hosting(declare(server, transition_s=0.1)) as engine:
        await engine.restore()
        server.faults.sleep_hangs = True
        with pytest.raises(RestoreError, match=r"sleeping for more than 0\.1 s"):
            await engine.evict()
        waking = asyncio.ensure_future(engine.restore())
        await asyncio.sleep(0.02)
        server.released.set()
        await waking
        assert server.calls("/sleep", "/wake_up") == ["/sleep", "/wake_up", "/sleep", "/wake_up"]
        await engine.ask("Hello")
        assert not server.is_corrupt


async def test_other_weights_after_a_wake_fail_the_restore() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.other_weights = True
        with pytest.raises(RestoreError, match=r"came back and is not usable: it does not answer .* as it did before"):
            await engine.restore()
        assert server.used_bytes == GIB
        server.faults.other_weights = False
        server.now = server.weights  # loaded again by whoever it belongs to
        await engine.restore()


async def test_rubbish_after_a_wake_fails_the_restore() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.rubbish = True
        with pytest.raises(RestoreError, match=r"answer has no '(model|choices)'"):
            await engine.restore()


async def test_one_that_dies_while_it_sleeps_is_an_error_until_it_is_back() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await server.stop()
        with pytest.raises(RestoreError, match="did not wake"):
            await engine.restore()
        await engine.evict()
        await server.start()
        await engine.restore()
        await engine.ask("Hello")
        assert engine.lost == []


async def test_one_that_dies_of_a_call_is_told_as_lost() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
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


async def test_one_whose_engine_dies_behind_its_server_is_told_as_lost() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        await engine.restore()
        server.engine_is_dead = True
        server.faults.call_status = 500
        with pytest.raises(ServiceLostError, match="500"):
            await engine.ask("Hello")
        await until(lambda: bool(engine.lost))


async def test_one_that_dies_of_a_wake_is_an_error() -> None:
    async with StandInVllm() as server, hosting(declare(server)) as engine:
        server.faults.dies_at = "/wake_up"
        with pytest.raises(RestoreError, match="did not wake"):
            await engine.restore()
        await engine.evict()


# Servers that we launch.


class Launched:
    """A stand-in that runs as a process, found by what it prints."""

    def __init__(self, tmp_path: Path, kind: str, faults: dict[str, Any] | None = None) -> None:
        self.ports = tmp_path / "ports"
        script = tmp_path / "server.py"
        # A shell in between, as launch scripts have one: what is killed must be all of it.
        script.write_text(
            "import subprocess, sys\n"
            f"open({str(self.ports)!r}, 'a').write(sys.argv[1] + '\\n')\n"
            f"words = [{sys.executable!r}, {str(STAND_IN)!r}, {kind!r}, '--port', sys.argv[1]]\n"
            f"words += ['--faults', {json.dumps(json.dumps(faults or {}))}]\n"
            "sys.exit(subprocess.run(words).returncode)\n"
        )
        self.words = [sys.executable, str(script), "{port}"]

    def tell(self, **faults: Any) -> dict[str, Any]:
        """Tell it what goes wrong from now on; return what it says of itself."""
        port = self.ports.read_text().split()[-1]
        data = json.dumps(faults).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/standin", data), timeout=10) as answer:
            told: dict[str, Any] = json.loads(answer.read())
        return told

    async def told(self, **faults: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.tell, **faults)

    def free(self, name: str) -> int:
        try:
            return 16 * GIB - int(self.tell()["used_bytes"])
        except (URLError, ConnectionError):
            return 16 * GIB

    @property
    def starts(self) -> int:
        return len(self.ports.read_text().split())

    def declared(self, **options: Any) -> VllmService:
        given = {"gpu_gib": 8, "settle_s": 1, "stop_s": 5, "start_s": 30, "memory_of": self.free}
        return VllmService("judge", launch=self.words, **{**given, **options})


async def test_a_launched_server_is_started_put_to_sleep_used_and_ended(tmp_path: Path) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared(), devices=["GPU-1234"]) as engine:
        await engine.restore()
        await engine.ask("Hello")
        process = Path(f"/proc/{(await launched.told())['pid']}")
        environ = await asyncio.to_thread((process / "environ").read_bytes)
        assert {b"VLLM_SERVER_DEV_MODE=1", b"CUDA_VISIBLE_DEVICES=GPU-1234"} <= set(environ.split(b"\0"))
    assert not await asyncio.to_thread(process.exists)
    assert launched.starts == 1


async def test_a_launched_server_that_dies_asleep_is_started_anew(tmp_path: Path) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared()) as engine:
        await launched.told(dies_at="/wake_up")
        await engine.restore()
        await engine.ask("Hello")
        assert launched.starts == 2
        assert engine.lost == []


async def test_a_launched_server_that_dies_of_a_call_is_told_as_lost_and_started_anew(tmp_path: Path) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared()) as engine:
        await engine.restore()
        await launched.told(dies_at="/v1/completions")
        with pytest.raises(ServiceLostError):
            await engine.ask("Hello")
        await until(lambda: bool(engine.lost))
        await engine.restore()
        await engine.ask("Hello")
        assert launched.starts == 2


@pytest.mark.parametrize(
    "fault", [{"wake_status": 500}, {"wake_hangs": True}, {"other_weights": True}, {"rubbish": True}]
)
async def test_a_launched_server_that_cannot_be_restored_is_started_anew(tmp_path: Path, fault: dict[str, Any]) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared(transition_s=1)) as engine:
        await launched.told(**fault)
        await engine.restore()
        await engine.ask("Hello")
        assert launched.starts == 2


@pytest.mark.parametrize("fault", [{"sleep_status": 500}, {"sleep_hangs": True}, {"frees_nothing": True}])
async def test_a_launched_server_that_does_not_sleep_is_ended(tmp_path: Path, fault: dict[str, Any]) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared(transition_s=1)) as engine:
        await engine.restore()
        process = Path(f"/proc/{(await launched.told(**fault))['pid']}")
        await engine.evict()
        assert not await asyncio.to_thread(process.exists)
        await engine.restore()
        assert launched.starts == 2


async def test_a_command_that_fails_says_what_it_printed() -> None:
    declared = VllmService("judge", launch=[sys.executable, "-c", "exit('no such model')", "{port}"], gpu_gib=8)
    with pytest.raises(ConfigurationError, match=r"(?s)judge.*exit code 1.*no such model"):
        async with hosting(declared):
            pass


async def test_what_listens_there_already_is_not_taken_for_a_server_of_ours() -> None:
    async with StandInVllm() as other:
        command = [sys.executable, "-c", "import time; time.sleep(99)"]
        with pytest.raises(ConfigurationError, match=r"something listens at .* already"):
            async with hosting(VllmService("judge", launch=command, url=other.url, gpu_gib=8)):
                pass
        assert other.log == []


async def test_a_launched_server_may_listen_where_its_command_says() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, str(STAND_IN), "vllm", "--port", port]
    declared = VllmService("judge", launch=command, url=f"http://127.0.0.1:{port}", gpu_gib=8, start_s=30)
    async with hosting(declared) as engine:
        await engine.restore()
        await engine.ask("Hello")


async def test_a_server_that_is_never_ready_is_ended() -> None:
    declared = VllmService(
        "judge",
        launch=[sys.executable, "-c", "import time; time.sleep(99)", "{port}"],
        gpu_gib=8,
        start_s=0.5,
        stop_s=1,
    )
    with pytest.raises(ConfigurationError, match=r"not healthy after 0\.5 s"):
        async with hosting(declared):
            pass


async def test_a_server_that_fails_to_start_again_is_an_error(tmp_path: Path) -> None:
    launched = Launched(tmp_path, "vllm")
    async with hosting(launched.declared()) as engine:
        await asyncio.to_thread((tmp_path / "server.py").write_text, "exit('the disk is full')")
        await launched.told(dies_at="/wake_up")
        with pytest.raises(RestoreError, match=r"(?s)in vain.*the disk is full"):
            await engine.restore()
        await engine.evict()
