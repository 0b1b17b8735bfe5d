"""Say which actions share the cores of their node while they run, and which of them begin by sharing, too."""

from __future__ import annotations

from arl_tangram.model.lifecycle import Demand


def shares(demand: Demand) -> bool:
    """Whether the cores of an action can be changed while it runs: it can be suspended, or have more or fewer."""
    return demand.elastic is not None and (demand.preemptible or demand.resizable)


def begins_by_sharing(demand: Demand) -> bool:
    """Whether cores that are shared are all that an action waits for; otherwise it shares from its start on."""
    return shares(demand) and demand.dimensions == 1 << (demand.elastic or 0)
