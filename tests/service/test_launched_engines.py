"""Engines that we launch: a stand-in for vLLM (standin_engines.py) as a process of its own."""

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

from arl_tangram.errors import ConfigurationError, RestoreError, ServiceLostError
from arl_tangram.services.vllm import VllmService
from hosted_engine import hosting, until
from standin_engines import GIB, StandInVllm

STAND_IN = Path(__file__).parent.parent / "standin_engines.py"


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
