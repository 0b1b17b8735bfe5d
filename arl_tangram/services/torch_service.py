"""A torch module as a service: what a user declares. Torch is imported when the service is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, TypeAlias

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import checked_dops
from arl_tangram.model.quantities import service_name, whole
from arl_tangram.services.modules.backend import ModuleBackend

if TYPE_CHECKING:
    import torch

    Loaded: TypeAlias = torch.nn.Module | tuple[torch.nn.Module, Sequence[torch.nn.Module]]


@dataclass(frozen=True, slots=True)
class TorchService:
    """A `torch.nn.Module` that actions share: loaded once, restored to a device when an action needs it.

    An action calls it as `await current_service().call(...)`, with what the module takes: tensors are brought to its
    device, and those of the result back to the host. The module runs on a thread, in eval mode, under
    `inference_mode()`; its results can be used with autograd. Its weights are frozen: a call that writes to one fails.

    With several dops, an instance on k devices is k copies of the module, and the batch of a call is split over them:
    the first dimension of tensors and arrays, and the items of lists.

    Attributes:
        name: how actions call it; letters, digits, `-`, `_` and `.`.
        load: returns the module, on the host or a device, a new one each time; called once on a thread. If it has to
            be given an argument, it is called for each dop with that number, and returns a module of its own for each,
            or `(module, parts)` for one that is spread over its devices: as many submodules as devices, each on one of
            them in this order; what is in none of them is on the first. Then a call is not split, and the module
            itself moves what it computes from device to device.
        dops: on how many devices it can be; 1, 2, 4 or 8.
        max_concurrency: how many actions may use an instance at once, and how many of their calls compute, from 1.
        exclusive: whether nothing else computes on its devices while an action uses it.
        verify: whether each restore ends with comparing sums of the bytes on the device with those of the host. By
            default it does on GPUs, where reading memory costs next to nothing, and not on a CPU, where it costs as
            much as the copy.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    name: str
    _: KW_ONLY
    load: Callable[[], torch.nn.Module] | Callable[[int], Loaded]
    dops: Sequence[int] = (1,)
    max_concurrency: int = 1
    exclusive: bool = False
    verify: bool | None = None

    def __post_init__(self) -> None:
        what = f"TorchService({self.name!r})"
        service_name(self.name, what, ConfigurationError)
        if not isinstance(self.load, type) and hasattr(self.load, "state_dict"):  # a module can be called, too
            raise ConfigurationError(
                f"{what}: load= takes a function that returns a new module each time, not the module itself, "
                f"a {type(self.load).__name__}"
            )
        if not callable(self.load):
            raise ConfigurationError(f"{what}: load= takes a function that returns a module, not {self.load!r}")
        object.__setattr__(self, "dops", checked_dops(self.dops, what))
        whole(self.max_concurrency, f"{what}: max_concurrency", ConfigurationError, least=1)
        for name in ("exclusive", "verify"):
            value: object = getattr(self, name)
            if not isinstance(value, bool) and (name == "exclusive" or value is not None):
                raise ConfigurationError(f"{what}: {name}= takes True or False, not {value!r}")

    def backend(self) -> ModuleBackend:
        """Return a new backend for one runtime; it does nothing before its `open`."""
        return ModuleBackend(self)
