"""What becomes of a torch service whose module writes to its own weights: the next call has those of the host again."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from arl_tangram.errors import RestoreError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.modules.slots import Slots
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import Growing, hosted, until


class Counting(nn.Module):
    """Adds to a buffer, if it is told to, and returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(1024))
        self.views: list[torch.Tensor] = []
        self.began, self.go_on = threading.Event(), threading.Event()

    def forward(self, what: str = "") -> float:
        if what == "wait":
            self.began.set()
            assert self.go_on.wait(20)
        elif what:
            self.count += 1
        if what == "keep":
            self.views.append(self.count[:4])
        if what == "raise":
            raise KeyError(what)
        return float(self.count.sum())


async def test_another_call_after_one_that_wrote_has_the_weights_of_the_host() -> None:
    async with hosted(TorchService("counting", load=Counting)) as service:
        await service.restore()
        for _ in range(3):
            with pytest.raises(UsageError, match=r"service 'counting': its module has written to 'count'"):
                await service.call("write")
            assert await service.call() == 1024
        await service.evict()


async def test_a_call_that_wrote_and_raised_spoils_no_other() -> None:
    async with hosted(TorchService("counting", load=Counting)) as service:
        await service.restore()
        with pytest.raises(KeyError):
            await service.call("raise")
        assert await service.call() == 1024
        await service.evict()


@pytest.mark.parametrize("what", ["write", "raise"])
async def test_what_was_written_is_not_carried_along_by_a_move(what: str) -> None:
    async with hosted(TorchService("counting", load=Counting)) as service:
        await service.restore(gap=8192)
        with pytest.raises((UsageError, KeyError)):
            await service.call(what)
        await service.move(512)
        assert await service.call() == 1024
        await service.evict()


async def test_what_somebody_else_wrote_is_not_carried_along_by_a_move() -> None:
    counting = Counting()
    async with hosted(TorchService("counting", load=lambda: counting)) as service:
        await service.restore(gap=8192)
        counting.count += 1
        await service.move(4096)
        assert await service.call() == 1024
        await service.evict()


class Replacing(nn.Module):
    """Lets its weights be others, if it is told to, and returns them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32, bias=False, dtype=torch.bfloat16)
        nn.init.ones_(self.inner.weight)
        self.register_buffer("count", torch.ones(1024))
        self.views: list[torch.Tensor] = []

    def forward(self, what: str = "") -> float:
        match what:
            case "data":
                self.inner.weight.data = self.inner.weight.data * 2
            case "type":
                self.float()
            case "parameter":
                self.inner.weight = nn.Parameter(self.inner.weight * 2)
            case "buffer":
                self.count = self.count + 1
            case "gone":
                del self.count
            case "view":
                self.views.append(self.inner.weight[:1])
                self.count.data = self.count.data + 1
            case _:
                pass
        return float(self.inner.weight.sum() + self.count.sum())


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("data", "'inner.weight'"),
        ("type", "'inner.weight'"),
        ("parameter", "'inner.weight'"),
        ("buffer", "'count'"),
        ("gone", None),
    ],
)
@pytest.mark.parametrize("how", ["call", "evict", "move"])
async def test_weights_that_were_replaced_by_others_come_back(what: str, names: str | None, how: str) -> None:
    replacing = Replacing()
    before = dict(replacing.named_parameters()) | dict(replacing.named_buffers())
    async with hosted(TorchService("replacing", load=lambda: replacing)) as service:
        await service.restore(gap=8192)
        assert await service.call() == 2048
        if names is None:
            with pytest.raises(AttributeError):
                await service.call(what)
        else:
            with pytest.raises(UsageError, match=rf"service 'replacing': its module has written to {names}"):
                await service.call(what)
        if how == "evict":
            await service.evict()
            await service.restore()
        if how == "move":
            await service.move(512)
        assert await service.call() == 2048
        after = dict(replacing.named_parameters()) | dict(replacing.named_buffers())
        assert before.keys() == after.keys()
        assert all(after[name] is tensor for name, tensor in before.items())
        assert replacing.inner.weight.dtype is torch.bfloat16
        await service.evict()


async def test_a_table_that_no_state_dict_has_may_grow() -> None:
    async with hosted(TorchService("growing", load=Growing)) as service:
        await service.restore(gap=8192)
        assert [await service.call(length) for length in (4, 8, 6)] == [10, 32, 19]
        await service.move(512)
        assert await service.call(8) == 32
        await service.evict()
        await service.restore()
        assert [await service.call(length) for length in (8, 9)] == [32, 40]
        await service.evict()


class Masking(nn.Module):
    """Keeps views of what it was loaded with where its parameters and buffers are, or longer tables of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("full", torch.arange(1024.0))
        self.register_buffer("mask", torch.zeros(1), persistent=False)
        self.register_buffer("later", None, persistent=False)
        self.kept: list[torch.Tensor] = []

    def forward(self, what: str = "") -> float:
        match what:
            case "table":
                self.mask = self.full[:4]
            case "later":
                self.later = self.full[:4]
            case "new":
                self.register_buffer("new", self.full[:4])
            case "parameter":
                self.weight = nn.Parameter(self.weight[:1])
            case "buffer":
                self.full = self.full[:4]
            case "kept":
                self.mask = self.full[:4]
                self.kept.append(self.mask)
            case _:
                pass
        made = [self.mask, self.later, getattr(self, "new", None)]
        return sum(float(each.sum()) for each in made if each is not None) + float(self.weight.sum())


