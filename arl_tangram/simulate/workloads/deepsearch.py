"""DeepSearch: trajectories that ask search APIs with quotas and read pages, and a judge that scores their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import PowerLaw
from arl_tangram.model.gpu import HostedService
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import Dimension, quota_calls, quota_concurrency
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads.checks import (
    check_least,
    check_positive,
    check_share,
    check_tool_share,
    check_whole,
)
from arl_tangram.simulate.workloads.drawing import (
    Seconds,
    number_of_turns,
    seconds_of_median,
    thinking_scale,
)
from arl_tangram.simulate.workloads.services import model_service


@dataclass(frozen=True, slots=True)
class DeepSearch:
    """How trajectories of a search agent go: turns of thinking and searches or a page, then a judge.

    Sources. *The paper*: arXiv 2603.13019. *Recorded*: thinking times of 158 trajectories of
    github.com/eunomia-bpf/agentcgroup. *APIs*: 2,845 requests to 19 APIs of language models (550 tokens in, about 150
    out), github.com/ray-project/llmperf-leaderboard; no recording of search APIs was found, so that a search is taken
    to take as long as such an API until its first token, and a page that is read and summed up as long as its whole
    answer. *Model card*: of gpt-oss-120b. *Measured*: what `bench evict` restores with. All others are our assumptions.

    Attributes:
        rollouts: how many trajectories (the paper: 2,048).
        group: trajectories of one question; their name is `question0` and so on.
        turns: median of the turns of a trajectory, log-normal.
        turns_sigma: standard deviation of its logarithm.
        most_turns: where it is cut off.
        tool_share: part of an undisturbed trajectory without its judge that is searches and pages, over all (the paper:
            0.47).
        thinking_sigma: standard deviation of the logarithm of a thinking time (recorded: 0.90).
        reading: share of turns that read a page; the others search.
        queries: most searches that a turn makes at once; from one up to these, equally often.
        search_s: median of a search, log-normal (APIs: 0.457 until the first token).
        search_sigma: standard deviation of its logarithm (APIs: 1.02; the longest 5 % then hold 27 % of the time, not
            the 50 % that they held).
        page_s: median of a page, log-normal (APIs: 2.99 for a whole answer).
        page_sigma: standard deviation of its logarithm (APIs: 0.73; 18 % then, not 23 %).
        refused: share of the calls that the API refuses with 429 although the quotas are kept (APIs: 2 of 150 where not
            all were refused; 130 of 150 at three of them, and 0.138 over all, where they were not kept).
        refusal_s: seconds until such an answer.
        retry_after_s: seconds until the rollout asks once more, which is answered.
        searches_per_s: searches that may start within any second; between what a batch asks for in the mean, and when
            it starts.
        pages_at_once: pages that may be read at once; below what a batch asks for when it starts.
        judge_s: median of a judgement on one GPU, log-normal (APIs: 2.99 for a whole answer).
        judge_sigma: standard deviation of its logarithm (APIs: 0.73).
        judge_exponent: of the power law by which the judge speeds up over GPUs.
        judge_dops: on how many GPUs an instance of the judge can be.
        judge_concurrency: calls that may use an instance at once, without becoming slower.
        judge_gib: of the judge's weights (the paper: GPT-OSS; model card: 60.8 of the one with 120 thousand million
            weights, which is our assumption).
        judge_work_gib: what an instance needs besides on each GPU.
        copy_gb_per_s: a restore, from host memory to each GPU (measured: 53).
        wake_s: what a restore takes besides (measured: 1.5).
        memory_gib: what a trajectory holds; nothing, as it has no sandbox.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    rollouts: int = 2048
    group: int = 16
    turns: float = 8
    turns_sigma: float = 0.7
    most_turns: int = 64
    tool_share: float = 0.47
    thinking_sigma: float = 0.9
    reading: float = 0.5
    queries: int = 3
    search_s: float = 0.457
    search_sigma: float = 1.02
    page_s: float = 2.99
    page_sigma: float = 0.73
    refused: float = 0.013
    refusal_s: float = 0.2
    retry_after_s: float = 1.0
    searches_per_s: int = 200
    pages_at_once: int = 512
    judge_s: float = 2.99
    judge_sigma: float = 0.73
    judge_exponent: float = 0.7
    judge_dops: tuple[int, ...] = (1, 2, 4, 8)
    judge_concurrency: int = 32
    judge_gib: float = 60.8
    judge_work_gib: float = 10.0
    copy_gb_per_s: float = 53.0
    wake_s: float = 1.5
    memory_gib: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "rollouts", "group", "most_turns", "queries", "searches_per_s", "pages_at_once")
        check_whole(self, "memory_gib", least=0)
        check_positive(self, "turns", "search_s", "page_s", "judge_s", "copy_gb_per_s")
        check_least(
            self, "turns_sigma", "thinking_sigma", "search_sigma", "page_sigma", "refusal_s", "retry_after_s",
            "judge_sigma", "wake_s",
        )  # fmt: skip
        check_share(self, "reading", "refused", "judge_exponent")
        check_tool_share(self, self.tool_share)
        self.services()

    def quotas(self) -> tuple[Dimension, ...]:
        """Return the dimensions of the quotas `search` and `pages`, in thousandths of a call."""
        return (
            Dimension(quota_calls("search"), self.searches_per_s * MILLI, MILLI, 1.0),
            Dimension(quota_concurrency("pages"), self.pages_at_once * MILLI, MILLI),
        )

    def services(self) -> tuple[HostedService, ...]:
        """Return the service `judge`."""
        return (
            model_service(
                "judge",
                weights_gib=self.judge_gib,
                work_gib=self.judge_work_gib,
                dops=self.judge_dops,
                max_concurrency=self.judge_concurrency,
                copy_gb_per_s=self.copy_gb_per_s,
                wake_s=self.wake_s,
            ),
        )


