"""GPUs are found by UUID; what is not there, hidden, cut into slices or broken is said plainly."""

from __future__ import annotations

# ruff: noqa: N802 - the names are the library's
import ctypes
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pynvml
import pytest

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.gpu.discovery.found import choose, find_gpus
from arl_tangram.managers.gpu.discovery.nvml import Library, NoGpusError, Nvml, load, open_nvml
from fake_nvml import GIB, FakeGpu, FakeNvml, FakeSlice, eight_h200, uuid


def test_a_node_with_eight_gpus() -> None:
    nvml = eight_h200()
    found = find_gpus({}, nvml)
    assert [gpu.uuid for gpu in found.gpus] == [uuid(number) for number in range(8)]
    assert [gpu.cuda_index for gpu in found.gpus] == list(range(8))
    assert {(gpu.name, gpu.total_bytes, gpu.parent, gpu.numa_node) for gpu in found.gpus} == {
        ("NVIDIA H200", 141 * GIB, "", None)
    }
    assert (found.driver, found.reason, found.notes) == ("570.86.15", "", ())
    assert nvml.opened == 0


def test_neighbours_are_near_each_other() -> None:
    """Two pairs with NVLink, on two sockets; the buses count across them."""
    nvml = FakeNvml(
        [FakeGpu(uuid(number)) for number in range(4)],
        links={frozenset({0, 2}), frozenset({1, 3})},
        levels={frozenset({0, 2}): pynvml.NVML_TOPOLOGY_NODE, frozenset({1, 3}): pynvml.NVML_TOPOLOGY_NODE},
    )
    found = find_gpus({}, nvml)
    assert [gpu.cuda_index for gpu in found.gpus] == [0, 2, 1, 3]


def test_without_nvlink_the_nearest_by_pcie_are_neighbours() -> None:
    levels = {frozenset({0, 3}): pynvml.NVML_TOPOLOGY_SINGLE, frozenset({1, 2}): pynvml.NVML_TOPOLOGY_SINGLE}
    found = find_gpus({}, FakeNvml([FakeGpu(uuid(number)) for number in range(4)], levels=levels))
    assert [gpu.cuda_index for gpu in found.gpus] == [0, 3, 1, 2]


def machine_with_numa(root: Path, nodes: list[int]) -> list[FakeGpu]:
    gpus: list[FakeGpu] = []
    for number, node in enumerate(nodes):
        folder = root / f"sys/bus/pci/devices/0000:{number + 160:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        gpus.append(FakeGpu(uuid(number), bus=f"00000000:{number + 160:02X}:00.0"))
    return gpus


def test_numa_nodes_are_read_and_decide_where_nothing_else_is_told(tmp_path: Path) -> None:
    gpus = machine_with_numa(tmp_path, [0, 1, 0, 1])
    found = find_gpus({}, FakeNvml(gpus, topology_error=pynvml.NVML_ERROR_NOT_SUPPORTED), tmp_path)
    assert [gpu.numa_node for gpu in found.gpus] == [0, 0, 1, 1]
    assert [gpu.cuda_index for gpu in found.gpus] == [0, 2, 1, 3]


def test_a_machine_without_numa(tmp_path: Path) -> None:
    found = find_gpus({}, FakeNvml(machine_with_numa(tmp_path, [-1, -1])), tmp_path)
    assert [gpu.numa_node for gpu in found.gpus] == [None, None]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "there is no NVIDIA driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "kernel module is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "may not use the NVIDIA driver"),
    ],
)
def test_no_driver_is_no_gpus_and_no_error(error: int, words: str) -> None:
    found = find_gpus({}, FakeNvml(init_error=error))
    assert found.gpus == ()
    assert words in found.reason
    assert found.driver == ""


