"""The trace format, version 3: what stands on each line of a JSONL trace, and the frame around the events.

Every line is one JSON object in ASCII. The first is the header (`Header`), the last is the footer
(`Footer`); a run that was killed has no footer, and its last line may be cut off. In between, each
line is one event with a `type` and `at_s`; times are seconds on the clock that the header names,
rounded to microseconds, and a number that is not finite is `null`.

=============  =======================================================================================
type           further fields
=============  =======================================================================================
submitted      id, submitted_at_s, name, key, trajectory, turn, parent (an id or null), since_s (when it was
               first submitted, if it was tried before, or null), priority, queue_timeout_s, duration_s,
               fixed {dimension: units}, elastic (a dimension or null), options [units],
               speedup {whole units: speed-up} or null, relative [duration at each option], reserved,
               learns
deferred       id
started        id, started_at_s, units, cores, grant {dimension: units}, expected_s, seat (only with GPUs)
resized        id, units (that it has from now on; 0: it is suspended)
ended          id, submitted_at_s, name, key, trajectory, outcome, error, queueing_s, execution_s,
               overhead_s, cpu_s, cores
returned       id
lent           id, units (of the cores, to others while it waits for actions that it called)
resumed        id, units (that it has again)
settled        id, dimension, units (of a rate or a budget, instead of what it counted for before)
opened         id, group, waited_s, reserved, held {dimension: units}
closed         id
refused        policy, reason, shares (true, only of the policy by which running actions share cores)
capacity       dimension, capacity (from now on)
evicted        service, dop, first (it leaves `dop` GPUs, from that number on)
restored       service, dop, first, took_s (it can be used there; the restore took so long)
unrestored     service, dop, first (the restore failed)
died           service, dop, first (while it could be used)
paused         paused (whether nothing new starts from now on)
=============  =======================================================================================

`units` are the integer units of the header's dimensions: `scale` of them make one whole unit. What
an action runs on inside its trajectory's reservation is in `units` and `cores`, not in `grant`.
Where an action has several places to go to, such as the keys of a quota, `fixed` is empty and `grant`
says which it got.
With several nodes, each has dimensions of its own (`cpu@NAME`, `memory@NAME`, `sandboxes@NAME`). Then the types
submitted, ended and opened have `node`, the name, unless they concern none.
Of a call that uses a service, or has GPUs to itself, `submitted` has `seat` {service or null, dops, relative (only if
declared)}; of one with a choice of GPUs, `fixed` has the least and `grant` what it got of them. And `started` has
`seat` {service or null, dop, first, restores, evicts [[service, dop]]}: it is on `dop` GPUs from the number `first` on,
and is the one for whom the service is restored, or not. If that fails, the call is returned, and submitted again under
its id, without an end.
Where cores are shared by actions while they run, `submitted` has `preemptible` or `resizable` if its demand is,
and `ended` has `suspended_s` and `switches` if its cores were changed.
A call that is tried again is submitted, started, returned and ended once for each attempt, under one id.
Version 1 lacks `parent`, `since_s`, `learns`, and the types lent, resumed, settled, capacity and paused. Versions 1
and 2 have nothing of shared cores.
Arguments and outputs of actions are never written. A `key` of more than 64 characters, which may be
such an argument, is written as a digest: equal keys stay equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.model.topology import Topology

FORMAT = "arl-tangram-trace"
VERSION = 3

_OF_SERVICE = ("service", "dop", "first")
FIELDS: dict[str, frozenset[str]] = {
    type_: frozenset(("type", "at_s", *fields))
    for type_, fields in {
        "submitted": (
            *("id", "submitted_at_s", "name", "key", "trajectory", "turn", "parent", "since_s", "priority", "node"),
            *("queue_timeout_s", "duration_s", "fixed", "elastic", "options", "speedup", "relative", "reserved"),
            *("learns", "seat", "preemptible", "resizable"),
        ),
        "deferred": ("id",),
        "started": ("id", "started_at_s", "units", "cores", "grant", "expected_s", "seat"),
        "resized": ("id", "units"),
        "ended": (
            *("id", "submitted_at_s", "name", "key", "trajectory", "outcome", "error", "queueing_s", "execution_s"),
            *("overhead_s", "cpu_s", "cores", "node", "suspended_s", "switches"),
        ),
        "returned": ("id",),
        "lent": ("id", "units"),
        "resumed": ("id", "units"),
        "settled": ("id", "dimension", "units"),
        "opened": ("id", "group", "waited_s", "reserved", "held", "node"),
        "closed": ("id",),
        "refused": ("policy", "reason", "shares"),
        "capacity": ("dimension", "capacity"),
        "evicted": _OF_SERVICE,
        "restored": (*_OF_SERVICE, "took_s"),
        "unrestored": _OF_SERVICE,
        "died": _OF_SERVICE,
        "paused": ("paused",),
        "footer": ("written", "dropped", "lost"),
    }.items()
}
"""The fields of each type of line, also those that some lines lack."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a trace says about its run.

    Attributes:
        written_by: version of the library that wrote it.
        policy: name of the scheduling policy.
        clock: what the times are seconds of.
        created_unix_s: wall-clock time at which the trace was opened, seconds since 1970.
        topology: the dimensions and their capacities.
        version: version of the format.
    """

    written_by: str
    policy: str
    clock: str
    created_unix_s: float
    topology: Topology
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Footer:
    """What a sink says when it closes.

    Attributes:
        written: events in the file.
        dropped: events that came while the queue was full.
        lost: events that the disk did not take or that could not be encoded.
    """

    written: int
    dropped: int
    lost: int
