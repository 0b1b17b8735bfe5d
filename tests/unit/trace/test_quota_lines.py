"""Budgets and keys of quotas in a trace, and no key in any of its lines."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import arl_tangram as tangram
from arl_tangram import Quota, Tangram
from arl_tangram.model.events import ActionStarted
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.trace.decode import read_header
from arl_tangram.trace.encode import header_line
from arl_tangram.trace.fields import parse
from arl_tangram.trace.format import VERSION, Header
from arl_tangram.trace.holding import Holding
from arl_tangram.trace.reader import read_trace


@tangram.action(quota={"api": 1})
async def call() -> None:
    pass


def test_the_header_tells_budgets_from_windows() -> None:
    topology = Topology(Quota("api", calls=1, period_s=2, total_calls=3, keys=["a", "b"]).dimensions())
    header = Header("0", "paper", "monotonic", 0.0, topology, VERSION)
    line = header_line(header)
    assert "Infinity" not in line
    read = read_header(parse(line.encode()))
    assert read == replace(header, topology=read.topology)
    assert read.topology.dimensions == topology.dimensions
    assert read.topology.quotas == topology.quotas


async def test_a_trace_says_which_key_was_taken_by_its_number_only(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with Tangram(Quota("api", calls=2, period_s=60, keys=["sk-one", "sk-two"]), trace=path) as tg:
        for _ in range(3):
            await call()
        live = tg.report()
    text = path.read_text()
    assert "sk-" not in text + live
    granted = [json.loads(line)["grant"] for line in text.splitlines() if '"started"' in line]
    assert granted == [{"quota:api#1/calls": 1000}, {"quota:api#2/calls": 1000}, {"quota:api#1/calls": 1000}]
    trace = read_trace(path)
    first, second = (key.calls[0] for key in trace.header.topology.quotas["api"])
    started = [event.action for event in trace.events if isinstance(event, ActionStarted)]
    assert [running.pending.demand.fixed for running in started] == [((d, 1000),) for d in (first, second, first)]


def test_what_is_held_of_a_budget_stays_held_and_costs_no_memory() -> None:
    topology = Topology(Quota("api", total_calls=100).dimensions())
    (dimension,) = topology.dimensions
    assert dimension.window_s == math.inf
    demand = Demand("call", fixed=((0, 1000),), dimensions=1)

    def hold(calls: int) -> Holding:
        holding = Holding(topology)
        for i in range(calls):
            holding.start(RunningAction(PendingAction(i, demand, float(i)), float(i), 0, 0.0))
            holding.stop(i, i + 0.5)
        return holding

    assert hold(10).unit_s(20.0) == [1000 * sum(20 - i for i in range(10))]
    assert len(pickle.dumps(hold(1000))) < len(pickle.dumps(hold(10))) + 100
