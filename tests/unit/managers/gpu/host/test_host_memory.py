"""Host memory within a budget: counted, filled, pinned, given back."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest
import torch

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.host.free_memory import available_bytes
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.host.pages import Pages

MIB = 1 << 20
GIB = 1 << 30


class FakePinner:
    """Notes what is pinned."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.threads: set[int] = set()
        self.error: OSError | None = None
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def pin(self, address: int, size: int) -> None:
        self.threads.add(threading.get_ident())
        self.began.set()
        self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        self.pinned[address] = size

    def unpin(self, address: int, size: int) -> None:
        self.threads.add(threading.get_ident())
        assert self.pinned.pop(address) == size


async def test_a_buffer_is_there_until_it_is_released() -> None:
    pinner = FakePinner()
    host = HostMemory(100 * MIB, pinner=pinner)
    buffer = await host.allocate("judge", 10 * MIB + 5)
    tensor = buffer.tensor()
    assert (tensor.numel(), tensor.data_ptr(), buffer.pinned) == (10 * MIB + 5, buffer.address, True)
    tensor.fill_(7)
    assert torch.equal(buffer.tensor(), tensor)
    assert (host.used_bytes, host.free_bytes) == (10 * MIB + 5, 90 * MIB - 5)
    assert pinner.pinned == {buffer.address: 10 * MIB + 5}
    await host.release("judge")
    assert (host.used_bytes, pinner.pinned) == (0, {})
    assert not tensor.any(), "who still refers to it sees zeros, and the machine has its pages"
    await host.release("judge")
    assert threading.get_ident() not in pinner.threads, "pinning is done off the loop"
    await host.aclose()


async def test_the_budget_is_kept_and_the_message_says_who_has_it() -> None:
    host = HostMemory(3 * GIB)
    host.reserve("engine", 2 * GIB)
    await host.allocate("judge", 512)
    with pytest.raises(
        ConfigurationError,
        match=re.escape("'teacher' needs 1.5 GiB of host memory; of 3 GiB that its pool may use, 1 are left beside")
        + " engine 2, judge 4.77e-07",
    ):
        await host.allocate("teacher", 3 * GIB // 2)
    with pytest.raises(ConfigurationError, match="'judge' has host memory already"):
        host.reserve("judge", 1)
    assert host.used_bytes == 2 * GIB + 512
    await host.release("engine")
    host.reserve("teacher", 3 * GIB - 512)
    assert host.free_bytes == 0
    await host.aclose()
    assert host.used_bytes == 0


async def test_memory_that_cannot_be_pinned_is_used_all_the_same_and_said_so() -> None:
    pinner = FakePinner()
    pinner.error = OSError("out of memory")
    host = HostMemory(GIB, pinner=pinner)
    buffer = await host.allocate("judge", MIB)
    assert buffer.pinned is False
    assert host.notes == (
        "judge: 0.000977 GiB of host memory could not be pinned, which makes its restores slower: out of memory",
    )
    await host.aclose()


async def test_a_cancelled_allocation_leaves_nothing() -> None:
    pinner = FakePinner()
    pinner.may_end.clear()
    host = HostMemory(GIB, pinner=pinner)
    task = asyncio.create_task(host.allocate("judge", MIB))
    await asyncio.to_thread(pinner.began.wait, 10)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done(), "what is being pinned cannot be stopped"
    pinner.may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (host.used_bytes, pinner.pinned) == (0, {})
    await host.allocate("judge", MIB)
    await host.aclose()


async def test_a_machine_without_memory_is_an_error_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostMemory(GIB)

    def fill(pages: Pages, start: int, stop: int) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(Pages, "fill", fill)
    with pytest.raises(MemoryError):
        await host.allocate("judge", MIB)
    assert host.used_bytes == 0
    await host.aclose()


@pytest.mark.parametrize("old_kernel", [False, True])
def test_filled_pages_are_there(old_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(20 * MIB)
    if old_kernel:
        monkeypatch.setattr(pages, "_advise", lambda *_: 22)
    before = resident_bytes()
    pages.fill(0, 20 * MIB)
    assert resident_bytes() - before > 19 * MIB
    assert not pages.tensor(0, 20 * MIB).any()
    monkeypatch.undo()
    pages.drop(1, 10 * MIB + 1)
    assert resident_bytes() - before < 11 * MIB


def test_pages_that_are_not_there_are_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(MIB)
    monkeypatch.setattr(pages, "_advise", lambda *_: 12)
    with pytest.raises(MemoryError, match="no memory for 1,048,576 bytes: Cannot allocate memory"):
        pages.fill(0, MIB)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MEMINFO = {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable:     500 kB\n"}
V2 = {
    "proc/self/cgroup": "0::/a/b\n",
    "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cgroup.controllers": "memory cpu\n",
    "sys/fs/cgroup/a/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/a/memory.max": "300000\n",
    "sys/fs/cgroup/a/memory.current": "200000\n",
    "sys/fs/cgroup/a/memory.stat": "anon 100000\ninactive_file 50000\n",
    "sys/fs/cgroup/a/b/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/a/b/memory.max": "max\n",
    "sys/fs/cgroup/a/b/memory.current": "100\n",
}


def test_what_is_available_is_the_least_of_machine_and_cgroups(tmp_path: Path) -> None:
    write(tmp_path, MEMINFO)
    assert available_bytes(tmp_path) == 500 * 1024
    write(tmp_path, V2)
    assert available_bytes(tmp_path) == 150_000
    write(tmp_path, {"sys/fs/cgroup/a/b/memory.max": "50\n"})
    assert available_bytes(tmp_path) == 0
    assert 0 < available_bytes() < 1 << 50