@pytest.mark.parametrize(("what", "then"), [("table", 10), ("later", 10), ("new", 10), ("parameter", 4), ("buffer", 4)])
@pytest.mark.parametrize("how", ["evict", "move"])
async def test_a_view_in_the_place_of_a_parameter_or_buffer_holds_nothing(what: str, then: float, how: str) -> None:
    masking = Masking()
    async with hosted(TorchService("masking", load=lambda: masking)) as service:
        await service.restore(gap=8192)
        if then == 4:
            with pytest.raises(UsageError):
                await service.call(what)
        else:
            assert await service.call(what) == then
        if how == "move":
            await service.move(512)
            assert await service.call() == then
        await service.evict()
        await service.restore(gap=4096)
        assert await service.call() == then
        await service.evict()


@pytest.mark.parametrize("how", ["evict", "move"])
async def test_a_view_that_is_kept_beside_is_found(how: str) -> None:
    masking = Masking()
    async with hosted(TorchService("masking", load=lambda: masking)) as service:
        await service.restore(gap=8192)
        assert await service.call("kept") == 10
        with pytest.raises(RestoreError, match="1 views of its"):
            await (service.evict() if how == "evict" else service.move(512))
        masking.kept.clear()
        if how == "move":
            await service.move(512)
        else:
            await service.evict()
            await service.restore()
        assert await service.call() == 10
        await service.evict()


async def test_it_stays_where_it_is_if_a_table_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("out of memory")

    async with hosted(TorchService("growing", load=Growing)) as service:
        await service.restore()
        assert await service.call(8) == 32
        with monkeypatch.context() as patched:
            patched.setattr(Slots, "separate", fails)
            with pytest.raises(RestoreError, match="a buffer of its module cannot be copied: out of memory"):
                await service.evict()
        assert await service.call(8) == 32
        await service.evict()  # as the manager does from time to time