_SEARCH = ActionSpec("search", Cost(quota=(("search", MILLI),)))
_PAGE = ActionSpec("page", Cost(quota=(("pages", MILLI),)))
_JUDGE = ActionSpec("judge", Cost(service="judge"))


def deepsearch_rollouts(deepsearch: DeepSearch, seed: int) -> Workload:
    """Draw trajectories of a search agent; a call that is refused is made once more, in a turn of its own."""
    rng = np.random.default_rng(seed)
    asked = [_turns(deepsearch, rng) for _ in range(deepsearch.rollouts)]
    pauses: list[Seconds] = [rng.lognormal(0, deepsearch.thinking_sigma, len(turns)) for turns in asked]
    tools_s = sum(max(call.work_s for call in calls) for turns in asked for calls in turns)
    scale = thinking_scale(tools_s, pauses, deepsearch.tool_share)
    speedup = PowerLaw(deepsearch.judge_exponent)
    rollouts: list[Rollout] = []
    for number, (turns, thinking) in enumerate(zip(asked, pauses, strict=True)):
        done: list[Turn] = []
        for pause, calls in zip(thinking, turns, strict=True):
            done += _with_refusals(deepsearch, float(pause) * scale, calls, rng)
        judgement = Call(_JUDGE, seconds_of_median(rng, deepsearch.judge_s, deepsearch.judge_sigma), speedup)
        group = f"question{number // deepsearch.group}"
        rollouts.append(Rollout((*done, Turn(0.0, (judgement,))), 0.0, deepsearch.memory_gib * GIB, group))
    return Workload(rollouts=tuple(rollouts))


def _turns(deepsearch: DeepSearch, rng: np.random.Generator) -> list[tuple[Call, ...]]:
    """Return what each turn asks for: a page, or searches."""
    count = number_of_turns(rng, deepsearch.turns, deepsearch.turns_sigma, deepsearch.most_turns)
    turns: list[tuple[Call, ...]] = []
    for reads in rng.random(count) < deepsearch.reading:
        if reads:
            turns.append((Call(_PAGE, seconds_of_median(rng, deepsearch.page_s, deepsearch.page_sigma)),))
        else:
            queries = int(rng.integers(1, deepsearch.queries, endpoint=True))
            seconds = [seconds_of_median(rng, deepsearch.search_s, deepsearch.search_sigma) for _ in range(queries)]
            turns.append(tuple([Call(_SEARCH, search_s) for search_s in seconds]))
    return turns


def _with_refusals(
    deepsearch: DeepSearch, thinking_s: float, calls: tuple[Call, ...], rng: np.random.Generator
) -> list[Turn]:
    """Return a turn, and behind it one with the calls of it that were refused, as they are answered."""
    refused = rng.random(len(calls)) < deepsearch.refused
    first = [Call(call.spec, deepsearch.refusal_s) if no else call for call, no in zip(calls, refused, strict=True)]
    turns = [Turn(thinking_s, tuple(first))]
    again = tuple([call for call, no in zip(calls, refused, strict=True) if no])
    if again:
        turns.append(Turn(deepsearch.retry_after_s, again))
    return turns
