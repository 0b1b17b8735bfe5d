"""The options of the command, and what it makes of its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arl_tangram.bench import command, ray_task
from arl_tangram.bench.command import Options, read_options, summary
from arl_tangram.bench.contenders import LIMITER, QUOTA_ACTION, SEMAPHORE
from arl_tangram.bench.gates import gates
from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.rounds import Series
from arl_tangram.errors import MissingExtraError


def test_without_options_it_measures_what_is_promised() -> None:
    options = read_options(["overhead"])
    assert (options.sizes, options.rounds, options.ray, options.ray_sizes) == ((1_000, 100_000), 5, True, (1_000,))


def test_ray_everywhere_means_every_size() -> None:
    assert read_options(["overhead", "--ray-everywhere"]).ray_sizes == (1_000, 100_000)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required"),
        (["speed"], "invalid choice: 'speed'"),
        (["overhead", "--without-ray", "--ray-everywhere"], "not allowed with"),
        (["overhead", "--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_options_are_told(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_ray_is_an_error_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(ray_task.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"arl-tangram\[bench\].*--without-ray"):
        command.main(["overhead"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("quota_us", "code"), [(30.0, 0), (50.0, 1)])
def test_the_exit_code_tells_whether_promises_are_kept(
    quota_us: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    medians_us = {SEMAPHORE: 5.0, LIMITER: 30.0, QUOTA_ACTION: quota_us}
    series = [Series(name, 1_000, (us,)) for name, us in medians_us.items()]
    monkeypatch.setattr(command, "measure", lambda *args, **kwargs: series)
    assert command.main(["overhead", "--without-ray"]) == code
    assert ("FAIL" in capsys.readouterr().out) is (code == 1)


def test_the_file_holds_what_was_measured_and_decided(tmp_path: Path) -> None:
    series = [Series(SEMAPHORE, 10, (2.0, 4.0, 3.0)), Series(SEMAPHORE, 20, (6.0,))]
    record = json.loads(json.dumps(summary(Options(), read_machine(), series, gates(series))))
    assert record["series"][0] == {"name": SEMAPHORE, "in_flight": 10, "samples_us": [2.0, 4.0, 3.0], "median_us": 3.0}
    assert record["growth"] == {SEMAPHORE: 2.0}
    assert [gate["passed"] for gate in record["gates"]] == [None, None, None]
    assert record["machine"]["cores"] >= 1
    assert {"anyio", "arl_tangram"} <= record["machine"]["packages"].keys()
