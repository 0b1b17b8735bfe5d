"""What adapters share is imported in every worker of a trainer: it must not bring in a trainer, torch or Ray."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import arl_tangram.integrations.rollouts.sandbox_tools
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"ray", "torch", "transformers", "trl", "verl"}))
"""


def test_it_imports_no_trainer_and_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
