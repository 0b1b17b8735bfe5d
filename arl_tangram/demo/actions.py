"""The tools and rewards of the demo, each an action: a function with the cost of one call declared."""

from __future__ import annotations

from pathlib import Path

import arl_tangram as tangram
from arl_tangram.demo.search_api import Refused, SearchApi
from arl_tangram.machine_image.python_files import interpreter

_TOOLS = Path(__file__).with_name("agent_tools")
_ENVIRONMENT = {
    "PYTHON": interpreter(),
    "PYTHONPATH": "tools",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_OPTIONS": "-q -p no:cacheprovider -p workspace_numpy --import-mode=importlib --rootdir=.",
}
_ONE_FILE = """\
if "$PYTHON" -m pytest $PYTEST_OPTIONS "$0" >"$(basename "$0").log" 2>&1; then
  echo "passed $0"
else
  echo "failed $0"
fi
"""
_SUITE = """printf '%s\\n' "$@" | xargs -n 1 -P "$WORKERS" sh -c "$ONE_FILE" """


def _kind(kind: str, _command: str) -> str:
    return kind


@tangram.action(cpu=1, timeout=60)
async def check_out(folders: tuple[Path, ...]) -> None:
    """Copy the source tree and the agent's tools into the sandbox."""
    box = tangram.current_sandbox()
    for folder in folders:
        await box.put_dir(folder, folder.name)
    await box.put_dir(_TOOLS, "tools")


@tangram.action(cpu=1, timeout=120, key=_kind)
async def shell(kind: str, command: str) -> int:  # noqa: ARG001 - the kind is the key of what is learned
    """Run a shell command and return its exit code; commands of one kind last about as long."""
    done = await tangram.current_sandbox().exec(["sh", "-c", command], env=_ENVIRONMENT)
    return done.exit_code


@tangram.action(cpu=1, timeout=60)
async def edit(path: str, old: str, new: str) -> int:
    """Replace a text in a file, read it back, compare it with the old one and compile it.

    Returns:
        The exit code of the compiler.

    Raises:
        ValueError: the file does not hold the text once, or does not read back as written.
    """
    box = tangram.current_sandbox()
    before = await box.read_file(path)
    if before.count(old.encode()) != 1:
        raise ValueError(f"{path} does not hold the text to replace exactly once")
    after = before.replace(old.encode(), new.encode())
    await box.write_file(f"{path}.orig", before)
    await box.write_file(path, after)
    if await box.read_file(path) != after:
        raise ValueError(f"{path} does not read back as it was written")
    command = f'diff -u {path}.orig {path}; "$PYTHON" -m py_compile {path}'
    done = await box.exec(["sh", "-c", command], env=_ENVIRONMENT)
    return done.exit_code


@tangram.action(quota={"search": 1}, timeout=60)
async def search(api: SearchApi, query: str) -> int | None:
    """Ask the search API; return the number of hits, or None when it refused and wants to be asked later."""
    answer = await api.search(query)
    if isinstance(answer, Refused):
        tangram.current_quota("search").retry_after(answer.retry_after_s)
        return None
    return len(answer)


@tangram.action(cpu=1, timeout=60)
def similarity(patch: str, reference: str) -> float:
    """Reward a patch by its likeness to the reference: 1 less the edit distance per character."""
    longest = max(len(patch), len(reference))
    return 1 - edit_distance(patch, reference) / longest if longest else 1.0


def edit_distance(left: str, right: str) -> int:
    """Return how many characters to insert, delete or replace (Levenshtein, 1966) to turn one into the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


@tangram.action(cpu=tangram.Elastic(1, 2, resizable=True), timeout=300)
async def run_suite(files: tuple[str, ...]) -> float:
    """Reward a patch by the share (0 to 1) of the test files that pass: one process per file, as many as cores.

    Where its cores can change while it runs, there are as many processes as it can ever have cores.
    """
    box = tangram.current_sandbox()
    workers = {"WORKERS": str(tangram.current_allocation().max_units), "ONE_FILE": _ONE_FILE}
    done = await box.exec(["sh", "-c", _SUITE, "suite", *files], env=_ENVIRONMENT | workers)
    verdicts = done.stdout.decode().splitlines()
    if len(verdicts) != len(files):
        raise RuntimeError(f"{len(files)} test files gave {len(verdicts)} verdicts: {done.stderr.decode()[-500:]}")
    return sum(verdict.startswith("passed ") for verdict in verdicts) / len(files)
