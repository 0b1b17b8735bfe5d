"""The options of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from arl_tangram.demo import command
from arl_tangram.demo.command import read_options
from arl_tangram.errors import MissingExtraError


def test_without_options_it_is_the_papers_case() -> None:
    options = read_options([])
    assert options.shares == (0.47,)
    assert options.trajectories == 16
    assert options.policies == ("reserved(1)", "reserved(2)", "scheduler")


def test_a_sweep_runs_all_shares() -> None:
    assert read_options(["--sweep"]).shares == (0.10, 0.20, 0.30, 0.47)


@pytest.mark.parametrize("text", ["30", "30%", "30.0"])
def test_a_share_is_a_percentage(text: str) -> None:
    assert list(read_options(["--tool-share", text]).shares) == pytest.approx([0.3])


def test_quick_has_four_trajectories() -> None:
    assert read_options(["--quick"]).trajectories == 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--tool-share", "0.47"], "no percentage from 1 to 95"),
        (["--tool-share", "100"], "no percentage from 1 to 95"),
        (["--tool-share", "half"], "no percentage from 1 to 95"),
        (["--quick", "--sweep"], "not allowed with"),
        (["--policies", "reserved(5)"], "unknown policy 'reserved(5)'"),
        (["--policies", "scheduler,scheduler"], "names a policy twice"),
        (["--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["--sweep", "--trace", "x.jsonl"], "--trace takes one tool share"),
        (["--url", "unix:///run/docker.sock"], "--url and --keep-image go with --docker"),
        (["--keep-image"], "--url and --keep-image go with --docker"),
    ],
)
def test_wrong_options_are_told(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_files_and_policies_are_taken_over(tmp_path: Path) -> None:
    argv = ["--policies", "reserved(1), scheduler", "--trace", str(tmp_path / "t"), "--json", str(tmp_path / "j")]
    options = read_options([*argv, "--seed", "7"])
    assert options.policies == ("reserved(1)", "scheduler")
    assert (options.trace, options.json, options.seed) == (tmp_path / "t", tmp_path / "j", 7)


def test_containers_come_from_the_daemon_that_is_named() -> None:
    assert not read_options([]).docker
    options = read_options(["--docker", "--url", "unix:///run/docker.sock", "--keep-image"])
    assert (options.docker, options.url, options.keep_image) == (True, "unix:///run/docker.sock", True)


def test_without_a_daemon_it_says_so_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--docker", "--url", f"unix://{tmp_path}/docker.sock"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("demo: ")
    assert f"{tmp_path}/docker.sock" in told.err
    assert "a Docker container" in " ".join(told.out.split())
    assert "Calibration" not in told.out


def test_what_is_missing_is_said_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise MissingExtraError("the demo needs hypothesis: pip install 'arl-tangram[demo]'")

    monkeypatch.setattr(command, "find_source_tree", missing)
    assert command.main(["--quick"]) == 1
    assert capsys.readouterr().err == "demo: the demo needs hypothesis: pip install 'arl-tangram[demo]'\n"
