"""Case 64: amounts are exact, however small and however often they are taken and given back."""

from __future__ import annotations

import asyncio
import itertools
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import DefinitionError, Quota
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.topology import CPU, Dimension, Topology
from arl_tangram.scheduling.feasibility import resolve
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.testing import FakePool
from cases.settled import now_s, opened
from counting_pools import CountingPool
from virtual_time import run_virtually, virtual


async def _hold(for_s: float = 1.0) -> float:
    begun_s = now_s()
    await asyncio.sleep(for_s)
    return begun_s


@virtual
async def test_case_64_a_tenth_and_a_fifth_fit_three_tenths() -> None:
    """Of cores, of memory, of calls: in floats their sum would be more."""
    quota = Quota("api", concurrency=1)
    for what in ("cpu", "memory_gib", "quota"):

        def act(amount: float, what: str = what) -> tangram.AsyncAction[[float], float]:
            cost = {"quota": {"api": amount}} if what == "quota" else {what: amount}
            return tangram.action(**cost)(_hold)  # type: ignore[arg-type]

        async with opened(CountingPool(cores=1, memory_gib=1), quota):
            base_s = now_s()
            filler = asyncio.create_task(_called(act(0.7)))
            calls = [asyncio.create_task(_called(act(amount))) for amount in (0.1, 0.2, 0.1)]
            begun_s = [at_s - base_s for at_s in await asyncio.gather(filler, *calls)]
            assert begun_s == [0, 0, 0, 1], what


async def _called(act: tangram.AsyncAction[[float], float]) -> float:
    return await act(1.0)


@pytest.mark.parametrize("memory_gib", [0.1, 0.3, 0.7, 1.1, 2.3, 0.001])
@virtual
async def test_case_64_all_of_the_memory_can_be_had(memory_gib: float) -> None:
    """What a pool offers and what an action asks for are the same number, and so are ten tenths and the whole."""
    act = tangram.action(memory_gib=memory_gib)(_hold)
    tenth = tangram.action(memory_gib=memory_gib)(_hold)
    async with opened(FakePool(cores=1, memory_gib=memory_gib)):
        await act(0)
    async with opened(FakePool(cores=1, memory_gib=float(Decimal(str(memory_gib)) * 10))):
        base_s = now_s()
        assert [at_s - base_s for at_s in await asyncio.gather(*(tenth(1) for _ in range(10)))] == [0] * 10


@st.composite
def parts_of_a_whole(draw: st.DrawFn) -> list[int]:
    """Draw thousandths that add up to some thousands."""
    total = draw(st.integers(1, 4)) * 1000
    cuts = draw(st.lists(st.integers(1, total - 1), min_size=1, max_size=10, unique=True))
    edges = [0, *sorted(cuts), total]
    return [high - low for low, high in itertools.pairwise(edges)]


@given(parts_of_a_whole())
@settings(max_examples=40)
def test_case_64_any_parts_that_add_up_to_the_whole_start_together(parts: list[int]) -> None:
    async def main() -> None:
        whole = sum(parts) // 1000
        acts = [tangram.action(cpu=part / 1000, memory_gib=part / 1000)(_hold) for part in parts]
        async with opened(FakePool(cores=whole, memory_gib=whole)):
            assert set(await asyncio.gather(*(act(1) for act in acts))) == {0}

    run_virtually(main())


def test_case_64_a_million_times_a_tenth_ends_at_the_whole() -> None:
    topology = Topology([Dimension(CPU, 1000, 1000)])
    demand = resolve(ActionSpec("tenth", declare_cost("tenth", cpu=0.1)), topology)
    ledger = Ledger(topology)
    for _ in range(100_000):
        for _ in range(10):
            ledger.take(demand, 0, 0.0)
        assert ledger.free[0] == 0
        for _ in range(10):
            ledger.give_back(demand, 0)
        assert ledger.free[0] == 1000


@virtual
async def test_case_64_thousands_of_fractions_through_the_runtime_end_at_the_whole() -> None:
    pool = CountingPool(cores=1)
    acts = [tangram.action(cpu=amount)(_hold) for amount in (0.1, 0.2, 0.3, 0.7, 0.123, 0.877, 0.001, 0.999)]
    async with opened(pool) as tg:
        for _ in range(200):
            await asyncio.gather(*(act(0.1) for act in acts))
        assert tg.statistics().dimensions["cpu"].free == 1
        assert pool.made.milli_free == 1000


@pytest.mark.parametrize("amount", [0.0001, 0.12345, 1e-9, 1 / 3])
def test_case_64_what_is_finer_than_a_thousandth_is_refused(amount: float) -> None:
    with pytest.raises(DefinitionError, match="finer than a thousandth"):
        tangram.action(cpu=amount)(_hold)
    with pytest.raises(DefinitionError, match="finer than a thousandth"):
        tangram.action(quota={"api": amount})(_hold)
