"""The table of orders: what it says, and that the workloads are what it says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from arl_tangram.bench import orders
from arl_tangram.scheduling.policies import fixed
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import pool


def test_every_order_is_measured_on_both_kinds_of_training() -> None:
    rows = orders.measure([1], 6)
    assert [(row.training, row.cores) for row in rows[::3]] == [
        ("synchronous", 8), ("synchronous", 16), ("asynchronous", 8), ("asynchronous", 16),
    ]  # fmt: skip
    assert [row.order for row in rows[:3]] == ["fcfs", "shortest", "trajectory"]
    for row in rows:
        assert 0 < row.act_s < row.act_p99_s
        assert row.span_s <= row.step_s
    assert rows == orders.measure([1], 6), "nothing in it is left to chance"


def test_synchronous_trajectories_start_together_and_asynchronous_ones_keep_the_cores_busy() -> None:
    together = orders._workload("synchronous", 8, 40, 1)
    assert {rollout.at_s for rollout in together.rollouts} == {0.0}
    apart = orders._workload("asynchronous", 8, 40, 1)
    last_s = max(rollout.at_s for rollout in apart.rollouts)
    work_s = sum(call.work_s for rollout in apart.rollouts for turn in rollout.turns for call in turn.calls)
    assert 0.5 < work_s / 8 / last_s < 1.5


def test_an_order_changes_who_is_served() -> None:
    workload = orders._workload("synchronous", 8, 30, 2)
    acts = {
        order: simulate(workload, pool(8), fixed(1), order=order).mean_act_s
        for order in ("fcfs", "shortest", "trajectory")
    }
    assert len(set(acts.values())) == 3


def test_the_command_prints_the_table_and_writes_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    orders.add_options(parser)
    file = tmp_path / "orders.json"
    assert orders.run(parser.parse_args(["--seeds", "1", "--rollouts", "4", "--json", str(file)])) == 0
    shown = capsys.readouterr().out
    assert shown.count("fcfs") == 4
    assert "1.000x" in shown
    assert len(json.loads(file.read_text())) == 12
