"""Look at GPUs: which of them a `GpuPool` of this process would have, and why the rest is left out. Blocks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from arl_tangram.doctor.findings import Finding
from arl_tangram.doctor.installed import version_of
from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.gpu.discovery.found import FoundGpus, find_gpus
from arl_tangram.managers.gpu.discovery.nvml import has_driver
from arl_tangram.model.quantities import GIB

_EXTRA = "pip install 'arl-tangram[gpu]'"
_CPU_BUILD = "+cpu"
_SERVERS = "servers can be services, and bodies take GPUs with gpu="


def look(root: Path = Path("/")) -> Finding:
    """Ask the driver of NVIDIA, if there is one; `root` stands before the paths."""
    try:
        return judge(find_gpus(root=root), version_of("torch"))
    except MissingExtraError:
        if not has_driver(root):
            return _absent("no NVIDIA driver is loaded")
        return Finding("gpus", "limited", "there is an NVIDIA driver, and nvidia-ml-py is not installed", _EXTRA)
    except ConfigurationError as error:
        return Finding("gpus", "wrong", str(error))


def judge(found: FoundGpus, torch: str | None) -> Finding:
    """Say what a pool would have.

    Args:
        found: the GPUs.
        torch: the version of torch that is installed; None if none is.
    """
    if not found.gpus:
        if not found.driver:
            return _absent(found.reason)
        advice = "give this process GPUs, by CUDA_VISIBLE_DEVICES or the options of its container"
        return Finding("gpus", "limited", found.reason, advice)
    kinds = Counter(f"{gpu.name} ({gpu.total_bytes / GIB:.0f} GiB)" for gpu in found.gpus)
    has = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
    text = "; ".join([f"NVIDIA driver {found.driver}, {has}", *found.notes])
    if torch is None:
        return Finding("gpus", "limited", f"{text}; torch is not installed, so only {_SERVERS}", _EXTRA)
    if torch.endswith(_CPU_BUILD):
        advice = "install torch with CUDA"
        return Finding("gpus", "limited", f"{text}; torch {torch} is built without CUDA, so only {_SERVERS}", advice)
    return Finding("gpus", "ok", f"{text}; torch {torch}")


def _absent(reason: str) -> Finding:
    return Finding("gpus", "absent", f"{reason}: a GpuPool can have CPU devices only")
