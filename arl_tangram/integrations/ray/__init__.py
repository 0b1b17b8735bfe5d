"""One pool for many processes and nodes: the scheduler in a Ray actor, thin clients, an agent on each node.

::

     a client process              the owner's actor             the agent's actor of a node
     ┌──────────────┐   commands   ┌───────────────┐   events    ┌─────────────────────────┐
     │ client:      │ ───────────► │ owner:        │ ──────────► │ node:                   │
     │ calls, their │ ◄─────────── │ one scheduler │ ◄────────── │ managers of its pools,  │
     │ bodies       │    events    │ for all       │  commands   │ sandboxes, services     │
     └──────┬───────┘              └───────────────┘             └────────────▲────────────┘
            └───────────────── calls: sandboxes, cores, services ─────────────┘

Who starts when is decided by the owner; bodies run in their clients, and commands of sandboxes on their nodes. Only
costs, grants and measurements cross: `wire`. Clients and agents are sessions of the owner, over ways that may lose,
double and reorder: `sessions`. `owner`, `client` and `node` know nothing of each other, and of Ray but `lines`.

    sharing         `share` and `connect`; `reaching` makes the actors, or finds them: by `naming`, `placing` and
                    `configuration`
    owner_actor, agent_actor
                    the actors, which only unpack, hand over, and pack; `handles`: the ways to them
    installed       the only module that imports Ray; `connection`: how this process is in a cluster
    answers         how a call at an agent ended, made into a value or an error again
    charges         what was taken of rates and budgets, in bounded memory
    pieces          folders on their way

A client that hears nothing lets go of what it holds before the owner gives it to others. An owner that was started
again grants nothing before it knows what is held, from those who hold it.
"""

from __future__ import annotations

from arl_tangram.integrations.ray.sharing import Node, Shared, connect, share

__all__ = ["Node", "Shared", "connect", "share"]
