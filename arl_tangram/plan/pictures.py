"""The plots of a plan: the ACT or step over each resource, what is needed beside the baselines, rollouts in flight."""

from __future__ import annotations

from collections.abc import Iterator

from arl_tangram.plan.comparison import CapacityPlan
from arl_tangram.plan.needs import Alone, Need
from arl_tangram.plots import Bars, Chart, Line


def panels(plan: CapacityPlan) -> list[Chart | Bars]:
    """Return what is drawn."""
    needs = [plan.need, *(baseline.need for baseline in plan.baselines if baseline.need is not None)]
    by_act = plan.goal.act_s < float("inf")
    found: list[Chart | Bars] = [_over(plan, place, needs, by_act=by_act) for place in range(len(plan.need.alone))]
    found.append(_needed(plan, needs))
    if plan.in_flight.enough:
        found.append(_in_flight(plan))
    return found


def _over(plan: CapacityPlan, place: int, needs: list[Need], *, by_act: bool) -> Chart:
    """Return the ACT, or the step, over how much there is of one resource, the others being as they were."""
    name = plan.need.alone[place].resource.name
    goal_s = plan.goal.act_s if by_act else plan.goal.step_s
    return Chart(
        f"{name}, the others as recorded",
        name,
        "mean ACT with admission, s" if by_act else "step, s",
        [_line(need, need.alone[place], by_act=by_act) for need in needs],
        levels=[("to be kept", goal_s)],
        marks=[("needed together", plan.need.alone[place].resource.amount(plan.need.together))],
        log_x=True,
        log_y=True,
    )


def _line(need: Need, alone: Alone, *, by_act: bool) -> Line:
    points = list(_points(alone, by_act=by_act))
    return Line(need.variant.name, [amount for amount, _ in points], [seconds for _, seconds in points])


def _points(alone: Alone, *, by_act: bool) -> Iterator[tuple[float, float]]:
    for amount, run in alone.tried:
        if run is not None:
            yield amount, run.act_s if by_act else run.step_s


def _needed(plan: CapacityPlan, needs: list[Need]) -> Bars:
    resources = [one.resource for one in plan.need.alone]
    heights = [
        (
            need.variant.name,
            [resource.amount(need.together) / resource.amount(plan.recorded) for resource in resources],
        )
        for need in needs
    ]
    names = [resource.name.replace(": ", ":\n") for resource in resources]
    return Bars("Needed together", "share of what was recorded", names, heights)


def _in_flight(plan: CapacityPlan) -> Chart:
    tried = plan.in_flight.tried
    return Chart(
        "Rollouts at once, on what is needed",
        "rollouts",
        "seconds",
        [
            Line("step", [run.rollouts for run in tried], [run.step_s for run in tried]),
            Line("mean ACT, admission left out", [run.rollouts for run in tried], [run.act_s for run in tried]),
        ],
        marks=[("enough", plan.in_flight.enough)],
        log_y=True,
    )
