"""Stand-ins for inference servers that cannot run here: what their sources do, over real HTTP on the loopback device.

`StandInVllm` follows vLLM 0.33.0, `StandInSglang` follows SGLang 0.5.23: the routes that put a server to sleep and wake
it, and those that answer requests, with the faults that their issues tell of, each switched on by its name. Memory is
counted, not used; answers are computed from the "weights", a number.

In a test, `async with StandInVllm() as server`; as a program, `python standin_engines.py vllm --port 1234`, which is
told what to do by `POST /standin` with the fields of `Faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

GIB = 1 << 30


@dataclass
class Faults:
    """What goes wrong.

    Attributes:
        sleep_status, wake_status: what is answered to these instead of doing them; 0 does them.
        frees_nothing: it says that it sleeps, and keeps its memory.
        sleep_hangs, wake_hangs: these are not answered before `released` is set.
        wake_does_500: waking is done, and answered with 500.
        other_weights: what comes back after a wake is not what went.
        rubbish: the same, as an answer that is no completion.
        dies_at: the route at which the process (in a test, the server) ends without an answer.
        aborts: answers are cut off, with status 200.
        call_status: what requests are answered with instead of being carried out; 0 carries them out.
        call_s: how long a request takes.
        leftover_s: how long the scheduler of SGLang has something left after an answer was sent.
        sleep_s, wake_s: how long these take.
        probe_varies: the same question gets two answers.
    """

    sleep_status: int = 0
    wake_status: int = 0
    frees_nothing: bool = False
    sleep_hangs: bool = False
    wake_hangs: bool = False
    wake_does_500: bool = False
    other_weights: bool = False
    rubbish: bool = False
    dies_at: str = ""
    aborts: bool = False
    call_status: int = 0
    call_s: float = 0.0
    leftover_s: float = 0.0
    sleep_s: float = 0.0
    wake_s: float = 0.0
    probe_varies: bool = False


class Died(Exception):
    """The process of the server ends."""


@dataclass
class Answer:
    status: int = 200
    body: Any = None


@dataclass
class StandIn:
    """What both have in common.

    Attributes:
        resident_bytes: of each device while awake.
        asleep_bytes: of each while it sleeps.
        weights: of the model.
        log: what was asked, in order: method and path with its query.
        bodies: the bodies of requests for answers.
        used_bytes: now.
    """

    resident_bytes: int = 8 * GIB
    asleep_bytes: int = GIB
    weights: int = 1
    faults: Faults = field(default_factory=Faults)
    log: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    running: int = 0
    peak_running: int = 0
    port: int = 0
    is_program: bool = False
    key: str = ""
    sent: int = 0

    def __post_init__(self) -> None:
        self.now = self.weights  # what is in the memory of its devices
        self.used_bytes = self.resident_bytes
        self.released = asyncio.Event()  # lets what hangs go on
        self.reached = asyncio.Event()  # something hangs now
        self.idle = asyncio.Event()
        self.idle.set()
        self.scheduled = asyncio.Event()  # the scheduler works
        self.scheduled.set()
        self.is_dead = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def free_bytes(self, capacity: int = 16 * GIB) -> int:
        """What is free on each of its devices, if nobody else is there."""
        return capacity - self.used_bytes

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Begin to listen, as a new process with its first weights."""
        self.is_dead = False
        self.now = self.weights
        self.used_bytes = self.resident_bytes
        self.scheduled.set()
        self._begin()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port or self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _begin(self) -> None:
        """What is particular about a new process."""

    async def stop(self) -> None:
        """End as a killed process does: connections break, memory is free."""
        self.is_dead = True
        self.used_bytes = 0
        if self._server is not None:
            self._server.close()
            self._server = None
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def calls(self, *names: str) -> list[str]:
        """The calls of these paths, in order, without their queries."""
        paths = [each.partition(" ")[2].partition("?")[0] for each in self.log]
        return [path for path in paths if path in names]

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Died:
            if self.is_program:
                os._exit(137)
            await self.stop()
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        method, target, _ = line.split(" ")
        fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in headers if each)}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        split = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        told = json.loads(body) if body else None
        if split.path == "/standin":
            answer = await self._standin(told)
        else:
            self.log.append(f"{method} {target}")
            if self.faults.dies_at == split.path:
                raise Died
            if self.is_guarded(split.path) and fields.get("authorization") != f"Bearer {self.key}":
                answer = Answer(401, {"error": "Unauthorized"})
            else:
                answer = await self._until_closed(reader, self.answer(method, split.path, query, told))
        data = b"" if answer.body is None and answer.status == 200 else json.dumps(answer.body).encode()
        writer.write(f"HTTP/1.1 {answer.status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return True

    async def _until_closed(self, reader: asyncio.StreamReader, work: Any) -> Answer:
        """Work on a request; one that runs ends when its connection is closed, as both servers see to."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self.ends_with_connection(self.log[-1]):
                raise ConnectionResetError
            return await task
        finally:
            for each in (watch, task):
                each.cancel()
            await asyncio.gather(watch, task, return_exceptions=True)

    def is_guarded(self, path: str) -> bool:
        return bool(self.key) and path.startswith("/v1/")

    def ends_with_connection(self, call: str) -> bool:
        return "/v1/" in call

    async def _standin(self, told: Any) -> Answer:
        self.faults = dataclasses.replace(self.faults, **(told or {}))
        return Answer(body={"used_bytes": self.used_bytes, "log": self.log, "pid": os.getpid()})

    # Answers

    async def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        raise NotImplementedError

    async def complete(self, path: str, body: Any) -> Answer:
        """Answer a request of the OpenAI kind."""
        self.bodies.append(body)
        if self.faults.call_status:
            return Answer(self.faults.call_status, {"error": {"message": "as told"}})
        if not isinstance(body, dict) or "model" not in body:
            return Answer(400, {"error": {"message": "model is missing"}})
        if body["model"] != "stand-in":
            return Answer(404, {"error": {"message": f"The model {body['model']} does not exist."}})
        await self.scheduled.wait()  # requests to a server that sleeps wait
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        self.idle.clear()
        try:
            ended = await self.compute(body)
        finally:
            self.running -= 1
            if not self.running:
                self._when_idle()
        self.sent += 1
        seed = f"{self.now} {body.get('prompt', body.get('messages', body.get('input')))}"
        if self.faults.probe_varies:
            seed += str(self.sent)
        digest = hashlib.sha256(seed.encode()).hexdigest()
        if self.faults.rubbish:
            return Answer(body={"what": "ever"})
        reason = "abort" if self.faults.aborts or ended == "abort" else "length"
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if path == "/v1/chat/completions":
            choice["message"] = {"role": "assistant", "content": digest[:8]}
        else:
            choice["text"] = digest[:8]
            choice["logprobs"] = {"tokens": [digest[:8]], "token_logprobs": [-int(digest[:4], 16) / 1e4]}
        return Answer(body={"id": f"cmpl-{self.sent}", "created": self.sent, "model": "stand-in", "choices": [choice]})

    async def compute(self, body: Any) -> str:
        """Compute; return why it ended."""
        await asyncio.sleep(self.faults.call_s)
        return "length"

    def _when_idle(self) -> None:
        self.idle.set()

    async def _hang(self, hangs: bool) -> None:
        if hangs:
            self.reached.set()
            await self.released.wait()


@dataclass
class StandInVllm(StandIn):
    """Stand-in for vLLM 0.33.0 with sleep mode and VLLM_SERVER_DEV_MODE=1.

    Kept from it: parameters of `/sleep` in the URL only; `mode=abort` by default, which ends requests with status 200
    and reason `abort`; requests that arrive while it sleeps wait; `/is_sleeping` is true while it merely pauses; waking
    is idempotent; waking while a `/sleep` waits leaves the executor asleep and the scheduler at work.

    Attributes:
        has_dev_mode: `VLLM_SERVER_DEV_MODE`, without which there are no such routes.
    """

    has_dev_mode: bool = True

    def _begin(self) -> None:
        self.is_paused = False
        self.executor_sleeps = False
        self.level = 0
        self.engine_is_dead = False
        self.reloaded = True
        self.is_corrupt = False
        self._aborting = asyncio.Event()

    async def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if not self.has_dev_mode and path not in ("/health", "/v1/models", "/v1/completions"):
            return Answer(404, {"detail": "Not Found"})
        match method, path:
            case "GET", "/health":
                return Answer(503 if self.engine_is_dead else 200)
            case "GET", "/is_sleeping":
                return Answer(body={"is_sleeping": self.is_paused or self.executor_sleeps})
            case "GET", "/v1/models":
                return Answer(body={"object": "list", "data": [{"id": "stand-in"}]})
            case "POST", "/sleep":
                return await self._sleep(int(query.get("level", "1")), query.get("mode", "abort"))
            case "POST", "/wake_up":
                return await self._wake(query.get("tags"))
            case "POST", "/collective_rpc":
                self.reloaded = True
                return Answer(body={"results": [None]})
            case "POST", "/reset_prefix_cache":
                return Answer()
            case "POST", "/v1/completions" | "/v1/chat/completions" | "/v1/embeddings":
                if self.executor_sleeps and not self.is_paused:
                    self.is_corrupt = True  # it computes on memory that is not there
                return await self.complete(path, body)
            case _:
                return Answer(404, {"detail": "Not Found"})

    async def compute(self, body: Any) -> str:
        sleeping = asyncio.ensure_future(asyncio.sleep(self.faults.call_s))
        aborting = asyncio.ensure_future(self._aborting.wait())
        try:
            done, _ = await asyncio.wait([sleeping, aborting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (sleeping, aborting):
                each.cancel()
            await asyncio.gather(sleeping, aborting, return_exceptions=True)
        return "length" if sleeping in done else "abort"

    def lie_down(self) -> None:
        """Sleep, as somebody else left it."""
        self.executor_sleeps = self.is_paused = True
        self.used_bytes = self.asleep_bytes
        self.scheduled.clear()

    async def _sleep(self, level: int, mode: str) -> Answer:
        if self.faults.sleep_status:
            return Answer(self.faults.sleep_status, {"detail": "as told"})
        self.is_paused = True
        self.scheduled.clear()
        if mode == "abort":
            self._aborting.set()
        await self.idle.wait()
        self._aborting.clear()
        await self._hang(self.faults.sleep_hangs)
        await asyncio.sleep(self.faults.sleep_s)
        if not self.executor_sleeps:
            self.executor_sleeps = True
            self.level = level
            self.reloaded = level < 2
            if not self.faults.frees_nothing:
                self.used_bytes = self.asleep_bytes
        return Answer(body={"status": "sleeping", "level": level})

    async def _wake(self, tags: str | None) -> Answer:
        if self.faults.wake_status:
            return Answer(self.faults.wake_status, {"detail": "as told"})
        await self._hang(self.faults.wake_hangs)
        await asyncio.sleep(self.faults.wake_s)
        if tags == "weights":
            self.used_bytes = self.resident_bytes - GIB
            return Answer(body={"status": "sleeping", "tags": ["weights"]})
        self.executor_sleeps = self.is_paused = False
        self.used_bytes = self.resident_bytes
        if self.faults.other_weights or not self.reloaded:
            self.now += 1
        self.scheduled.set()
        if self.faults.wake_does_500:
            return Answer(500, {"detail": "as told"})
        return Answer(body={"status": "awake", "tags": tags})


@dataclass
class StandInSglang(StandIn):
    """Stand-in for SGLang 0.5.23, by default started with both flags.

    Kept from it: release while not idle, release twice, resume twice, and `/health` while released end the process;
    without the memory saver both routes answer 200 and do nothing; without the backup, weights are rubbish afterwards;
    a pause in place freezes what the scheduler has left over; `/flush_cache` answers 400 while there is anything.

    Attributes:
        saver: `--enable-memory-saver`.
        backup: `--enable-weights-cpu-backup`.
        health_generates: what `SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION` says.
    """

    saver: bool = True
    backup: bool = True
    health_generates: bool = False

    def _begin(self) -> None:
        self.is_paused = False
        self.is_released = False
        self.leftover = False
        self.started_in_s = random.random()
        self._aborted: set[str] = set()
        self._abort = asyncio.Event()
        self._clearing: asyncio.TimerHandle | None = None

    async def answer(  # noqa: PLR0912 - one branch for each route
        self, method: str, path: str, query: dict[str, str], body: Any
    ) -> Answer:
        match method, path:
            case "GET", "/health" | "/health_generate":
                if self.is_released and (self.health_generates or path == "/health_generate"):
                    raise Died
                return Answer()
            case "GET", "/server_info":
                times = {"load_weight": 0.5, "scheduler_e2e": self.started_in_s}
                return Answer(body={"startup_time": times, "version": "0.5.23", "internal_states": [{}]})
            case "GET", "/v1/models":
                return Answer(body={"object": "list", "data": [{"id": "stand-in"}]})
            case _, "/flush_cache":
                return await self._flush(float(query.get("timeout", "0")))
            case "POST", "/pause_generation":
                if not isinstance(body, dict):
                    return Answer(422, {"detail": "a body is required"})
                self.is_paused = True
                self.scheduled.clear()
                return Answer(body={"message": "Generation paused successfully.", "status": "ok"})
            case "POST", "/continue_generation":
                self.is_paused = False
                self.scheduled.set()
                self._clear_later()
                return Answer(body={"message": "Generation continued successfully.", "status": "ok"})
            case _, "/release_memory_occupation":
                return await self._release(body)
            case _, "/resume_memory_occupation":
                return await self._resume(body)
            case "POST", "/abort_request":
                self._aborted.add(body["rid"])
                self._abort.set()
                return Answer()
            case "POST", "/v1/completions" | "/v1/chat/completions" | "/v1/embeddings":
                return await self.complete(path, body)
            case _:
                return Answer(404, {"detail": "Not Found"})

    async def compute(self, body: Any) -> str:
        deadline = asyncio.get_running_loop().time() + self.faults.call_s
        try:
            async with asyncio.timeout_at(deadline):
                while body.get("rid") not in self._aborted:
                    await self._abort.wait()
                    self._abort.clear()
        except TimeoutError:
            return "length"
        return "abort"

    def ends_with_connection(self, call: str) -> bool:
        return False  # it notices only at its next look, and the scheduler later still

    def is_guarded(self, path: str) -> bool:
        return bool(self.key) and path != "/health"

    def _when_idle(self) -> None:
        super()._when_idle()
        if self.faults.leftover_s:
            self.leftover = True
            self._clear_later()

    def _clear_later(self) -> None:
        """The scheduler works off what is left over, unless it is paused by then."""

        def clear() -> None:
            if not self.is_paused:
                self.leftover = False

        self._clearing = asyncio.get_running_loop().call_later(self.faults.leftover_s, clear)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.leftover

    async def _flush(self, timeout: float) -> Answer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.is_idle:  # noqa: ASYNC110 - as its scheduler does: at each step
                    await asyncio.sleep(0.005)
        return Answer() if self.is_idle else Answer(400, "Flush cache failed.")

    async def _release(self, body: Any) -> Answer:
        if not isinstance(body, dict):
            return Answer(422, {"detail": "a body is required"})
        if self.faults.sleep_status:
            return Answer(self.faults.sleep_status, {"error": "as told"})
        if not self.is_idle or (self.is_released and self.saver):
            raise Died
        await self._hang(self.faults.sleep_hangs)
        await asyncio.sleep(self.faults.sleep_s)
        self.is_released = True
        if self.saver and not self.faults.frees_nothing:
            self.used_bytes = self.asleep_bytes
        return Answer()

    async def _resume(self, body: Any) -> Answer:
        if not isinstance(body, dict):
            return Answer(422, {"detail": "a body is required"})
        if self.faults.wake_status:
            return Answer(self.faults.wake_status, {"error": "as told"})
        if not self.is_released:
            raise Died
        await self._hang(self.faults.wake_hangs)
        await asyncio.sleep(self.faults.wake_s)
        self.is_released = False
        self.used_bytes = self.resident_bytes
        if self.faults.other_weights or (self.saver and not self.backup):
            self.now += 1
        if self.faults.wake_does_500:
            return Answer(500, {"error": "as told"})
        return Answer()


KINDS = {"vllm": StandInVllm, "sglang": StandInSglang}


async def main(words: list[str]) -> None:
    kind, *options = words
    server = KINDS[kind](is_program=True)
    port = 0
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name == "--port":
            port = int(value)
        else:
            server.faults = dataclasses.replace(server.faults, **json.loads(value))
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await server.start(port)
    print(f"stand-in for {kind} on port {server.port}, sees {os.environ.get('CUDA_VISIBLE_DEVICES')!r}", flush=True)
    await end.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