def test_what_a_module_has_made_goes_to_the_host_and_to_its_next_devices() -> None:
    with FakeTensorMode():  # tensors without bytes, on any device
        module = nn.Module()
        module.first, module.second = (nn.Module() for _ in range(2))
        for part, device in ((module.first, "cuda:0"), (module.second, "cuda:1")):
            part.register_buffer("weight", torch.empty(4, device=device))
            part.register_buffer("table", torch.empty(4, device=device), persistent=False)
        slots = Slots(module)
        assert not slots.has_made
        module.first.register_buffer("table", torch.empty(8, device="cuda:0"), persistent=False)
        module.second.register_buffer("other", torch.empty(8, device="cuda:1"), persistent=False)
        module.second.register_buffer("small", torch.empty(8), persistent=False)
        module.second.weight = torch.empty(8, device="cuda:1")

        def devices() -> list[str]:
            made = module.first.table, module.second.other, module.second.small
            return [str(each.device) for each in made]

        slots.separate(lambda _: False, ["cuda:0", "cuda:1"], to_host=True)
        assert devices() == ["cpu", "cpu", "cpu"]
        assert not slots.replaced
        slots.separate(lambda _: False, ["cuda:0", "cuda:1"], to_host=True)  # it is tried again
        register = slots.carried(["cuda:0", "cuda:1"], ["cuda:2", "cuda:3"])
        assert devices() == ["cpu", "cpu", "cpu"]
        register()
        assert devices() == ["cuda:2", "cuda:3", "cpu"]
        slots.carried(["cuda:2", "cuda:3"], ["cuda:3", "cuda:2"])()  # without the host
        assert devices() == ["cuda:3", "cuda:2", "cpu"]


async def test_a_view_is_found_beside_a_tensor_that_was_replaced() -> None:
    replacing = Replacing()
    async with hosted(TorchService("replacing", load=lambda: replacing)) as service:
        await service.restore(gap=8192)
        with pytest.raises(UsageError):
            await service.call("view")
        with pytest.raises(RestoreError, match="1 views of its"):
            await service.move(512)
        replacing.views.clear()
        await service.evict()


async def test_calls_that_compute_are_waited_for_before_it_is_copied_anew_and_others_wait() -> None:
    counting = Counting()
    async with hosted(TorchService("counting", load=lambda: counting, max_concurrency=3)) as service:
        await service.restore()
        first = asyncio.create_task(service.call("wait"))
        await until(counting.began)
        with pytest.raises(UsageError):
            await service.call("write")
        after, given_up = (asyncio.create_task(service.call()) for _ in range(2))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert not after.done()
        counting.go_on.set()
        assert await after == 1024
        with pytest.raises(UsageError):  # what it has computed with was written to
            await first
        assert await service.call() == 1024
        await service.evict()


@pytest.mark.parametrize("what", ["write", "keep"])
async def test_one_that_cannot_be_copied_anew_is_lost_and_comes_back(what: str) -> None:
    faults: list[OSError] = []

    def fault(_region: Region) -> None:
        if faults:
            raise faults.pop()

    lost: list[tuple[int, Exception]] = []
    counting = Counting()
    async with hosted(TorchService("counting", load=lambda: counting), fault=fault) as service:
        service.backend.on_lost(lambda dop, error: lost.append((dop, error)))
        await service.restore()
        with pytest.raises(UsageError):
            await service.call(what)
        faults.append(OSError("the link is down"))
        with pytest.raises(ServiceLostError, match="service 'counting' was lost while it was moved or copied anew"):
            await service.call()
        ((dop, error),) = lost
        assert dop == 1
        assert isinstance(error, RestoreError)
        assert isinstance(error, StillHeldError) is (what == "keep"), "whether its memory is free"
        assert "the link is down" in str(error)
        counting.views.clear()
        await service.evict()  # what is told to its manager, this test does not carry out
        await service.restore()
        assert await service.call() == 1024
        await service.evict()


async def test_closing_ends_what_copies_anew() -> None:
    counting = Counting()
    async with hosted(TorchService("counting", load=lambda: counting, max_concurrency=2)) as service:
        await service.restore()
        computes = asyncio.create_task(service.call("wait"))
        await until(counting.began)
        with pytest.raises(UsageError):
            await service.call("write")
        waits = asyncio.create_task(service.call())
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(service.backend.aclose())
        await asyncio.sleep(0.01)
        counting.go_on.set()
        await closing
        with pytest.raises((ServiceLostError, UsageError)):
            await waits
        with pytest.raises((ServiceLostError, UsageError)):
            await computes
