"""Two tools that need nothing but a sandbox: Python and a shell, in the files of the rollout."""

from __future__ import annotations

import arl_tangram as tangram
from arl_tangram.model.sandbox import ExecResult

MOST_CHARACTERS = 4000
"""Of the output that the model is shown; the middle of what is longer is left out."""


@tangram.action(cpu=1, timeout=60)
async def python(code: str) -> str:
    """Run a Python program and return what it prints. Files stay for later calls; variables do not.

    Args:
        code: the program; it must print what it wants to tell.
    """
    return _told(await tangram.current_sandbox().exec(["python3", "-"], stdin=code.encode()))


@tangram.action(cpu=tangram.Elastic(1, 4), timeout=60)
async def shell(command: str) -> str:
    """Run a command in a shell and return what it prints. Files stay for later calls; variables do not.

    Args:
        command: the command line.
    """
    return _told(await tangram.current_sandbox().exec(["sh", "-c", command]))


def _told(done: ExecResult) -> str:
    """Return the output of a command, cut in the middle, and its exit code if it failed."""
    text = (done.stdout + done.stderr).decode(errors="replace")
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
    if done.exit_code == 0:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}exit code {done.exit_code}"
