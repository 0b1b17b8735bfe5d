"""One instance of a torch service: its modules, where they lie, and which calls compute with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from arl_tangram.errors import EvictedServiceError, RestoreError
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.services.modules.loading import Loaded
from arl_tangram.services.modules.packing import Packing
from arl_tangram.services.modules.slots import Slots


class ModuleInstance:
    """The modules of one dop: a copy for each device, or one that is spread over them.

    Not thread-safe; a transition has it for itself.

    Attributes:
        places: where it lies; empty while it lies nowhere.
        spoiled: whether a call has found that something has written to it since it was attached.
        changing: held by whoever lets it lie elsewhere, or anew.
        turns: of the calls that compute: each has a thread for each device.
    """

    def __init__(
        self, name: str, copies: Sequence[Loaded], sources: Sequence[torch.Tensor], *, max_concurrency: int = 1
    ) -> None:
        self.name = name
        self.modules = tuple(copy.module for copy in copies)
        self.sources = tuple(sources)  # the host's bytes for each device
        self.places: tuple[Place, ...] = ()
        self.spoiled = False
        self.changing = asyncio.Lock()
        self.turns = asyncio.Semaphore(max_concurrency)
        self._copies = tuple(copies)
        self._packings: tuple[Packing, ...] = tuple(packing for copy in copies for packing in copy.packings)
        self._slots = tuple(Slots(copy.module) for copy in copies)
        self._devices: tuple[str, ...] = ()  # where it was attached last
        self._refusals = [self._refuse_calls(module) for module in self.modules]
        self._computing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._admitting = asyncio.Event()
        self._admitting.set()

    @property
    def dop(self) -> int:
        """On how many devices it is."""
        return len(self._packings)

    @property
    def tensors(self) -> int:
        """How many tensors it has in all."""
        return sum(packing.tensors for packing in self._packings)

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices while it is resident, as torch calls them."""
        return tuple(place.device.torch_name for place in self.places)

    def attach(self, places: Sequence[Place]) -> None:
        """Let the modules lie in places that hold their bytes; if that fails, they lie nowhere."""
        devices = tuple(place.device.torch_name for place in places)
        try:
            for packing, place in zip(self._packings, places, strict=True):
                assert place.region is not None
                packing.attach(place.device.view(place.region))
            for slots in self._slots:
                slots.put_back()
            befores = self._by_copy(self._devices or devices)
            carried = [
                slots.carried(before, now)
                for slots, before, now in zip(self._slots, befores, self._by_copy(devices), strict=True)
            ]
        except BaseException:
            self.detach()
            raise
        for register in carried:
            register()
        for refusal in self._refusals:
            refusal.remove()
        self.places, self._devices, self.spoiled = tuple(places), devices, False

    @property
    def has_others(self) -> bool:
        """Whether a module has others in place of its parameters and buffers, or buffers that it has made itself."""
        return any(slots.replaced or slots.has_made for slots in self._slots)

    def separate(self, *, to_host: bool) -> None:
        """Let nothing that its modules have registered lie in its memory but what is packed there.

        Blocks; while nothing computes.

        Args:
            to_host: bring the buffers that they have made themselves to the host; `attach` brings them back.

        Raises:
            RuntimeError: one of those cannot be copied.
        """
        for slots, copy, devices in zip(self._slots, self._copies, self._by_copy(self._devices), strict=True):
            slots.separate(copy.has, devices, to_host=to_host)

    def detach(self) -> int:
        """Let the modules lie nowhere; return how many views of their memory somebody else holds."""
        if self.places:
            self._refusals = [self._refuse_calls(module) for module in self.modules]
            self.places = ()
        return sum(packing.detach() for packing in self._packings)

    @property
    def held(self) -> int:
        """How many views somebody else holds of memory that it has, or had."""
        return sum(packing.held for packing in self._packings)

    def written(self, copy: int) -> tuple[str, ...]:
        """Return the names of tensors of one of its modules that were written to or replaced; it is spoiled then."""
        written = (name for packing in self._copies[copy].packings for name in packing.written)
        names = tuple(dict.fromkeys((*written, *self._slots[copy].replaced)))
        if names:  # calls on other threads may say so at the same time
            self.spoiled = True
        return names

    @property
    def is_written(self) -> bool:
        """Whether something has written to a tensor of any of its modules, or replaced one."""
        return any(packing.written for packing in self._packings) or any(slots.replaced for slots in self._slots)

    def begin(self) -> None:
        """Count a call that computes."""
        self._computing += 1
        self._idle.clear()

    def finish(self) -> None:
        """Count it no more."""
        self._computing -= 1
        if not self._computing:
            self._idle.set()

    def hold_back(self) -> None:
        """Let new calls wait until `admit`."""
        self._admitting.clear()

    def admit(self) -> None:
        """Let calls begin."""
        self._admitting.set()

    async def admitted(self) -> None:
        """Wait until a call may begin."""
        while not self._admitting.is_set():  # calls may be held back again before who was woken goes on
            await self._admitting.wait()

    async def idle(self, limit_s: float) -> None:
        """Wait until no call computes.

        Raises:
            RestoreError: some still do after so many seconds.
        """
        try:
            async with asyncio.timeout(limit_s):
                while not self._idle.is_set():  # a call may have begun before who was woken goes on
                    await self._idle.wait()
        except TimeoutError:
            calls = f"{self._computing} calls" if self._computing > 1 else "a call"
            raise RestoreError(f"service {self.name!r}: {calls} computed for {limit_s:g} s and longer") from None

    def _by_copy(self, devices: Sequence[str]) -> list[Sequence[str]]:
        ends = list(accumulate(len(copy.packings) for copy in self._copies))
        return [devices[begin:end] for begin, end in pairwise([0, *ends])]

    def _refuse_calls(self, module: torch.nn.Module) -> torch.utils.hooks.RemovableHandle:
        name = self.name

        def refuse(_module: torch.nn.Module, _arguments: object) -> None:
            raise EvictedServiceError(
                f"the module of service {name!r} is called while it is evicted; an action with service={name!r} "
                f"calls it as current_service().call(...)"
            )

        return module.register_forward_pre_hook(refuse)
