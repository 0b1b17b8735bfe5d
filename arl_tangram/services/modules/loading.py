"""Call a user's `load`, check what it returns, and make the modules of each instance of it. It all blocks."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, cast
from weakref import WeakSet, WeakValueDictionary

import torch

from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.services.modules.packable import HOSTED_ALREADY
from arl_tangram.services.modules.packing import Packing, named_tensors

_hosted: WeakSet[torch.nn.Module] = WeakSet()
_tensors_of_hosted: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()  # by identity
_claiming = threading.Lock()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one call of `load` has returned, and how it is packed.

    Attributes:
        module: the whole of it.
        packings: one for each device that it is spread over; one if it is not spread.
    """

    module: torch.nn.Module
    packings: tuple[Packing, ...]

    @property
    def spread(self) -> bool:
        """Whether it is on several devices at once, and not copied to each."""
        return len(self.packings) > 1

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor, of whomever, lies in memory that it has, or had."""
        return any(packing.has(tensor) for packing in self.packings)

    def copy(self) -> Loaded:
        """Return a copy that shares the packed bytes. Only while it is detached: then there is little to copy."""
        module = copy.deepcopy(self.module)
        tensors = named_tensors(module)
        return Loaded(module, tuple(packing.of_copy(tensors) for packing in self.packings))


def takes_dop(load: Callable[..., object]) -> bool:
    """Tell whether `load` has to be given an argument."""
    try:
        parameters = inspect.signature(load).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not say
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def load_module(
    load: Callable[..., object], what: str, dop: int | None, earlier: Mapping[int, Loaded] | None = None
) -> Loaded:
    """Call `load`, with `dop` unless that is None, freeze what it returns, and plan how to pack it.

    Args:
        load: of the user.
        what: begins messages.
        dop: its argument.
        earlier: what it has returned for other dops.

    Raises:
        ConfigurationError: it raises, or returns something that cannot be hosted; the message begins with `what`.
    """
    try:
        returned = load() if dop is None else load(dop)
    except BaseException as error:  # SystemExit, too: it is not for `load` to end the program
        raise ConfigurationError(f"{what}: load raised {type(error).__name__}: {error}") from error
    module, parts = _taken_apart(returned, what, dop)
    _refuse_shared(module, f"{what}: load({dop})", earlier or {})
    if module in _hosted:
        raise ConfigurationError(f"{what}: load returned a module that is, or was, hosted already, not a new one")
    groups = _groups(module, parts, what)
    try:
        packings = tuple(Packing.of_tensors(group) for group in groups)
    except TangramError as error:
        raise ConfigurationError(f"{what}: {error}") from error
    if not any(packing.size_bytes for packing in packings):
        raise ConfigurationError(f"{what}: the module that load returned has no parameters and no buffers to host")
    _claim(module, what)
    module.eval()
    module.requires_grad_(requires_grad=False)
    return Loaded(module, packings)


def copy_module(loaded: Loaded, what: str) -> Loaded:
    """Return a copy of what was loaded, for another device.

    Raises:
        ConfigurationError: it cannot be copied.
    """
    try:
        return loaded.copy()
    except Exception as error:
        raise ConfigurationError(
            f"{what}: its module cannot be copied for a second device ({type(error).__name__}: {error}); "
            f"dops=(1,) needs no copy"
        ) from error


def _taken_apart(returned: object, what: str, dop: int | None) -> tuple[torch.nn.Module, Sequence[torch.nn.Module]]:
    if inspect.iscoroutine(returned):
        returned.close()
        raise ConfigurationError(f"{what}: load is an async function; it takes a plain one, which runs on a thread")
    if isinstance(returned, torch.jit.ScriptModule):
        raise ConfigurationError(
            f"{what}: load returned a module of TorchScript, which cannot be refused calls while it is evicted; return "
            f"the module that it was made of, or one that calls it"
        )
    if isinstance(returned, torch.nn.Module):
        return returned, ()
    if dop is None or not _is_pair(returned):
        raise ConfigurationError(f"{what}: load returned a {type(returned).__qualname__}, not a torch.nn.Module")
    module, parts = returned
    if not isinstance(module, torch.nn.Module) or not isinstance(parts, Sequence) or isinstance(parts, str):
        raise ConfigurationError(f"{what}: load({dop}) returned a pair, but not of a module and its parts")
    found = list(cast("Sequence[object]", parts))
    inside = set(module.modules())
    if len(found) != dop or len({id(part) for part in found}) != dop or any(part not in inside for part in found):
        raise ConfigurationError(f"{what}: load({dop}) must return {dop} different submodules of its module as parts")
    return module, cast("list[torch.nn.Module]", found)


def _refuse_shared(module: torch.nn.Module, what: str, earlier: Mapping[int, Loaded]) -> None:
    """Check that the modules of a service share no tensor: the instances of two dops are in two places."""
    tensors = named_tensors(module)
    for dop, loaded in earlier.items():
        there = {id(tensor) for tensor in named_tensors(loaded.module).values()}
        if shared := next((name for name, tensor in tensors.items() if id(tensor) in there), None):
            raise ConfigurationError(
                f"{what} returned {shared!r}, which load({dop}) has returned, too; for each dop, a module of its own "
                f"is needed, which shares no tensor with the others"
            )


def _claim(module: torch.nn.Module, what: str) -> None:
    """Make a module and its tensors the property of one service: two of them cannot have a tensor in two places.

    Raises:
        ConfigurationError: a tensor of it belongs to another one.
    """
    tensors = named_tensors(module)
    with _claiming:
        for name, tensor in tensors.items():
            if _tensors_of_hosted.get(id(tensor)) is tensor:
                raise ConfigurationError(f"{what}: {name!r} cannot be moved as bytes: {HOSTED_ALREADY}")
        _hosted.add(module)
        _tensors_of_hosted.update({id(tensor): tensor for tensor in tensors.values()})


def _is_pair(value: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(value, tuple) and len(value) == 2  # pyright: ignore[reportUnknownArgumentType]


def _groups(module: torch.nn.Module, parts: Sequence[torch.nn.Module], what: str) -> list[dict[str, torch.Tensor]]:
    """Return the tensors for each device, by their names in the whole module."""
    tensors = named_tensors(module)
    if len(parts) < 2:
        return [tensors]
    groups: list[dict[str, torch.Tensor]] = [{} for _ in parts]
    home: dict[int, int] = {}
    for index, part in enumerate(parts):
        for tensor in named_tensors(part).values():
            if home.setdefault(id(tensor), index) != index:
                raise ConfigurationError(f"{what}: two parts share a tensor, and each is on a device of its own")
    for name, tensor in tensors.items():
        groups[home.get(id(tensor), 0)][name] = tensor
    return groups
