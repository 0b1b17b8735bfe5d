"""Ray as a contender: an empty task on a cluster of this machine that lives as long as the measurement."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

from arl_tangram.bench.contenders import RAY, Contender
from arl_tangram.errors import MissingExtraError

OBJECT_STORE_BYTES = 100 << 20
"""The results are None and travel inline; this is near the least that Ray accepts."""


class _Task(Protocol):
    def remote(self) -> object: ...


class _Ray(Protocol):
    """What of Ray is used here. It is no dependency of the package, so its own types are not there to check against."""

    def init(self, **options: Any) -> object: ...
    def remote(self, function: Callable[[], None], /) -> _Task: ...
    def get(self, references: Sequence[object], /) -> object: ...
    def shutdown(self) -> None: ...


def find_ray() -> None:
    """Check that Ray is there, before anything is measured.

    Raises:
        MissingExtraError: it is not installed; the message names the extra, and how to do without.
    """
    _import_ray()


@contextmanager
def ray_contender(sizes: tuple[int, ...], cores: int) -> Generator[Contender]:
    """Start a cluster with `cores` CPUs, and shut it down and remove its files at the end, whatever happens.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    ray = _import_ray()
    with own_cluster(ray, cores):
        task = ray.remote(_nothing)
        yield Contender(RAY, sizes, lambda in_flight: _run(ray, task, in_flight))


@contextmanager
def own_cluster(ray: _Ray, cores: int) -> Generator[None]:
    """Start a cluster of this machine; it is ended and its files are removed at the end, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="arl-ray-", ignore_cleanup_errors=True) as folder:
        try:
            ray.init(
                address="local",  # never a cluster that RAY_ADDRESS names
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=folder,
            )
            yield
        finally:
            ray.shutdown()


def _run(ray: _Ray, task: _Task, in_flight: int) -> float:
    began_s = time.perf_counter()
    ray.get([task.remote() for _ in range(in_flight)])
    return time.perf_counter() - began_s


def _nothing() -> None:
    """Be the body of the task."""


def _import_ray() -> _Ray:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a measurement reports to nobody
    try:
        return cast(_Ray, importlib.import_module("ray"))
    except ImportError as error:
        raise MissingExtraError(
            "the comparison with Ray needs Ray: pip install 'arl-tangram[bench]', or leave it out with --without-ray"
        ) from error
