"""The scripted agents: what each trajectory does, turn by turn, drawn from a seed and nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from arl_tangram.demo.suite import ADD, MODULES, SUBTRACT, suite_of, tests_of


@dataclass(frozen=True, slots=True)
class CheckOut:
    """Copy the source tree into the sandbox."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Run a shell command; commands of one kind last about as long."""

    kind: str
    command: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace a text in a file, read it back, compare and compile."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Search:
    """Ask the rate-limited search API."""

    query: str


Step = CheckOut | Shell | Edit | Search


@dataclass(frozen=True, slots=True)
class Turn:
    """The calls that the model makes after thinking once."""

    steps: tuple[Step, ...]


class Course(StrEnum):
    """How an agent fares."""

    RIGHT = "right at once"
    MENDED = "wrong, then mended"
    WRONG = "wrong to the end"


@dataclass(frozen=True, slots=True)
class Script:
    """One trajectory.

    Attributes:
        index: its number, from 0.
        module: the module of `numpy.polynomial` that it works on.
        function: the function that it rewrites.
        course: how it fares.
        turns: what it does.
        patch: the text that it ends with.
        reference: the text of the reference solution.
        suite: the test files of the last reward.
    """

    index: int
    module: str
    function: str
    course: Course
    turns: tuple[Turn, ...]
    patch: str
    reference: str
    suite: tuple[str, ...]

    @property
    def calls(self) -> int:
        """Actions of the whole trajectory, with its two rewards."""
        return sum(len(turn.steps) for turn in self.turns) + 2


_COURSES = (Course.RIGHT, Course.MENDED, Course.RIGHT, Course.WRONG)

_REFERENCE = {
    "add": """\
    a, b = pu.as_series([c1, c2])
    total = np.zeros(max(len(a), len(b)), dtype=a.dtype)
    total[: len(a)] += a
    total[: len(b)] += b
    return pu.trimseq(total)
""",
    "sub": """\
    a, b = pu.as_series([c1, c2])
    difference = np.zeros(max(len(a), len(b)), dtype=a.dtype)
    difference[: len(a)] += a
    difference[: len(b)] -= b
    return pu.trimseq(difference)
""",
}
_RIGHT = {
    "add": """\
    long, short = pu.as_series([c1, c2])
    if len(long) < len(short):
        long, short = short, long
    long = long.copy()
    long[: len(short)] += short
    return pu.trimseq(long)
""",
    "sub": """\
    left, right = pu.as_series([c1, c2])
    width = max(len(left), len(right))
    left = np.concatenate([left, np.zeros(width - len(left), dtype=left.dtype)])
    left[: len(right)] -= right
    return pu.trimseq(left)
""",
}
_WRONG = {
    "add": _RIGHT["add"].replace("+= short", "-= short"),
    "sub": _RIGHT["sub"].replace("-= right", "+= right"),
}
_CHECKED = {"add": "[4, 6, 5]", "sub": "[-2, -2, -5]"}

_QUERIES = (
    "trim trailing zeros of a coefficient series",
    "common dtype of several arrays",
    "add arrays of different length",
    "domain and window of a series",
    "masked array arithmetic",
    "coefficients ordered from low to high",
    "evaluate a series at points",
    "companion matrix roots",
)

_EXPLORE = (
    "find . -name '*.py' -print0 | sort -z | xargs -0 wc -l | sort -n | tail -8",
    "grep -rnw --include='*.py' as_series . | sort | head -40",
    "grep -rlw --include='*.py' trimseq . | sort | xargs wc -c",
    "find polynomial -name '*.py' | sort | xargs grep -c 'def ' | sort -t: -k2 -n",
    "ls -l polynomial/tests ma | sort -k5 -n | tail -20",
)
_WORDS = "find . -name '*.py' -print0 | xargs -0 cat | tr -cs 'A-Za-z_' '\\n' | sort | uniq -c | sort -rn | head -20"
_OUTLINE = '"$PYTHON" tools/outline.py polynomial ma'
_NAMES = '"$PYTHON" tools/names.py polynomial/*.py'


def draw_scripts(seed: int, trajectories: int, *, quick: bool = False) -> tuple[Script, ...]:
    """Return the scripts of all trajectories; the same for the same arguments."""
    return tuple(_draw_script(random.Random(f"{seed}/script/{i}"), i, quick=quick) for i in range(trajectories))


def _draw_script(rng: random.Random, index: int, *, quick: bool) -> Script:
    module = rng.choice(sorted(MODULES))
    operation = rng.choice(("add", "sub"))
    course = _COURSES[index % len(_COURSES)]
    function = MODULES[module] + operation
    turns = _short_turns(module, operation, course) if quick else _full_turns(rng, module, operation, course)
    return Script(
        index=index,
        module=module,
        function=function,
        course=course,
        turns=tuple(Turn(steps) for steps in turns),
        patch=(_WRONG if course is Course.WRONG else _RIGHT)[operation],
        reference=_REFERENCE[operation],
        suite=suite_of(module, quick=quick),
    )


def _full_turns(rng: random.Random, module: str, operation: str, course: Course) -> list[tuple[Step, ...]]:
    explore = [Shell("explore", command) for command in rng.sample(_EXPLORE, 3)]
    queries = [Search(query) for query in rng.sample(_QUERIES, 3)]
    analyses = [Shell("outline", _OUTLINE), Shell("names", _NAMES), Shell("words", _WORDS)]
    rng.shuffle(analyses)
    return [
        (CheckOut(), explore[0]),
        (explore[1], analyses[0], queries[0]),
        (_read(module, operation), analyses[1]),
        (queries[1], explore[2], analyses[2]),
        _first_try(module, operation, course),
        (_check(module, operation), queries[2]),
        (_unit_tests(module),),
        *_mend(module, operation, course),
        (Shell("look", "find . -name '*.orig' -exec ls -l {} +; wc -l polynomial/*.py"), _check(module, operation)),
    ]


def _short_turns(module: str, operation: str, course: Course) -> list[tuple[Step, ...]]:
    return [
        (CheckOut(), Shell("explore", _EXPLORE[1])),
        (Search(_QUERIES[0]), _read(module, operation)),
        _first_try(module, operation, course),
        *(_mend(module, operation, course)),
        (_check(module, operation),),
    ]


def _first_try(module: str, operation: str, course: Course) -> tuple[Step, ...]:
    text = (_RIGHT if course is Course.RIGHT else _WRONG)[operation]
    return (Edit(f"polynomial/{module}.py", ADD if operation == "add" else SUBTRACT, text),)


def _mend(module: str, operation: str, course: Course) -> list[tuple[Step, ...]]:
    if course is not Course.MENDED:
        return []
    return [
        (Shell("look", f"tail -40 {tests_of(module)}"),),
        (Edit(f"polynomial/{module}.py", _WRONG[operation], _RIGHT[operation]),),
        (_unit_tests(module),),
    ]


def _read(module: str, operation: str) -> Shell:
    name = MODULES[module] + operation
    return Shell(
        "look", f"grep -n 'def ' polynomial/{module}.py; sed -n '/^def {name}/,/^def /p' polynomial/{module}.py"
    )


def _check(module: str, operation: str) -> Shell:
    call = f"m.{MODULES[module]}{operation}([1, 2], [3, 4, 5])"
    test = f"assert list({call}) == {_CHECKED[operation]}"
    return Shell("check", f'"$PYTHON" -c "import workspace_numpy; from numpy.polynomial import {module} as m; {test}"')


def _unit_tests(module: str) -> Shell:
    return Shell("test", f'"$PYTHON" -m pytest $PYTEST_OPTIONS {tests_of(module)}')
