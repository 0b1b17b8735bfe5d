"""What the doctor says about GPUs."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from arl_tangram.doctor import gpus
from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.gpu.discovery.found import find_gpus
from fake_nvml import GIB, FakeGpu, FakeNvml, eight_h200, uuid


@pytest.mark.parametrize(
    ("torch", "state", "words"),
    [
        ("2.13.0", "ok", "; torch 2.13.0"),
        ("2.13.0+cpu", "limited", "torch 2.13.0+cpu is built without CUDA"),
        (None, "limited", "torch is not installed"),
    ],
)
def test_gpus_are_counted(torch: str | None, state: str, words: str) -> None:
    found = gpus.judge(find_gpus({}, eight_h200()), torch)
    assert found.text.startswith("NVIDIA driver 570.86.15, 8 × NVIDIA H200 (141 GiB)")
    assert found.state == state
    assert words in found.text
    assert bool(found.advice) == (state != "ok")


def test_what_is_hidden_or_in_use_is_told() -> None:
    nvml = FakeNvml([FakeGpu(uuid(0), used=100 * GIB), FakeGpu(uuid(1))])
    told = gpus.judge(find_gpus({"CUDA_VISIBLE_DEVICES": "0"}, nvml), "2.13.0").text
    assert "CUDA_VISIBLE_DEVICES='0': 1 of the 2 GPUs" in told
    assert "100.0 of 141.0 GiB are in use" in told
    hidden = gpus.judge(find_gpus({"CUDA_VISIBLE_DEVICES": ""}, nvml), "2.13.0")
    assert hidden.state == "limited"
    assert "shows none of the 2 GPUs" in hidden.text


def test_no_driver_is_absence() -> None:
    found = gpus.judge(find_gpus({}, FakeNvml(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)), "2.13.0")
    assert found.state == "absent"
    assert "there is no NVIDIA driver" in found.text


def test_a_driver_that_does_not_work_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(root: Path) -> None:
        raise ConfigurationError("the driver was updated")

    monkeypatch.setattr(gpus, "find_gpus", fails)
    assert (gpus.look().state, gpus.look().text) == ("wrong", "the driver was updated")


def test_without_the_library_the_driver_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(root: Path) -> None:
        raise MissingExtraError("nvidia-ml-py")

    monkeypatch.setattr(gpus, "find_gpus", fails)
    assert gpus.look(tmp_path).state == "absent"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    found = gpus.look(tmp_path)
    assert found.state == "limited"
    assert "arl-tangram[gpu]" in found.advice
