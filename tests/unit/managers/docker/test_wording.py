from __future__ import annotations

from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.probe import Probe
from arl_tangram.managers.docker.wording import latency_in_words, probe_in_words, titled


def test_the_latency_of_a_daemon_is_one_line() -> None:
    meter = LatencyMeter()
    assert latency_in_words(meter.read()) == ""
    meter.add("update", 0.02, ok=True)
    meter.add("create", 2.5, ok=False)
    meter.add("inspect", 0.0012, ok=True)
    line = latency_in_words(meter.read())
    assert line == (
        "create 1 × 2.5 s (99 %: 2.5 s), 1 failed; inspect 1 × 1.2 ms (99 %: 1.2 ms); update 1 × 20 ms (99 %: 20 ms)"
    )


def test_how_grants_are_applied_is_told_with_the_reason() -> None:
    assert "first sandbox" in probe_in_words(None)
    assert probe_in_words(Probe(None, "no permission to write X")) == (
        "grants are applied through its API: no permission to write X"
    )


def test_a_node_without_a_name_begins_a_line_with_nothing() -> None:
    assert (titled(""), titled("b")) == ("", "b: ")
