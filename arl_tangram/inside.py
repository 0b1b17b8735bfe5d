"""What an action must not ask for from inside, as it would wait for its own end, or bring it about."""

from __future__ import annotations

from arl_tangram.context import active_var
from arl_tangram.errors import UsageError
from arl_tangram.model.quantities import is_name
from arl_tangram.trajectories import trajectory_var


def check_drain() -> None:
    """Check whether this may wait until nothing runs any more.

    Raises:
        UsageError: it is said in an action, which would wait for itself.
    """
    if (inside := _running_action()) is not None:
        raise UsageError(f"{inside} would wait for itself in drain(); call it from outside of actions")


def check_cancel_group(group: str) -> None:
    """Check whether this may end the actions of a group.

    Raises:
        UsageError: it is said in an action of that group, or that is no name of a group.
    """
    inside, trajectory = _running_action(), trajectory_var.get()
    if inside is not None and trajectory is not None and trajectory.group == group:
        raise UsageError(f"{inside} would end itself by cancel_group({group!r}); call it from the rollout")
    if not is_name(group):
        raise UsageError(f"cancel_group() takes the name of a group, not {group!r}")


def _running_action() -> str | None:
    """Return the name of the action whose body this is said in, if it runs."""
    active = active_var.get()
    return None if active is None or active.ended else active.name
