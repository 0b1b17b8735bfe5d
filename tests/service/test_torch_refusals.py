"""What cannot be a torch service, and is refused in words; and closing while something goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from arl_tangram.errors import (
    ConfigurationError,
    MissingExtraError,
    ServiceLostError,
)
from arl_tangram.services.modules.loading import takes_dop
from arl_tangram.services.modules.packing import named_tensors
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import MIB, Odd0, Slow, hosted, until


async def opening(declared: TorchService, *, capacity: int = MIB) -> str:
    """Open a service, which must fail, and return what it says."""
    with pytest.raises(ConfigurationError) as caught:
        async with hosted(declared, devices=2, capacity=capacity):
            pass
    return str(caught.value)


def broken_load() -> nn.Module:
    raise FileNotFoundError("weights.safetensors")


def exiting_load() -> nn.Module:
    raise SystemExit(3)


async def async_load() -> nn.Module:
    return nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (broken_load, r"^TorchService\('bad'\): load raised FileNotFoundError: weights.safetensors$"),
        (exiting_load, r"load raised SystemExit: 3"),
        (dict, r"load returned a dict, not a torch.nn.Module"),
        (lambda: None, r"load returned a NoneType, not a torch.nn.Module"),
        (lambda: nn.Linear, r"load returned a type, not a torch.nn.Module"),
        (async_load, r"load is an async function"),
        (nn.ReLU, r"has no parameters and no buffers to host"),
        (lambda: nn.LazyLinear(2), r"'weight' cannot be moved as bytes: it is a UninitializedParameter"),
        (lambda: nn.Linear(1, 1, device="meta"), r"'weight' cannot be moved as bytes: it is on the meta device"),
        (lambda: torch.jit.trace(nn.Linear(1, 1), torch.ones(1)), r"load returned a module of TorchScript"),
        (lambda: nn.Linear(1024, 1024), r"'bad' needs .* GiB of host memory; of .* GiB .* are left"),
        (lambda: (nn.Linear(1, 1), []), r"load returned a tuple, not a torch.nn.Module"),
        (lambda dop: (nn.Linear(1, 1), [nn.Linear(1, 1)] * dop), r"load\(2\) must return 2 different submodules"),
        (lambda dop: (nn.Linear(1, 1), "parts"), r"load\(2\) returned a pair, but not of a module and its parts"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:`torch.jit")
async def test_what_load_must_not_do_is_refused_in_words(load: Callable[..., Any], message: str) -> None:
    said = await opening(TorchService("bad", load=load, dops=(2,) if takes_dop(load) else (1,)))
    assert said.startswith("TorchService('bad')") or "host memory" in said
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(said)


async def test_a_module_that_cannot_be_copied_cannot_be_on_two_devices() -> None:
    class Locked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(1, 1)
            self.lock = threading.Lock()

    said = await opening(TorchService("locked", load=Locked, dops=(1, 2)))
    assert "its module cannot be copied for a second device (TypeError" in said
    async with hosted(TorchService("locked", load=Locked)) as service:
        await service.restore()
        await service.evict()


async def test_two_services_cannot_have_one_module() -> None:
    module = nn.Linear(1, 1)
    async with hosted(TorchService("one", load=lambda: module)):
        said = await opening(TorchService("two", load=lambda: module))
        assert "TorchService('two'): load returned a module that is, or was, hosted already" in said
        said = await opening(TorchService("three", load=lambda: nn.Sequential(module)))
        assert "belongs to a service already" in said


@pytest.mark.parametrize("is_resident", [False, True])
async def test_two_services_cannot_share_a_part(is_resident: bool) -> None:
    part, table = nn.Linear(1, 1), torch.ones(3)

    class Sharing(nn.Module):
        def __init__(self, shared: str) -> None:
            super().__init__()
            self.own = nn.Linear(1, 1)
            if shared == "part":
                self.part = part
            else:
                self.register_buffer("table", table)

        def forward(self) -> float:
            return sum(float(tensor.sum()) for tensor in named_tensors(self).values())

    async with hosted(TorchService("one", load=lambda: nn.Sequential(Sharing("part"), Sharing("table")))) as one:
        if is_resident:
            await one.restore()
        said = await opening(TorchService("two", load=lambda: Sharing("part")))
        assert "TorchService('two'): 'part.weight' cannot be moved as bytes: it belongs to a service already" in said
        said = await opening(TorchService("three", load=lambda: Sharing("table")))
        assert "'table' cannot be moved as bytes: it belongs to a service already" in said
        if is_resident:
            await one.evict()


async def test_what_was_refused_may_be_loaded_again() -> None:
    module = nn.Linear(1, 1)
    module.weight.grad = torch.ones(1, 1)
    assert "'weight' cannot be moved as bytes: it has a gradient" in await opening(
        TorchService("one", load=lambda: module)
    )
    module.zero_grad()
    async with hosted(TorchService("one", load=lambda: module)) as service:
        await service.restore()
        await service.evict()


@pytest.mark.parametrize("is_whole", [False, True])
async def test_modules_of_two_dops_that_share_a_tensor_are_refused(is_whole: bool) -> None:
    backbone = nn.Linear(1, 1)

    def load(dop: int) -> nn.Module:
        return backbone if is_whole else nn.Sequential(backbone, nn.Linear(1, dop))

    said = await opening(TorchService("shared", load=load, dops=(1, 2)))
    name = "weight" if is_whole else "0.weight"
    assert f"TorchService('shared'): load(2) returned '{name}', which load(1) has returned, too" in said


async def test_parts_that_share_a_tensor_are_refused() -> None:
    def load(dop: int) -> Any:
        one, other = nn.Linear(2, 2), nn.Linear(2, 2)
        other.weight = one.weight
        return nn.Sequential(one, other), [one, other]

    assert "two parts share a tensor" in await opening(TorchService("shared", load=load, dops=(2,)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "the name of a service"),
        ({"name": "a/b"}, "the name of a service"),
        ({"load": nn.Linear(1, 1).weight}, "load= takes a function"),
        ({"load": nn.Linear(1, 1)}, "a new module each time, not the module itself, a Linear"),
        ({"dops": ()}, "dops= takes different numbers out of 1, 2, 4 and 8"),
        ({"dops": (3,)}, "dops="),
        ({"dops": (2, 2)}, "dops="),
        ({"dops": (True,)}, "dops="),
        ({"dops": 2}, "dops="),
        ({"dops": "12"}, "dops="),
        ({"max_concurrency": 0}, "max_concurrency takes a whole number"),
        ({"max_concurrency": 1.5}, "max_concurrency takes a whole number"),
        ({"exclusive": "yes"}, "exclusive= takes True or False"),
        ({"exclusive": []}, "exclusive= takes True or False"),
        ({"exclusive": None}, "exclusive= takes True or False"),
        ({"verify": 1.5}, "verify= takes True or False"),
    ],
)
def test_what_cannot_be_declared_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TorchService(**{"name": "x", "load": Odd0} | options)


async def test_the_runtime_can_close_while_a_module_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arl_tangram.services.modules.backend._LAST_CALL_S", 0.05)
    slow = Slow()
    began_s = time.monotonic()
    async with hosted(TorchService("slow", load=lambda: slow)) as service:
        await service.restore()
        call = asyncio.create_task(service.call(1))
        await until(slow.began)
    assert time.monotonic() - began_s < 10
    slow.go_on.set()
    with pytest.raises(ServiceLostError, match="service 'slow' was closed while a call computed"):
        await call


async def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"arl-tangram\[gpu\]"):
        async with hosted(TorchService("x", load=Odd0)):
            pass


async def test_opening_can_be_cancelled() -> None:
    started, go_on = threading.Event(), threading.Event()

    def load() -> nn.Module:
        started.set()
        assert go_on.wait(20)
        return nn.Linear(1, 1)

    async def open_it() -> None:
        async with hosted(TorchService("slow", load=load)):
            raise AssertionError("it has opened")

    task = asyncio.create_task(open_it())
    await until(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
