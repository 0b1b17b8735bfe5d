"""The command `python -m arl_tangram demo`: read the options, run the comparison, print what came of it."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from arl_tangram.demo import show
from arl_tangram.demo.agents import Script, draw_scripts
from arl_tangram.demo.calibration import Calibration
from arl_tangram.demo.comparison import (
    CORES,
    POLICIES,
    RESIZE,
    Bench,
    Run,
    calibrate,
    compare,
    differences,
    faults_in,
    policy_named,
)
from arl_tangram.demo.judge.command import JudgeOptions, run_judge
from arl_tangram.demo.pools import pool_of_demo
from arl_tangram.demo.progress import progress_for
from arl_tangram.demo.search_api import CALLS, PERIOD_S, search_server
from arl_tangram.demo.suite import SourceTree, find_source_tree
from arl_tangram.demo.thinking import draw_thinking, scale, thinking_for
from arl_tangram.errors import ConfigurationError, TangramError

TRAJECTORIES = 16
QUICK_TRAJECTORIES = 4
PAPER_SHARE = 0.47
SWEEP = (0.10, 0.20, 0.30, PAPER_SHARE)

_CALIBRATED = 4
_QUICK_CALIBRATED = 1
# A slow machine would think long, too: a quick run ends within a minute there as well, at a larger tool share.
_QUICK_THINKING_S = 1.5
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: four short trajectories, and no ratios.
        shares: shares of a lone trajectory's time that its tools take, 0 to 1.
        policies: names of the policies, in the order of their runs.
        seed: of the scripts and the thinking times.
        trace: file for the traces, or None.
        json: file for the figures, or None.
        docker: sandboxes are Docker containers.
        url: where the Docker daemon listens; None asks the environment.
        keep_image: leave the image of the containers with the daemon.
        judge: rollouts that are scored by services, instead of the coding rollouts.
    """

    quick: bool = False
    shares: tuple[float, ...] = (PAPER_SHARE,)
    policies: tuple[str, ...] = POLICIES
    seed: int = 0
    trace: Path | None = None
    json: Path | None = None
    docker: bool = False
    url: str | None = None
    keep_image: bool = False
    judge: bool = False

    @property
    def trajectories(self) -> int:
        """How many trajectories run at once."""
        return QUICK_TRAJECTORIES if self.quick else TRAJECTORIES


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo.

    Returns:
        0 if all trajectories came to the same rewards under every policy, 1 if not or if the demo
        cannot run here, 130 after Ctrl-C or SIGTERM.
    """
    options = read_options(argv)
    console = Console(soft_wrap=False)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run_judge(options, console) if options.judge else run_demo(options, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything that ran has been stopped")
        return _INTERRUPTED
    except (TangramError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def read_options(argv: Sequence[str] | None) -> Options:
    """Parse the command line; exits with a message where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram demo",
        description="Run scripted coding rollouts with cores reserved per trajectory and scheduled per action.",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="a short run of four trajectories, within a minute")
    length.add_argument("--sweep", action="store_true", help="tool shares of 10, 20, 30 and 47 %%, about half an hour")
    length.add_argument(
        "--tool-share",
        type=_percent,
        default=PAPER_SHARE,
        metavar="PERCENT",
        help="share of a lone trajectory's time that its tools take, 1 to 95 (default: 47)",
    )
    parser.add_argument(
        "--policies",
        type=_policies,
        default=POLICIES,
        metavar="A,B",
        help=f"default: {','.join(POLICIES)}; also {RESIZE} and fixed(N)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the scripts and the thinking times (default: 0)")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write a trace per run: FILE with the policy in its name"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument(
        "--docker", action="store_true", help="sandboxes are Docker containers, made of files of this machine"
    )
    parser.add_argument(
        "--url", metavar="URL", help="with --docker: where the daemon listens (default: as the docker CLI finds it)"
    )
    parser.add_argument("--keep-image", action="store_true", help="with --docker: leave the image for the next time")
    parser.add_argument(
        "--judge",
        action="store_true",
        help="instead: rollouts scored by six models in memory for two, placed by hand and by the scheduler",
    )
    found = parser.parse_args(argv)
    if found.judge and (found.docker or found.sweep or (found.tool_share, found.policies) != (PAPER_SHARE, POLICIES)):
        parser.error("--judge goes with --quick, --seed, --trace and --json only")
    if found.trace is not None and found.sweep:
        parser.error("--trace takes one tool share, not a --sweep")
    if not found.docker and (found.url is not None or found.keep_image):
        parser.error("--url and --keep-image go with --docker")
    for path in (found.trace, found.json):
        if path is not None and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    return Options(
        quick=found.quick,
        shares=SWEEP if found.sweep else (found.tool_share,),
        policies=found.policies,
        seed=found.seed,
        trace=found.trace,
        json=found.json,
        docker=found.docker,
        url=found.url,
        keep_image=found.keep_image,
        judge=found.judge,
    )


def _run_judge(options: Options, console: Console) -> int:
    chosen = JudgeOptions(quick=options.quick, seed=options.seed, trace=options.trace, json=options.json)
    return run_judge(chosen, console)


