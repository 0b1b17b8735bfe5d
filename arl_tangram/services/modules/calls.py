"""What an action gets of a torch service: `call`, which computes on threads while the service is resident."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import torch

from arl_tangram.errors import RemoteError, RestoreError, ServiceLostError, UsageError
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.managers.threads import BodyThreads, Returned
from arl_tangram.services.modules.batches import Arguments, join, split
from arl_tangram.services.modules.instance import ModuleInstance
from arl_tangram.services.modules.values import to_device, to_host
from arl_tangram.services.own_loop import OwnLoop

# Of a torch that does not tell them apart, all errors pass as the module's own.
_DEVICE_ERRORS: tuple[type[Exception], ...] = (torch.AcceleratorError,) if hasattr(torch, "AcceleratorError") else ()


class ResidentModule:
    """A torch service for one action, as long as that runs.

    Args:
        instance: what is called.
        threads: where it computes.
        renewed: waits until the instance is copied anew after it was written to; RestoreError if it cannot be.
    """

    def __init__(
        self, instance: ModuleInstance, threads: BodyThreads, renewed: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._instance = instance
        self._threads = threads
        self._renewed = renewed
        self._ended = False
        self._loop = OwnLoop(instance.name)

    def __repr__(self) -> str:
        return f"<service {self.name!r} on {', '.join(self.devices)}>"

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._instance.name

    @property
    def dop(self) -> int:
        """On how many devices it is."""
        return self._instance.dop

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices, as torch calls them: `cuda:0`, or `cpu`."""
        return self._instance.devices

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module with these arguments, on a thread, and return what it returns, on the host.

        Tensors in arguments and results may be in lists, tuples, dicts and dataclasses. On several devices, the first
        dimension of tensors and arrays and the items of lists are a batch, which is split over them; results are
        joined in the same way.

        As many calls of an instance compute at once as actions may use it; others wait for their turn.

        Cancelling gives up the result; what computes goes on to its end, and keeps the service resident until then.
        What the module raises passes unchanged, except that its frames keep no local variables.

        Raises:
            RemoteError: the module has raised what would end the program, such as `SystemExit`.
            ServiceLostError: the device has failed, no thread can be started, or the instance could not be moved or
                copied anew.
            WrongLoopError: another event loop runs here than that of the action.
            UsageError: the action that had it has ended; the batch cannot be split or joined; or the module has
                written to one of its parameters or buffers, which are copied anew before the next call.
        """
        self._loop.check()
        await self._instance.turns.acquire()
        try:
            await self._admitted()
            arguments: Arguments = args, kwargs
            copies = len(self._instance.modules)
            parts = split(arguments, copies) if copies > 1 else [arguments]
            del args, kwargs, arguments
        except BaseException:
            self._instance.turns.release()
            raise
        results = await self._computed(parts)
        return results[0] if len(results) == 1 else await self._off_loop(partial(join, results))

    def end(self) -> None:
        """Refuse further calls."""
        self._ended = True

    async def _admitted(self) -> None:
        """Wait until a call may begin; it begins at once then."""
        await self._instance.admitted()
        while self._instance.spoiled and self._instance.places:
            try:
                await self._renewed()
            except RestoreError as error:
                raise ServiceLostError(f"service {self.name!r} could not be copied anew: {error}") from error
            await self._instance.admitted()
        if self._ended:
            raise UsageError(f"service {self.name!r} is called after the action that had it has ended")
        if not self._instance.places:
            raise ServiceLostError(f"service {self.name!r} was lost while it was moved or copied anew on its device")

    async def _computed(self, parts: list[Arguments]) -> list[Any]:
        """Compute on threads; the turn is over when all of them have ended."""
        self._instance.begin()
        places = self._instance.places
        bodies = [partial(self._compute, copy, part, places) for copy, part in enumerate(parts)]
        left = len(bodies)

        def finish(_job: object = None) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._instance.finish()
                self._instance.turns.release()

        jobs: list[asyncio.Future[Returned]] = []
        try:
            for body in bodies:
                jobs.append(self._threads.run(body, ()))
                jobs[-1].add_done_callback(finish)
        except RuntimeError as error:  # the machine, or its limits, allow no more threads
            for _ in range(len(bodies) - len(jobs)):
                finish()
            raise ServiceLostError(f"service {self.name!r}: no thread can be started: {error}") from error
        await asyncio.wait(jobs)  # a cancel leaves them running
        return [job.result().result() for job in jobs]

    async def _off_loop(self, work: partial[Any]) -> Any:
        job = self._threads.run(work, ())
        await asyncio.wait([job])
        return job.result().result()

    def _compute(self, copy: int, arguments: Arguments, places: tuple[Place, ...]) -> Any:
        """Run one copy on its part. On a thread."""
        module = self._instance.modules[copy]
        device = torch.device(places[copy].device.torch_name)
        try:
            try:
                with _current(device), torch.inference_mode():
                    args, kwargs = to_device(arguments, device)
                    result = module(*args, **kwargs)
                result = to_host(result)
            finally:
                self._settle(places)
        except _DEVICE_ERRORS as error:
            _forget_locals(error)
            raise ServiceLostError(f"service {self.name!r}: {device} has failed: {error}") from error
        except Exception as error:
            # Whoever keeps the error would keep the locals of its frames, views of weights among them.
            _forget_locals(error)
            raise
        except BaseException as error:  # noqa: BLE001 - it is not for a module to end the program
            text = "".join(traceback.format_exception(error))
            raise RemoteError(type(error).__name__, str(error), text) from None
        finally:
            is_closed = self._instance.places is not places
            written = () if is_closed else self._instance.written(copy)
        if is_closed:  # with its runtime; what it has computed with may be anything
            raise ServiceLostError(f"service {self.name!r} was closed while a call computed")
        if written:
            raise UsageError(
                f"service {self.name!r}: its module has written to {', '.join(map(repr, written[:3]))}; parameters and "
                f"buffers are frozen, and what is written to them is lost before the next call"
            )
        return result

    def _settle(self, places: tuple[Place, ...]) -> None:
        """Wait for what this thread has started on devices, however the module has ended."""
        try:
            _settle(places)
        except RuntimeError as error:
            raise ServiceLostError(f"service {self.name!r}: a device has failed: {error}") from error


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one of this thread: kernels that are not torch's own are launched there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _settle(places: tuple[Place, ...]) -> None:
    """Wait until the kernels that this thread has started have ended: the memory may be given away right afterwards."""
    for device in (place.device.torch_name for place in places):
        if device != "cpu":
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            event.synchronize()


def _forget_locals(error: BaseException) -> None:
    """Let an error, and all that it tells of, keep no locals."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", each).exceptions
