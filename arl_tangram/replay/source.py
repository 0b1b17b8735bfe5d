"""What is replayed: a workload, what there was to share, and what was measured; from a trace or others' recording."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.topology import Topology
from arl_tangram.replay.recorded import told, workload_of
from arl_tangram.replay.recording import read_with_notes
from arl_tangram.replay.tables import RecordingError, require_file
from arl_tangram.replay.traced import read_run
from arl_tangram.replay.traced_workload import workload_of as workload_of_trace
from arl_tangram.replay.variants import policy_named
from arl_tangram.scheduling.policies import size_aware
from arl_tangram.simulate.calls import Workload
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.format import FORMAT

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_HEAD = 4096
_SHARED_BY = ", share="
_HEADER = re.compile(rb'\{\s*"format"\s*:')


@dataclass(frozen=True, slots=True)
class Source:
    """A recorded run, ready to be run again.

    Attributes:
        workload: what happened; each rollout is a recorded trajectory.
        topology: what there was to share; None if the recording does not say.
        policy: the name of that under which it was recorded, without that of a policy of shared cores; None if the
            recording does not say.
        shared: whether running actions shared their cores.
        measured: what was measured; None if the recording is not of this library.
        host: the number of the node where what is outside of sandboxes runs, if there are several.
        notes: what of it is not as it was recorded, or not known.
    """

    workload: Workload
    topology: Topology | None = None
    policy: str | None = None
    shared: bool = False
    measured: Figures | None = None
    host: int = 0
    notes: tuple[str, ...] = ()


def read_source(paths: Sequence[Path]) -> Source:
    """Read one trace, or the files of one recording of another program.

    Raises:
        TraceFormatError: a trace, and damaged, or of a newer version, or it holds what cannot be.
        RecordingError: no trace, and no such recording either.
        ConfigurationError: nothing in it can be replayed.
        OSError: a file cannot be read.
    """
    traces = [path for path in paths if _is_trace(path)]
    if not traces:
        recorded, notes = read_with_notes(paths)
        workload, repairs = workload_of(recorded)
        return Source(workload, notes=(*told(repairs), *notes))
    if len(paths) > 1:
        raise ConfigurationError(f"a trace is replayed alone; {traces[0]} is one, of {len(paths)} files")
    run = read_run(traces[0])
    workload, topology, host, told_of = workload_of_trace(run)
    if not (workload.arrivals or any(turn.calls for rollout in workload.rollouts for turn in rollout.turns)):
        raise ConfigurationError(f"{traces[0]} has {len(run.calls):,} calls, of which none has run to its end")
    policy, _, share = run.header.policy.partition(_SHARED_BY)
    told_of += tuple(_not_as_recorded(policy, share))
    return Source(workload, topology, policy, bool(share) or run.resizes > 0, run.figures, host, told_of)


def _not_as_recorded(policy: str, share: str) -> Iterator[str]:
    """Say which policies of a run are not known here, so that others stand for them."""
    try:
        policy_named(policy)
    except ConfigurationError:
        yield f"Recorded under {policy}, which is not known here: the run itself is replayed under elastic."
    if share not in ("", size_aware().name):
        yield f"Cores were shared by {share}; in the replay they are shared by {size_aware().name}."


def _is_trace(path: Path) -> bool:
    """Whether a file begins like a trace, of whatever version."""
    require_file(path)
    with path.open("rb") as file:
        packed = file.peek(len(_GZIP)).startswith(_GZIP)
        try:
            head = gzip.GzipFile(fileobj=file).read(_HEAD) if packed else file.read(_HEAD)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise RecordingError(f"{path} begins like a gzip file and cannot be decompressed: {error}") from None
    first = head.removeprefix(_BOM).partition(b"\n")[0]
    return first.startswith(b"{") and (FORMAT.encode() in first or _HEADER.match(first) is not None)
