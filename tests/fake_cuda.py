"""CUDA calls over host memory, one step at a time: what is begun is done when somebody waits for it.

There are two streams: that for copies, whose steps are kept here, and that of models, which the test lets end. As long
as it has not, what was allocated for it is written to by models that have had that memory before.

It shows how a CUDA device cuts and orders its copies; it says nothing about CUDA itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

GARBAGE = 0xAA


class FakeEvent:
    """Comes to pass when the steps before it are done, or, for models, when the test says so."""

    def __init__(self, cuda: FakeCuda, behind: int | None) -> None:
        self._cuda = cuda
        self._behind = behind
        self._passed = threading.Event()

    def come_to_pass(self) -> None:
        """Let the models end."""
        self._passed.set()
        self._cuda.used_by_models.clear()

    def query(self) -> bool:
        return self._passed.is_set() if self._behind is None else self._cuda.done >= self._behind

    def synchronize(self) -> None:
        if self._behind is None:
            assert self._passed.wait(10), "the test has not let the models end"
        else:
            self._cuda.run(self._behind)


class FakeCuda:
    """A GPU whose memory is host memory.

    Attributes:
        steps: what the stream for copies was given.
        done: how many of them are done.
        models_run: whether work of models is under way when somebody asks for an event behind it.
        uses: the events behind the work of models.
        used_by_models: memory that was allocated while they ran, and that they still write to.
    """

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []
        self.done = 0
        self.models_run = False
        self.uses: list[FakeEvent] = []
        self.used_by_models: list[torch.Tensor] = []
        self.taken: list[int] = []
        self.error: RuntimeError | None = None
        self.given_back = 0

    def run(self, until: int) -> None:
        while self.done < until:
            self.steps[self.done]()
            self.done += 1
            for memory in self.used_by_models:
                memory.fill_(GARBAGE)

    def take(self, size: int) -> torch.Tensor:
        taken = self.take_for_copies(size)
        if self.models_run:
            self.used_by_models.append(taken)
        return taken

    def take_for_copies(self, size: int) -> torch.Tensor:
        if self.error is not None:
            raise self.error
        self.taken.append(size)
        return torch.zeros(size, dtype=torch.uint8)

    def give_back(self) -> None:
        self.given_back += 1

    def alone(self, part: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(part.numpy()) if part.numel() else torch.empty_like(part)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if self.error is not None:
            raise self.error
        self.steps.append(lambda: target.copy_(source))

    def fill(self, target: torch.Tensor, byte: int) -> None:
        self.steps.append(lambda: target.fill_(byte))

    def event(self) -> FakeEvent:
        return FakeEvent(self, len(self.steps))

    def last_use(self) -> FakeEvent:
        if self.error is not None:
            raise self.error
        event = FakeEvent(self, None)
        if not self.models_run:
            event.come_to_pass()
        self.uses.append(event)
        return event

    def wait(self, event: Any) -> None:
        self.steps.append(event.synchronize)
