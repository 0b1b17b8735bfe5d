"""What cannot be a fake service, or a fake device, is refused when it is declared, as that of a real pool is."""

from __future__ import annotations

from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.testing import FakeGpuPool, FakeService


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "the name of a service"),
        ({"gib": -1}, "gib must be a finite number from 0"),
        ({"gib": float("nan")}, "gib must be a finite number from 0"),
        ({"gib": "1"}, "gib takes a number"),
        ({"peak_gib": -1}, "peak_gib must be a finite number from 0"),
        ({"gib": 2, "peak_gib": 1}, "peak_gib=1 is less than gib=2"),
        ({"restore_s": -1}, "restore_s takes finite seconds above 0"),
        ({"restore_s": float("nan")}, "restore_s takes finite seconds above 0"),
        ({"restore_s": "1"}, "restore_s takes finite seconds above 0"),
        ({"dops": ()}, "dops= takes different numbers"),
        ({"dops": (3,)}, "dops= takes different numbers"),
        ({"dops": (1, 1)}, "dops= takes different numbers"),
        ({"dops": 2}, "dops= takes different numbers"),
        ({"max_concurrency": 0}, "max_concurrency takes a whole number from 1"),
        ({"max_concurrency": 1.5}, "max_concurrency takes a whole number from 1"),
        ({"exclusive": "x"}, "exclusive= takes True or False"),
        ({"on_call": 3}, "on_call= takes a function"),
        ({"on_restore": 3}, "on_restore= takes a function"),
    ],
)
def test_a_service_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FakeService(**{"name": "judge", **options})


def test_a_service_may_be_restored_at_once_and_take_nothing() -> None:
    assert FakeService("judge", gib=0, restore_s=0).hosted().restore_s == ((1, 0),)


@pytest.mark.parametrize("options", [{"gpus": 0}, {"gpus": 1.5}, {"gib": 0}, {"gib": "1"}, {"policy": "x"}])
def test_a_pool_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^FakeGpuPool\("):
        FakeGpuPool(**options)


@pytest.mark.parametrize("names", [(), ("x", "x"), "x", (3,), ("",)])
async def test_devices_that_cannot_be_are_not_lent(names: Any) -> None:
    manager = FakeGpuPool().manager()
    await manager.start()
    with pytest.raises(ConfigurationError, match=r"lend\(\)"):
        await manager.lend(names)
    first, node = await manager.lend(["x"])
    assert (first, [device.name for device in node.devices]) == (1, ["x"])
    await manager.aclose()