@pytest.fixture
def real_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy of the real module for this test alone, as it keeps what it has loaded."""
    spec = importlib.util.spec_from_file_location("pynvml_copy", pynvml.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # it looks for itself there
    spec.loader.exec_module(module)
    return module


def test_the_real_module_without_a_library(real_module: ModuleType) -> None:
    def missing(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    vars(real_module)["CDLL"] = missing
    found = find_gpus({}, cast(Library, real_module))
    assert found.reason == "there is no NVIDIA driver (its library libnvidia-ml.so.1 cannot be loaded)"
    with pytest.raises(NoGpusError, match="no NVIDIA driver"):
        Nvml(cast(Library, real_module))


class OldLibrary:
    """What ctypes would load, of an old driver: no MIG and no topology. It fills in what it is pointed to."""

    def nvmlInitWithFlags(self, flags: int) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"418.87"
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        address = ctypes.c_void_p(index.value + 1)
        ctypes.memmove(ctypes.addressof(handle._obj), ctypes.byref(address), ctypes.sizeof(address))
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        text.value = f"GPU-{self._number(handle)}".encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        text.value = b"Tesla T4"
        return 0

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.busId = b"00000000:AF:00.0"
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.free, memory._obj.used = 16 * GIB, 10 * GIB, 6 * GIB
        return 0

    @staticmethod
    def _number(handle: Any) -> int:
        return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def test_the_real_module_over_an_old_library(real_module: ModuleType, tmp_path: Path) -> None:
    """The real signatures and structures; what such a driver does not know is no error."""
    vars(real_module)["nvmlLib"] = OldLibrary()
    (tmp_path / "sys/bus/pci/devices/0000:af:00.0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:af:00.0/numa_node").write_text("1\n")
    found = find_gpus({}, cast(Library, real_module), tmp_path)
    assert [(gpu.uuid, gpu.name, gpu.numa_node) for gpu in found.gpus] == [
        ("GPU-1", "Tesla T4", 1),
        ("GPU-2", "Tesla T4", 1),
    ]
    assert [(gpu.total_bytes, gpu.free_bytes) for gpu in found.gpus] == [(16 * GIB, 10 * GIB)] * 2
    assert found.driver == "418.87"


def test_a_driver_that_tells_of_no_gpu() -> None:
    assert find_gpus({}, FakeNvml()).reason == "the NVIDIA driver 570.86.15 is there, and tells of no GPU"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "the driver was updated"),
        (pynvml.NVML_ERROR_UNKNOWN, r"Unknown Error \(code 999\)"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, r"Function Not Found \(code 13\)"),
    ],
)
def test_a_driver_that_does_not_work_is_an_error(error: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        find_gpus({}, FakeNvml(init_error=error))


def test_a_gpu_that_is_lost_is_named_and_can_be_left_out() -> None:
    nvml = eight_h200()
    nvml.gpus[3].error = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(ConfigurationError, match=r"GPU 3: GPU is lost.*leave it out with CUDA_VISIBLE_DEVICES"):
        find_gpus({}, nvml)
    found = find_gpus({"CUDA_VISIBLE_DEVICES": "2,4"}, nvml)  # those behind it keep their numbers
    assert [gpu.uuid for gpu in found.gpus] == [uuid(2), uuid(4)]
    assert nvml.opened == 0


def test_an_error_later_on_is_an_error_as_well() -> None:
    nvml = eight_h200()
    nvml.gpus[0].slices = [FakeSlice("MIG-1")]

    def fails(device: FakeGpu, index: int) -> FakeSlice:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    nvml.nvmlDeviceGetMigDeviceHandleByIndex = fails  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="GPU 0: Unknown Error"):
        find_gpus({}, nvml)


def test_what_cuda_hides_from_this_process_is_left_out() -> None:
    found = find_gpus({"CUDA_VISIBLE_DEVICES": f"5,{'1'}"}, eight_h200())
    assert [(gpu.uuid, gpu.cuda_index) for gpu in found.gpus] == [(uuid(5), 0), (uuid(1), 1)]
    assert found.notes == ("CUDA_VISIBLE_DEVICES='5,1': 2 of the 8 GPUs of this machine can be used",)
    by_uuid = find_gpus({"CUDA_VISIBLE_DEVICES": uuid(5)[:8]}, eight_h200())
    assert [gpu.uuid for gpu in by_uuid.gpus] == [uuid(5)]


@pytest.mark.parametrize("told", ["", "-1", "9", "GPU-ff"])
def test_where_cuda_hides_all_that_is_said(told: str) -> None:
    found = find_gpus({"CUDA_VISIBLE_DEVICES": told}, eight_h200())
    assert found.gpus == ()
    assert found.reason == f"CUDA_VISIBLE_DEVICES={told!r} shows none of the 8 GPUs of this machine"


def test_numbers_say_nothing_where_gpus_differ_and_cuda_counts_by_speed() -> None:
    nvml = FakeNvml([FakeGpu(uuid(0), "NVIDIA T4"), FakeGpu(uuid(1))])
    with pytest.raises(ConfigurationError, match=r"differ \(NVIDIA T4, NVIDIA H200\): name them by UUID"):
        find_gpus({"CUDA_VISIBLE_DEVICES": "1"}, nvml)
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [gpu.uuid for gpu in find_gpus(ordered, nvml).gpus] == [uuid(1)]
    assert [gpu.uuid for gpu in find_gpus({"CUDA_VISIBLE_DEVICES": uuid(1)}, nvml).gpus] == [uuid(1)]


def test_where_gpus_differ_a_number_is_told_only_if_cuda_counts_as_we_do() -> None:
    """By default CUDA counts from the fastest one on, and does not tell how it goes on."""
    nvml = FakeNvml([FakeGpu(uuid(0), "NVIDIA T4"), FakeGpu(uuid(1))])
    unknown = find_gpus({}, nvml)
    assert [(gpu.uuid, gpu.cuda_index) for gpu in unknown.gpus] == [(uuid(0), None), (uuid(1), None)]
    with pytest.raises(ConfigurationError, match=r"no GPU is called 'cuda:0'.*CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        choose(unknown, ["cuda:0"])
    assert [gpu.uuid for gpu in choose(unknown, [uuid(1)])] == [uuid(1)]
    listed = {"CUDA_VISIBLE_DEVICES": f"{uuid(1)},{uuid(0)}"}
    for environ in ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, listed, {"CUDA_VISIBLE_DEVICES": uuid(1)}):
        numbers = sorted(number for gpu in find_gpus(environ, nvml).gpus if (number := gpu.cuda_index) is not None)
        assert numbers == list(range(len(environ.get("CUDA_VISIBLE_DEVICES", ",").split(","))))
    assert {gpu.uuid: gpu.cuda_index for gpu in find_gpus(listed, nvml).gpus} == {uuid(1): 0, uuid(0): 1}


def with_mig() -> FakeNvml:
    slices = [FakeSlice("MIG-1a"), None, FakeSlice("MIG-2b", used=2 * GIB)]
    return FakeNvml([FakeGpu(uuid(0)), FakeGpu(uuid(1), slices=slices)])


def test_a_process_can_use_one_slice_of_mig() -> None:
    found = find_gpus({}, with_mig())
    (piece,) = found.gpus
    assert (piece.uuid, piece.parent, piece.total_bytes) == ("MIG-1a", uuid(1), 18 * GIB)
    assert found.notes == ("a process can use one slice of MIG and nothing else: this one MIG-1a, of 2",)
    (other,) = find_gpus({"CUDA_VISIBLE_DEVICES": "MIG-2b"}, with_mig()).gpus
    assert (other.uuid, other.free_bytes) == ("MIG-2b", 16 * GIB)
    (whole,) = find_gpus({"CUDA_VISIBLE_DEVICES": uuid(0)}, with_mig()).gpus
    assert whole.uuid == uuid(0)


def test_mig_without_slices() -> None:
    found = find_gpus({}, FakeNvml([FakeGpu(uuid(0), slices=[None, None])]))
    assert found.reason == "MIG is on for the 1 GPU of this machine, and there are no slices"
    mixed = find_gpus({}, FakeNvml([FakeGpu(uuid(0), slices=[None]), FakeGpu(uuid(1))]))
    assert [gpu.uuid for gpu in mixed.gpus] == [uuid(1)]
    assert mixed.notes == ("MIG without slices: 1 of the 2 GPUs of this machine can be used",)


def test_gpus_that_know_no_mig() -> None:
    nvml = FakeNvml([FakeGpu(uuid(0), "NVIDIA T4", mig_error=pynvml.NVML_ERROR_NOT_SUPPORTED)])
    assert [gpu.uuid for gpu in find_gpus({}, nvml).gpus] == [uuid(0)]
    nvml.gpus[0].mig_error = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND  # an old driver
    assert [gpu.uuid for gpu in find_gpus({}, nvml).gpus] == [uuid(0)]


def test_memory_that_others_use_is_not_free() -> None:
    nvml = FakeNvml([FakeGpu(uuid(0), used=40 * GIB), FakeGpu(uuid(1), used=GIB // 2)])
    found = find_gpus({}, nvml)
    assert [gpu.free_bytes for gpu in found.gpus] == [101 * GIB, 141 * GIB - GIB // 2]
    assert found.notes == (f"{uuid(0)}: 40.0 of 141.0 GiB are in use",)


def test_memory_can_be_watched() -> None:
    fake = with_mig()
    nvml = Nvml(fake)
    assert nvml.memory(uuid(0)) == (141 * GIB, 141 * GIB - (1 << 20))
    fake.gpus[0].used = 100 * GIB
    assert nvml.memory(uuid(0)).free_bytes == 41 * GIB
    assert nvml.memory("MIG-2b").free_bytes == 16 * GIB
    with pytest.raises(OSError, match=r"the memory of GPU-0 cannot be told: there is no such device"):
        nvml.memory("GPU-0")
    fake.gpus[0].error = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(OSError, match="GPU is lost"):
        nvml.memory(uuid(0))
    nvml.close()
    nvml.close()
    assert fake.opened == 0
    with pytest.raises(OSError, match="NVML was closed"):
        nvml.memory(uuid(0))


def test_gpus_are_chosen_by_name() -> None:
    found = find_gpus({}, eight_h200())
    assert [gpu.uuid for gpu in choose(found, [uuid(3), "cuda:0"])] == [uuid(0), uuid(3)]
    assert [gpu.uuid for gpu in choose(found, [uuid(3)[:7]])] == [uuid(3)]
    for name in ("cuda:8", "cuda:", "3", "", "GPU-ff", "MIG-1", "cpu:0"):
        with pytest.raises(ConfigurationError, match=f"no GPU is called {name!r}; this process sees {uuid(0)}"):
            choose(found, [name])
    with pytest.raises(ConfigurationError, match="more than one GPU is called 'GPU-'"):
        choose(found, ["GPU-"])
    with pytest.raises(ConfigurationError, match=f"the GPU {uuid(1)} is asked for twice: {uuid(1)}, cuda:1"):
        choose(found, [uuid(1), "cuda:1"])
    with pytest.raises(ConfigurationError, match="sees no GPU: there is no NVIDIA driver"):
        choose(find_gpus({}, FakeNvml(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)), ["cuda:0"])


def test_without_the_module_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'arl-tangram\[gpu\]'"):
        load()
    with pytest.raises(MissingExtraError):
        find_gpus()


def test_nothing_is_imported_before_it_is_needed() -> None:
    assert "pynvml" not in vars(importlib.import_module("arl_tangram.managers.gpu.discovery.nvml"))


def test_the_fake_has_what_the_real_module_has() -> None:
    for name in (name for name in vars(FakeNvml) if name.startswith("nvml")):
        assert callable(getattr(pynvml, name)), name


@pytest.mark.gpu
def test_the_real_driver() -> None:
    found = find_gpus()
    assert found.gpus, found.reason
    nvml = open_nvml()
    for gpu in found.gpus:
        assert 0 < nvml.memory(gpu.uuid).free_bytes <= gpu.total_bytes
    nvml.close()
