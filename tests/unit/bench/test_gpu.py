"""`bench gpu`: its promises and its text, from made-up figures; what it draws; what it says where there is no GPU."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from arl_tangram.bench.command import main
from arl_tangram.bench.gpu import command, show
from arl_tangram.bench.gpu.bed import count_wrong
from arl_tangram.bench.gpu.figures import Bits, Found, Lag, Memory, Mixed, Overlap, Sized, SizeRound
from arl_tangram.bench.gpu.gates import aims, promises
from arl_tangram.bench.gpu.mix import _mixed, drawn
from arl_tangram.bench.gpu.plan import DRY, FULL, GIB, MIB, needed_on_device, needed_on_host
from arl_tangram.bench.gpu.teacher import load, some_tokens
from arl_tangram.bench.machine import read_machine
from arl_tangram.managers.gpu.discovery.found import FoundGpus

torch.set_num_threads(1)

ROUND = SizeRound(plain_s=0.02, copy_s=0.0205, restore_s=0.021, evict_s=0.0002, to_s=0.5)
DISTURBED = SizeRound(plain_s=0.05, copy_s=0.06, restore_s=0.2, evict_s=0.004, to_s=0.9)
FOUND = Found(
    sized=(
        Sized(GIB // 4, (DISTURBED, replace(ROUND, restore_s=0.03)), 0),
        Sized(GIB, (DISTURBED, ROUND), 0),
    ),
    bits=Bits(GIB, 200, 198, 0, 0),
    lags=(Lag(0.01, 0.05), Lag(0.002, 0.0024)),
    overlaps=(Overlap(1.0, 0.8, 1.2, 0.1, 0.12, 0.02, 0.025),),
    memory=Memory(2 * GIB, before=600 * MIB, resident=3 * GIB, vacated=610 * MIB, again=3 * GIB, closed=600 * MIB),
    mixed=Mixed(9, 36 * GIB, 13 * GIB, 32, 2048, 120, 0, 72.0, 6.0, 24.0, 2.5, 60, 5.0, 96.0),
    took_s=300.0,
)


def test_good_figures_keep_all_promises_and_meet_all_aims_though_some_rounds_were_disturbed() -> None:
    assert [gate.passed for gate in promises(FOUND)] == [True] * 5
    assert [aim.passed for aim in aims(FOUND)] == [True] * 2
    assert "a restore has 95% of its bandwidth, 1 GiB" in aims(FOUND)[0].where


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (replace(FOUND, bits=replace(FOUND.bits, wrong_weights=1)), 0),
        (replace(FOUND, bits=replace(FOUND.bits, wrong_answers=1)), 0),
        (replace(FOUND, sized=(replace(FOUND.sized[0], wrong=1),)), 0),
        (replace(FOUND, mixed=replace(FOUND.mixed, wrong=1)), 0),
        (replace(FOUND, sized=(Sized(GIB, (replace(ROUND, evict_s=0.0011),), 0), FOUND.sized[1])), 1),
        (replace(FOUND, lags=(Lag(0.002, 0.0026),)), 2),
        (replace(FOUND, lags=(Lag(0.0002, 0.0011),)), 2),
        (replace(FOUND, memory=replace(FOUND.memory, vacated=670 * MIB)), 3),
        (replace(FOUND, memory=replace(FOUND.memory, closed=670 * MIB)), 3),
        (replace(FOUND, took_s=421.0), 4),
    ],
)
def test_each_promise_can_break(found: Found, broken: int) -> None:
    assert [gate.passed for gate in promises(found)] == [number != broken for number in range(5)]


def test_a_lag_that_nobody_feels_breaks_no_promise() -> None:
    assert promises(replace(FOUND, lags=(Lag(0.0001, 0.0009),)))[2].passed


def test_an_aim_can_be_missed_and_is_said_to_be_one() -> None:
    slow = replace(FOUND, sized=(Sized(GIB, (replace(ROUND, restore_s=0.023),), 0),))
    missed = aims(replace(slow, mixed=replace(FOUND.mixed, overhead_s=9.0)))
    assert [aim.passed for aim in missed] == [False, False]
    assert [line[:11] for line in show.aim_lines(missed).splitlines()] == ["aim, missed"] * 2
    small = aims(replace(FOUND, sized=FOUND.sized[:1]))
    assert small[0].passed is None
    assert "no module was so large" in show.aim_lines(small)


def test_what_was_not_measured_breaks_no_promise_and_is_said() -> None:
    assert [gate.passed for gate in promises(Found())] == [None] * 5
    assert {gate.where for gate in promises(Found())} == {"not measured"}
    assert [aim.passed for aim in aims(Found())] == [None] * 2
    assert show.sizes(()) == "no size was measured\n"
    late = replace(FOUND, mixed=_mixed(FULL.mix, [], [], arena=13 * GIB, shape=(32, 2048), elapsed_s=0.0))
    assert late.mixed is not None
    assert "not measured: there was no time left" in show.mixed(late.mixed)
    assert [gate.passed for gate in promises(late)] == [True] * 5
    assert [aim.passed for aim in aims(late)] == [True, None]


async def test_each_part_is_written_as_soon_as_it_is_there(tmp_path: Path) -> None:
    machine = await asyncio.to_thread(read_machine)
    record = command.Record(tmp_path / "figures.json", "a GPU", machine, FULL)
    for found, has in ((Found(sized=FOUND.sized), False), (FOUND, True)):
        await record.write(found)
        written = json.loads((tmp_path / "figures.json").read_text())
        assert len(written["found"]["sized"]) == 2
        assert (written["found"]["mixed"] is not None) is has
        assert [gate["passed"] for gate in written["gates"]] == ([True] * 5 if has else [True, True, None, None, None])


def test_the_table_of_sizes_has_milliseconds_and_bandwidths_of_the_best_round() -> None:
    lines = show.sizes(FOUND.sized).splitlines()
    cells = {line[:46].strip(): line[46:].split() for line in lines}
    assert cells["plain pinned copy_"] == ["20.00", "13.42", "20.00", "53.69"]
    assert cells["restore"] == ["30.00", "8.95", "21.00", "51.13"]
    assert cells["restore, of the plain copy"] == ["66.7%", "95.2%"]
    assert cells["evict"] == ["0.20", "0.20"]


def test_what_was_found_is_said() -> None:
    assert "0 weights and 0 answers that differ" in show.bits(FOUND.bits)
    assert "hidden of the shorter one: 75%" in show.overlaps(FOUND.overlaps)
    assert "memory of the GPU in use, by NVML" in show.memory(FOUND.memory, dry=False)
    mixed = show.mixed(FOUND.mixed)
    assert "7.7%" in mixed
    assert "50% of the actions" in mixed
    assert all(len(line) <= 120 for line in mixed.splitlines())


def test_arrivals_are_the_same_each_time_and_come_at_the_rate_that_was_asked_for() -> None:
    mix = replace(FULL.mix, actions=4_000)
    arrivals = drawn(mix)
    assert arrivals == drawn(mix)
    assert sum(one.after_s for one in arrivals) / len(arrivals) == pytest.approx(1, abs=0.05)
    wanted = Counter(one.teacher for one in arrivals)
    assert set(wanted) == set(range(9))
    assert wanted[0] / wanted[3] == pytest.approx(4, rel=0.2)


def test_the_plans_have_more_teachers_than_fit() -> None:
    for plan in (FULL, DRY):
        assert max(plan.mix.sizes) < plan.mix.arena < sum(plan.mix.sizes) / 2
        assert plan.usual in plan.sizes
    assert needed_on_device(FULL.sizes[-1]) < 80 * GIB, "a GPU of 80 GB does"
    assert needed_on_host(FULL.sizes[-1]) < 100 * GIB


@pytest.mark.parametrize("size", [MIB, 4 * MIB, 24 * MIB])
def test_a_teacher_has_its_size_and_tells_how_likely_a_text_is(size: int) -> None:
    model = load(size, 1, torch.float32)
    has = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert has == pytest.approx(size, rel=0.2)
    tokens = some_tokens(5, 16)
    with torch.inference_mode():
        likely = model(tokens)
        assert likely.shape == (5, 15)
        assert bool((likely < 0).all())
        torch.testing.assert_close(model(tokens[4:]), likely[4:])
        later = tokens.clone()
        later[:, -1] += 1
        torch.testing.assert_close(model(later)[:, :-1], likely[:, :-1])  # nothing is known before it comes


def test_two_modules_of_one_seed_are_the_same_and_each_bit_counts() -> None:
    one, other = load(MIB, 1, torch.bfloat16), load(MIB, 1, torch.bfloat16)
    assert count_wrong(one, other) == 0
    other.layers[-1].get_submodule("joins").get_parameter("weight").data.view(torch.int16)[3, 5] ^= 1
    assert count_wrong(one, other) == 1
    assert count_wrong(one, load(MIB, 2, torch.bfloat16)) > 1


def test_without_a_gpu_it_says_why_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_gpus", lambda _: FoundGpus((), "there is no NVIDIA driver"))
    assert main(["gpu"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("bench gpu: there is no GPU: there is no NVIDIA driver; --dry-run")
