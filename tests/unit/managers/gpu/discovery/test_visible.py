"""Which devices CUDA shows to a process, and what a child is told."""

from __future__ import annotations

import pytest

from arl_tangram.managers.gpu.discovery.visible import environment, is_by_number, seen

GPUS = {"GPU-1a2b": None, "GPU-1c3d": None, "GPU-2e4f": None}
WITH_MIG = {"GPU-1a2b": None, "GPU-1c3d": ["MIG-5a", "MIG-6b"], "GPU-2e4f": ["MIG-7c"]}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, ["GPU-1a2b", "GPU-1c3d", "GPU-2e4f"]),
        ("0,1,2", ["GPU-1a2b", "GPU-1c3d", "GPU-2e4f"]),
        ("2,0", ["GPU-2e4f", "GPU-1a2b"]),  # in the order of the list
        (" 1 , 2", ["GPU-1c3d", "GPU-2e4f"]),
        ("1foo", ["GPU-1c3d"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,3,1", ["GPU-1a2b"]),  # the first that is none ends the list
        ("0,,1", ["GPU-1a2b"]),
        ("0,-1,1", ["GPU-1a2b"]),
        ("1,1", []),  # twice is none at all
        ("GPU-2e4f", ["GPU-2e4f"]),
        ("GPU-2,GPU-1a", ["GPU-2e4f", "GPU-1a2b"]),
        ("GPU-1", []),  # two begin so
        ("GPU-2,GPU-1", ["GPU-2e4f"]),
        ("GPU-2,GPU-2e4f", []),
        ("GPU-9", []),
        ("GPU-2,0", ["GPU-2e4f"]),  # one kind only
        ("0,GPU-2", ["GPU-1a2b"]),
        ("gpu-2e4f", []),
    ],
)
def test_what_a_process_sees(told: str | None, expected: list[str]) -> None:
    assert seen(told, GPUS) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, ["MIG-5a"]),  # one slice, and no whole GPU beside it
        ("0", ["GPU-1a2b"]),
        ("1", ["MIG-5a"]),
        ("0,2", ["MIG-7c"]),
        ("MIG-6", ["MIG-6b"]),
        ("MIG-6b,MIG-7c", ["MIG-6b"]),
        ("GPU-2", ["MIG-7c"]),
        ("GPU-1a", ["GPU-1a2b"]),
        ("MIG-9", []),
    ],
)
def test_slices_of_mig(told: str | None, expected: list[str]) -> None:
    assert seen(told, WITH_MIG) == expected


def test_a_gpu_with_mig_on_and_no_slices_is_not_seen() -> None:
    assert seen(None, {"GPU-1": [], "GPU-2": None}) == ["GPU-2"]
    assert seen("0", {"GPU-1": [], "GPU-2": None}) == []


@pytest.mark.parametrize(("told", "by_number"), [(None, False), ("", False), ("0,1", True), ("GPU-1", False)])
def test_numbers_are_told_from_uuids(told: str | None, *, by_number: bool) -> None:
    assert is_by_number(told) is by_number


def test_a_child_sees_just_its_devices() -> None:
    assert environment(["GPU-2e4f", "GPU-1a2b"]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-2e4f,GPU-1a2b",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert seen(environment(["GPU-2e4f", "GPU-1a2b"])["CUDA_VISIBLE_DEVICES"], GPUS) == ["GPU-2e4f", "GPU-1a2b"]
    assert environment(["MIG-5a"])["CUDA_VISIBLE_DEVICES"] == "MIG-5a"
    assert environment(["cpu:0", "cpu:1"])["CUDA_VISIBLE_DEVICES"] == ""
    assert environment([])["CUDA_VISIBLE_DEVICES"] == ""
