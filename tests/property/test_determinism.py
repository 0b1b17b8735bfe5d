"""The same inputs give the same decisions: in one process, and whatever the seed of Python's hashes is."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import arl_tangram
from arl_tangram.errors import InfeasibleError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.scheduling.policies import Policy, elastic, fixed, paper, reserved
from property.worlds import World, make_demand, make_topology

POLICIES: list[Policy] = [elastic(), paper(), paper(best_prefix=True), fixed(2), reserved(1)]


def play(policy: Policy, seed: int, steps: int = 600) -> World:
    """Play random commands; the draws depend on nothing but the seed."""
    chance = random.Random(seed)
    topology = make_topology(cores=8)
    costs: list[dict[str, object]] = [
        {"cpu": Elastic(1, 8)},
        {"cpu": Elastic.of(1, 2, 4), "priority": 1},
        {"cpu": 0.5, "memory_gib": 1},
        {"search": 1, "thread": True},
        {"cpu": 1, "search": 1, "queue_timeout": 3},
        {"memory_gib": 6},
    ]
    held = policy.reserved_cores * 1000
    outer = [make_demand(topology, f"a{i}", **cost) for i, cost in enumerate(costs)]  # type: ignore[arg-type]
    inner = [make_demand(topology, f"a{i}", **cost, reserved=held) for i, cost in enumerate(costs)]  # type: ignore[arg-type]
    world = World(topology, policy)
    for _ in range(steps):
        match chance.randrange(8):
            case 0 | 1 | 2:
                world.submit(chance.choice(outer), key=chance.choice("xyz"))
            case 3 if world.open_trajectories:
                into = chance.choice(list(world.open_trajectories))
                if not world.open_trajectories[into].closing:
                    try:
                        world.submit(chance.choice(inner), trajectory=into, turn=chance.random() < 0.7)
                    except InfeasibleError:
                        world.log.append("infeasible")
            case 4 if len(world.open_trajectories) < 5:
                world.open(memory_gib=chance.choice([0, 2]))
            case 5 if world.open_trajectories and chance.random() < 0.2:
                into = chance.choice(list(world.open_trajectories))
                if not world.open_trajectories[into].closing:
                    world.close(into)
            case 6 if world.running:
                world.finish(chance.choice(list(world.running)), ok=chance.random() < 0.9)
            case _:
                world.advance(chance.random())
        world.decide()
    return world


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_the_same_inputs_give_the_same_decisions(policy: Policy) -> None:
    first, second = play(policy, 11), play(policy, 11)
    assert first.log == second.log
    assert sum(len(entry) for entry in first.log) > 100, "hardly anything happened"
    assert play(policy, 12).log != first.log


def test_the_seed_of_hashes_changes_nothing() -> None:
    digests = set()
    for seed in ("0", "1", "4711"):
        package, tests = Path(arl_tangram.__file__).parents[1], Path(__file__).parents[1]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{package}{os.pathsep}{tests}"}
        program = "from property.test_determinism import digest; print(digest())"
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        digests.add(done.stdout.strip())
    assert digests == {digest()}


def digest() -> str:
    """Return a digest of all decisions of one play under each policy."""
    logs = [play(policy, 7, steps=300).log for policy in POLICIES]
    return hashlib.sha256(repr(logs).encode()).hexdigest()