def run_demo(options: Options, console: Console) -> int:
    """Calibrate, run each policy at each share and print the tables; returns the exit code.

    Raises:
        MissingExtraError: pytest or hypothesis is not installed.
        ConfigurationError: the machine lacks something else that the demo needs, such as a Docker daemon.
    """
    tree = find_source_tree()
    scripts = draw_scripts(options.seed, options.trajectories, quick=options.quick)
    _introduce(console, options)
    with search_server(tree.folders[0]) as address:
        calibration, results = asyncio.run(_measure(options, console, tree, address, scripts))
    if len(results) > 1:
        console.print(show.sweep_tables(results))
    if options.json is not None:
        options.json.write_text(json.dumps(_summary(options, calibration, results), indent=1) + "\n", encoding="utf-8")
    return _verdict(console, scripts, results)


@dataclass(frozen=True, slots=True)
class _Session:
    options: Options
    console: Console
    bench: Bench
    scripts: tuple[Script, ...]


def _introduce(console: Console, options: Options) -> None:
    sandbox = "a Docker container" if options.docker else "a sandbox"
    console.print(
        f"{options.trajectories} scripted coding agents rewrite functions of numpy.polynomial, each in {sandbox} with "
        f"a copy of numpy's own source, on {CORES} cores: shell commands, edits, a search API that takes {CALLS} calls "
        f"per {PERIOD_S:g} s, and two rewards: the likeness to a reference patch, and numpy's own tests of the edited "
        f"code. The same work runs under {', '.join(options.policies)}, one after another. Only the model's thinking "
        "is simulated, by waiting.",
        highlight=False,
    )
    show.show_terms(console)
    show.show_load(console, load=os.getloadavg()[0], cpus=os.cpu_count() or 1)


async def _measure(
    options: Options, console: Console, tree: SourceTree, address: str, scripts: tuple[Script, ...]
) -> tuple[Calibration, dict[float, tuple[Run, ...]]]:
    async with pool_of_demo(options.docker, console, url=options.url, keep_image=options.keep_image) as pool:
        bench = Bench(tree, address, progress_for(console), pool)
        return await _run_all(_Session(options, console, bench, scripts))


async def _run_all(session: _Session) -> tuple[Calibration, dict[float, tuple[Run, ...]]]:
    few = session.scripts[: _QUICK_CALIBRATED if session.options.quick else _CALIBRATED]
    calibration = await calibrate(session.bench, few)
    show.show_calibration(session.console, calibration)
    return calibration, {share: await _compare_at(share, session, calibration) for share in session.options.shares}


async def _compare_at(share: float, session: _Session, calibration: Calibration) -> tuple[Run, ...]:
    options, console, scripts = session.options, session.console, session.scripts
    thinks_s = thinking_for(calibration.tools_s, share)
    if options.quick and thinks_s > _QUICK_THINKING_S:
        thinks_s = _QUICK_THINKING_S
        share = calibration.tools_s / (calibration.tools_s + thinks_s)
    turns = sum(len(script.turns) for script in scripts) / len(scripts)
    show.show_plan(console, share=share, tools_s=calibration.tools_s, thinks_s=thinks_s, turns=turns)
    thinking = scale(draw_thinking(options.seed, scripts), thinks_s)
    runs = await compare(session.bench, options.policies, scripts, thinking, trace=options.trace)
    console.print(show.comparison_table(runs, title=f"{len(scripts)} trajectories, {CORES} cores, tools {share:.0%}"))
    if options.quick:
        console.print("A quick run is too short to compare the policies: no ratios. Leave out --quick for those.")
    else:
        console.print(show.ratio_table(runs))
    console.print(show.explanation(runs), highlight=False)
    return runs


def _verdict(console: Console, scripts: Sequence[Script], results: Mapping[float, Sequence[Run]]) -> int:
    runs = [run for of_share in results.values() for run in of_share]
    faults = [f"{run.policy}: {fault}" for run in runs for fault in faults_in(scripts, run.answers)] + differences(runs)
    for fault in faults:
        console.print(f"FAILED: {fault}", style="bold red", highlight=False)
    if not faults:
        console.print("All trajectories came to the same results and rewards in every run.")
    return 1 if faults else 0


def _summary(options: Options, calibration: Calibration, results: Mapping[float, Sequence[Run]]) -> dict[str, object]:
    return {
        "seed": options.seed,
        "quick": options.quick,
        "docker": options.docker,
        "trajectories": options.trajectories,
        "cores": CORES,
        "calibration": dataclasses.asdict(calibration),
        "shares": [
            {"tool_share": share, "runs": [dataclasses.asdict(run) for run in runs], "ratios": _ratios(options, runs)}
            for share, runs in results.items()
        ],
    }


def _ratios(options: Options, runs: Sequence[Run]) -> dict[str, float] | None:
    ratios = None if options.quick else show.ratios_between(runs)
    return None if ratios is None else dataclasses.asdict(ratios)


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 1 <= percent <= 95:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage from 1 to 95")
    return percent / 100


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} names a policy twice")
    for name in names:
        try:
            policy_named(name)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return names
