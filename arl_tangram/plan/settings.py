"""What is needed, as it is written into a program: pools, quotas, and what trainers have a word for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import QuotaKey, Topology
from arl_tangram.plan.in_flight import GAIN, InFlight
from arl_tangram.plan.resources import MEMORY_GIB, Resource


def pools(topology: Topology, resources: Sequence[Resource]) -> Iterator[str]:
    """Yield the pools and quotas, a line each; memory only where it is held."""
    memory = any(resource.name == MEMORY_GIB for resource in resources)
    for node in topology.nodes:
        said: list[str] = []
        if node.cpu is not None:
            dimension = topology.dimensions[node.cpu]
            said.append(f"cores={dimension.capacity / dimension.scale:g}")
        if memory and node.memory is not None:
            said.append(f"memory_gib={topology.dimensions[node.memory].capacity / GIB:g}")
        if said:
            where = f"  # node {node.name}" if node.name else "  # or DockerPool"
            yield f"LocalPool({', '.join(said)}){where}"
    used = {resource.quota for resource in resources}
    yield from (quota(name, keys, topology) for name, keys in topology.quotas.items() if name in used)


def quota(name: str, keys: Sequence[QuotaKey], topology: Topology) -> str:
    """Return how a quota is declared; of its keys and its breaker a trace tells only that they were there."""
    key = keys[0]
    limits = {"calls": _limits(topology, key.calls), "tokens": _limits(topology, key.tokens)}
    rates = {word: [pair for pair in pairs if 0 < pair[1] < math.inf] for word, pairs in limits.items()}
    periods = {period_s for pairs in rates.values() for _, period_s in pairs}
    said: list[str] = []
    for word, pairs in rates.items():
        if pairs and len(periods) == 1:
            said.append(f"{word}={pairs[0][0]:.15g}")
        elif pairs:
            said.append(f"{word}=[{', '.join(f'({most:.15g}, {period_s:g})' for most, period_s in pairs)}]")
    if len(periods) == 1:
        said += [f"period_s={period_s:g}" for period_s in periods]
    said += [f"concurrency={most:.15g}" for most, _ in _limits(topology, key.concurrency)]
    for word, pairs in limits.items():
        said += [f"total_{word}={most:.15g}" for most, period_s in pairs if math.isinf(period_s)]
    said += ["keys=[...]"] * (len(keys) > 1) + ["breaker=..."] * bool(key.breaker)
    return f'Quota("{name}", {", ".join(said)})'


def trainer(found: InFlight) -> Iterator[str]:
    """Yield what a trainer is to be told, and what it need not be."""
    if found.enough:
        most = found.unbounded.rollouts
        yield (
            f"{found.enough} of {most} rollouts at once: the step is as short as with all of them, within {GAIN:.0%}."
            if found.enough < most
            else f"All {most} rollouts at once: with fewer, the step is longer."
        )
        yield f"  VeRL  data.train_batch_size x actor_rollout_ref.rollout.n: at least {found.enough}"
        yield f"        actor_rollout_ref.rollout.agent.num_workers: at most {found.enough}; they limit nothing here"
        yield f"        actor_rollout_ref.rollout.multi_turn.max_parallel_calls={found.calls_of_rollout}"
        yield f"  TRL   generation_batch_size: at least {found.enough}"
    if calls := found.calls:
        yield f"Up to {calls} calls wait or run at once. A limit of your own below {calls}, as a semaphore, num_workers"
        yield "or max_concurrent of a sandbox service, makes calls wait where the scheduler does not see them."


def _limits(topology: Topology, indices: Sequence[int]) -> list[tuple[float, float]]:
    """Return the most of each limit, and its seconds: infinite for a budget, 0 for what is held."""
    dimensions = [topology.dimensions[index] for index in indices]
    return [(d.capacity / d.scale, d.window_s or 0.0) for d in dimensions]
