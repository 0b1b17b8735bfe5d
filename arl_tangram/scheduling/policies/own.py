"""A policy of the user's own: one pure function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.sharing import SharePolicy
from arl_tangram.scheduling.policy import Plan, Policy


@dataclass(frozen=True, slots=True)
class Own:
    """Asks the user's function; see `policy_of`."""

    function: Plan

    @property
    def name(self) -> str:
        """How reports call it."""
        return str(getattr(self.function, "__qualname__", type(self.function).__qualname__))

    @property
    def reserved_cores(self) -> int:
        """Nothing is reserved."""
        return 0

    def planner(self) -> Plan:
        """Return the function."""
        return self.function


def policy_of(policy: Policy | Plan) -> Policy:
    """Return a policy, or make one of a function from a `Group` to the units for its first candidates.

    Raises:
        ConfigurationError: it is neither.
    """
    if callable(getattr(policy, "planner", None)) and not isinstance(policy, type):
        return cast(Policy, policy)
    module = str(getattr(policy, "__module__", ""))
    if callable(policy) and not isinstance(policy, type) and not module.startswith("arl_tangram.scheduling"):
        return Own(policy)  # one of our own functions would be `policies.fixed` without its call
    given: object = policy
    advice = ", which is for share= of a pool" if isinstance(given, SharePolicy) else ""
    raise ConfigurationError(
        f"policy= takes a policy, such as policies.fixed(4), or a function that plans a Group, not {policy!r}{advice}"
    )
