"""`bench evict`: its streams, its bookkeeping, its promises and what it prints."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from arl_tangram.bench import command as bench
from arl_tangram.bench.evict import command, requests
from arl_tangram.bench.evict.catalogue import Catalogue, make_catalogue
from arl_tangram.bench.evict.clairvoyant import Clairvoyant
from arl_tangram.bench.evict.contenders import CLAIRVOYANT, CONTENDERS, GDSF, LOSS, LRU, LRU_SUM, SummedLru
from arl_tangram.bench.evict.gates import gates
from arl_tangram.bench.evict.replay import Played, play
from arl_tangram.bench.evict.runs import Case, drawn_cases, real_cases
from arl_tangram.model.gpu import Footprint, GpuDevice, GpuNode, HostedService
from arl_tangram.scheduling.gpu.eviction import Loss, Lru


def small(*sizes: int, restore_s: tuple[float, ...] = (), devices: int = 1, capacity: int = 10) -> Catalogue:
    """Return services a, b, c, … of these sizes."""
    seconds = restore_s or (1.0,) * len(sizes)
    services = tuple(
        HostedService("abcdefgh"[i], ((1, Footprint(size, size)),), ((1, seconds[i]),)) for i, size in enumerate(sizes)
    )
    return Catalogue((GpuNode("", tuple(GpuDevice(str(i), capacity) for i in range(devices))),), services)


def case(stream: str, *, engines: float = 0.0, **seconds: float) -> Case:
    """Return a case in which each contender restores so many seconds in 100 requests; LRU and all others 10."""
    named = {one.name: 10.0 for one in CONTENDERS} | {name.replace("_", " "): s for name, s in seconds.items()}
    return Case(stream, engines, 2.0, {name: (Played(100, 10, s),) for name, s in named.items()})


class TestStreams:
    @pytest.mark.parametrize("kind", requests.STREAMS)
    def test_the_same_seed_draws_the_same_and_another_does_not(self, kind: str) -> None:
        draw = requests.STREAMS[kind]
        first, again, other = (draw(700, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert first == again != other
        assert len(first) == 700
        assert set(first) <= set(requests.names())

    def test_zipf_prefers_a_few(self) -> None:
        drawn = requests.zipf(5000, np.random.default_rng(1))
        counts = sorted((drawn.count(name) for name in set(drawn)), reverse=True)
        assert counts[0] / 5000 == pytest.approx(1 / sum(1 / rank for rank in range(1, 41)), rel=0.1)
        assert len(counts) == requests.SERVICES

    def test_drifting_prefers_others_later(self) -> None:
        drawn = requests.drifting(10 * requests.DRIFT_EVERY, np.random.default_rng(1))
        early, late = drawn[: requests.DRIFT_EVERY], drawn[-requests.DRIFT_EVERY :]
        assert max(set(early), key=early.count) != max(set(late), key=late.count)

    def test_bursty_asks_again_for_the_same(self) -> None:
        drawn = requests.bursty(5000, np.random.default_rng(1))
        changes = sum(one != other for one, other in pairwise(drawn))
        assert 5000 / (changes + 1) >= requests.BURST_MEAN * 0.8

    def test_cyclic_asks_for_all_in_turn(self) -> None:
        drawn = requests.cyclic(2000, np.random.default_rng(1))
        starts = [name for name, before in zip(drawn[1:], drawn, strict=False) if name != before]
        for begin in range(0, len(starts) - 60, 60):
            assert len(set(starts[begin : begin + 60])) >= 35

    def test_a_file_is_read_in_the_order_of_its_rows(self, tmp_path: Path) -> None:
        file = tmp_path / "real.csv"
        file.write_text("t_s,model,x\n0,m1,\n1,m2,\n1,,\n3,m1,\n")
        assert requests.read(file) == ["m1", "m2", "m1"]
        file.write_text("t_s,name\n0,m1\n")
        with pytest.raises(ValueError, match="no column service or model; it has t_s, name"):
            requests.read(file)
        file.write_text("")
        with pytest.raises(ValueError, match="it has none"):
            requests.read(file)


class TestReplay:
    def test_restores_are_counted_by_hand(self) -> None:
        """Two fit; LRU has to restore the third, and then what went for it."""
        played = play(small(5, 5, 5, restore_s=(1.0, 2.0, 4.0)), "ababcab", Lru(), 0)
        assert played == Played(7, 5, 1 + 2 + 4 + 1 + 2)
        assert played.hit_rate == pytest.approx(2 / 7)
        assert played.per_request_s == pytest.approx(10 / 7)

    def test_who_sees_the_queue_keeps_what_is_wanted_next(self) -> None:
        there = small(5, 5, 5)
        assert play(there, "abca", Lru(), 0).restores == 4
        assert play(there, "abca", Loss(), 2).restores == 3

    def test_who_knows_all_keeps_what_is_dear(self) -> None:
        asked = "abcab"
        assert play(small(5, 5, 5, restore_s=(1.0, 9.0, 1.0)), asked, Clairvoyant(asked), 0).restore_s == 12

    def test_what_is_never_wanted_again_is_worth_nothing(self) -> None:
        asked = "abcbcbc"
        assert play(small(5, 5, 5, restore_s=(99.0, 1.0, 1.0)), asked, Clairvoyant(asked), 0).restores == 3

    def test_several_fit_on_a_device_and_each_device_counts(self) -> None:
        assert play(small(3, 3, 3, 3, 3, 3, devices=2), "abcdefabcdef", Lru(), 0).restores == 6

    def test_what_does_not_fit_is_told(self) -> None:
        with pytest.raises(ValueError, match="a does not fit"):
            play(small(11), "a", Lru(), 0)

    def test_the_summed_lru_spares_many_old_ones(self) -> None:
        there = small(2, 2, 6, 5)
        asked = "abcd"
        assert play(there, [*asked, "a"], Lru(), 0).restores == 4
        assert play(there, [*"cabd", "c"], SummedLru(), 0).restores == 5

    def test_services_are_as_large_as_models_and_all_fit(self) -> None:
        catalogue = make_catalogue(requests.names(), np.random.default_rng(1), engines=0.5)
        assert 1.5 < catalogue.crowding < 4
        slow = [service for service in catalogue.services if service.restore_s[0][1] > 1.5]
        assert 10 <= len(slow) <= 30
        assert {service.dops for service in catalogue.services} >= {(1,), (2,)}


class TestPromises:
    def test_the_worst_ratio_is_judged(self) -> None:
        zipf, drifting = case("zipf", loss=6.0), case("drifting", engines=0.3, loss=7.4)
        kept, anywhere = gates([zipf, drifting, case("cyclic", loss=10.4)])
        assert (kept.value, kept.where, kept.passed) == (pytest.approx(0.74), "loss on drifting, engines", True)
        assert (anywhere.value, anywhere.passed) == (pytest.approx(1.04), True)
        kept, anywhere = gates([zipf, case("drifting", loss=7.6), case("bursty", loss=10.6)])
        assert (kept.passed, anywhere.passed) == (False, False)

    def test_it_must_not_be_worse_when_nobody_waits_either(self) -> None:
        (_, anywhere) = gates([case("bursty", loss=9.0, **{"loss, 0 wait": 11.0})])
        assert anywhere.passed is False
        assert anywhere.where == "loss, 0 wait on bursty"

    def test_without_the_streams_nothing_is_claimed(self) -> None:
        assert [gate.passed for gate in gates([case("real", lru=0.0, loss=0.0)])] == [None, None]

    def test_the_default_keeps_them_on_seeds_that_are_not_published(self) -> None:
        """The same modules as in the scheduler: a change there that spoils the choice of victims fails here."""
        for draw in (requests.zipf, requests.drifting):
            rng = np.random.default_rng(1)
            catalogue = make_catalogue(requests.names(), rng)
            asked = draw(4000, rng)
            base, ours = play(catalogue, asked, Lru(), 0), play(catalogue, asked, Loss(), 32)
            assert ours.restore_s <= 0.75 * base.restore_s
            assert ours.restores < base.restores
            assert play(catalogue, asked, Loss(), 0).restore_s <= 0.95 * base.restore_s

    def test_every_contender_plays_every_stream(self) -> None:
        cases = list(drawn_cases(60, [1]))
        assert [(one.stream, one.engines > 0) for one in cases] == [
            (stream, engines) for engines in (False, True) for stream in requests.STREAMS
        ]
        assert all(set(one.played) > {LRU, LRU_SUM, GDSF, LOSS, CLAIRVOYANT} for one in cases)
        assert len({one.crowding for one in cases}) == 1


class TestCommand:
    def test_a_quick_run_prints_tables_and_claims_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        real, out = tmp_path / "real.csv", tmp_path / "evict.json"
        real.write_text("model\n" + "m1\nm2\nm3\n" * 20)
        argv = ["evict", "--quick", "--seeds", "1", "--requests", str(real), "--json", str(out)]
        assert bench.main(argv) == 0
        printed = capsys.readouterr().out
        assert "no promises" in printed
        assert printed.count("\ndrifting, engines ") == 2
        assert printed.count("\nreal ") == 2
        record = json.loads(out.read_text())
        assert [one["stream"] for one in record["cases"]][-2:] == ["real", "real"]
        assert record["gates"] == []

    def test_the_same_seeds_print_the_same(self) -> None:
        assert list(real_cases("real", list("abcab"), [1, 2])) == list(real_cases("real", list("abcab"), [1, 2]))

    @pytest.mark.parametrize("text", [None, "t_s\n1\n"])
    def test_a_file_that_cannot_be_played_is_told_before_anything_runs(
        self, text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "real.csv"
        if text is not None:
            file.write_text(text)
        assert bench.main(["evict", "--quick", "--requests", str(file)]) == 2
        told = capsys.readouterr()
        assert "cannot be played" in told.err
        assert told.out == ""

    def test_a_broken_promise_is_the_exit_code(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for worst, code in ((7.0, 0), (8.0, 1)):
            found = [case("zipf", loss=worst), case("drifting", loss=7.0)]
            monkeypatch.setattr(command, "drawn_cases", lambda _count, _seeds, cases=found: iter(cases))
            assert bench.main(["evict"]) == code
            assert ("FAIL" in capsys.readouterr().out) is bool(code)

    def test_published_seeds_are_not_those_that_it_was_tuned_on(self) -> None:
        assert set(command.SEEDS).isdisjoint({1, 2, 3, 4, 5})
