"""What measures the memory of devices."""

from __future__ import annotations

from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.gpu.discovery.nvml import Memory, NoGpusError
from arl_tangram.services.servers import gauge as gauges
from arl_tangram.services.servers.gauge import Gauge


class Card:
    """As much of a device as is asked for here."""

    def __init__(self, name: str, torch_name: str = "cuda:0") -> None:
        self.name = name
        self.torch_name = torch_name


CARDS: Any = [Card(f"GPU-{number}") for number in range(8)]


class Library:
    """NVML, open."""

    def __init__(self) -> None:
        self.is_closed = False

    def memory(self, uuid: str) -> Memory:
        return Memory(100, len(uuid))

    def close(self) -> None:
        self.is_closed = True


async def test_gpus_are_measured_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(gauges, "open_nvml", lambda: library)
    gauge = Gauge(None)
    unnumbered: Any = Card("GPU-9", "GPU-9")
    memory_of = await gauge.open([*CARDS[:2], unnumbered])
    assert memory_of is not None
    assert memory_of("GPU-0") == 5
    await gauge.aclose()
    assert library.is_closed


async def test_what_is_no_gpu_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "open_nvml", lambda: pytest.fail("asked for"))
    mixed: Any = [CARDS[0], Card("cpu:0", "cpu")]
    gauge = Gauge(None)
    assert await gauge.open(mixed) is None
    await gauge.aclose()


@pytest.mark.parametrize("error", [MissingExtraError("no nvidia-ml-py"), NoGpusError("no driver")])
async def test_without_a_library_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(gauges, "open_nvml", fails)
    assert await Gauge(None).open(CARDS) is None


async def test_a_broken_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ConfigurationError("the driver and its library do not match")

    monkeypatch.setattr(gauges, "open_nvml", fails)
    with pytest.raises(ConfigurationError, match="do not match"):
        await Gauge(None).open(CARDS)


async def test_what_a_user_gives_is_taken() -> None:
    given = len
    gauge = Gauge(given)
    assert await gauge.open(CARDS) is given
    await gauge.aclose()
