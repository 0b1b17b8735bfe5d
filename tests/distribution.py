"""Hand files of tests to the processes that run them: those that take longest first, and all of them, whoever dies."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# More than half a minute each, longest first: one that is begun last is waited for alone.
LONG = (
    "tests/integration/test_demo.py",
    "tests/integration/test_faults.py",
    "tests/examples/test_documents.py",
    "tests/integration/test_docker_cancellation.py",
    "tests/integration/test_bench.py",
    "tests/contract/test_docker_sandbox.py",
    "tests/service/test_real_models.py",
    "tests/integration/test_process_cancellation.py",
    "tests/integration/test_docker_channel.py",
    "tests/integration/test_local_cancellation.py",
    "tests/integration/test_process_bodies.py",
    "tests/integration/test_bench_ray.py",
)


class FilesInOrder(LoadFileScheduling):
    """Distributes whole files, as `--dist loadfile` does."""

    def schedule(self) -> None:
        """Begin, or go on with a process that has taken the place of a dead one.

        A process runs a test when it knows what comes after it. xdist gives a new one a single file: before the last
        test of that it would wait for ever, while nobody is left to run the other files.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        longest = min(self.workqueue, key=lambda file: LONG.index(file) if file in LONG else len(LONG))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
