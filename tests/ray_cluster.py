"""A Ray cluster of several nodes on this machine, in a process of its own, so that pytest's own imports no Ray.

Run as a program, it prints its address and the ids of its nodes as one line of JSON, and ends with its standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = 3
START_LIMIT_S = 100
STOP_LIMIT_S = 30
OBJECT_STORE_BYTES = 80 << 20


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A cluster that runs.

    Attributes:
        address: for `RAY_ADDRESS`.
        nodes: Ray's ids of its nodes, the head first.
        temporary: the folder for temporary files of its programs and actors.
    """

    address: str
    nodes: tuple[str, ...]
    temporary: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables of programs that are to join it."""
        return _environment(self.temporary) | {"RAY_ADDRESS": self.address}


@contextmanager
def started(nodes: int = NODES) -> Iterator[RayCluster]:
    """Start one; at the end nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        temporary = f"{folder}/tmp"
        os.makedirs(f"{temporary}/ray")  # where it writes its address
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), folder, str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(temporary),
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            yield RayCluster(told["address"], tuple(told["nodes"]), temporary)
        finally:
            process.stdin.close()
            process.wait(STOP_LIMIT_S)
            process.stdout.close()


def _environment(temporary: str) -> dict[str, str]:
    """No workers are started before they are needed: each program that joins would have four of them, and uses none."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_prestart_worker_first_driver": "0"}
    return os.environ | settings | {"TMPDIR": temporary}


def main(folder: str, nodes: int) -> None:
    """Run a cluster until standard input ends."""
    import ray
    from ray.cluster_utils import Cluster

    shared = {"num_cpus": 4, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    own = os.dup(1)
    os.dup2(2, 1)  # Ray's own prints are not ours
    cluster = Cluster(initialize_head=True, head_node_args=shared | {"temp_dir": folder})
    for _ in range(nodes - 1):
        cluster.add_node(**shared)
    cluster.wait_for_nodes()
    ids = [cluster.head_node.node_id, *(node.node_id for node in cluster.worker_nodes)]
    os.write(own, json.dumps({"address": cluster.address, "nodes": ids}).encode() + b"\n")
    sys.stdin.read()
    cluster.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
