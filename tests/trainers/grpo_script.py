"""What the model of `test_main_ppo` says: it multiplies with its tool, and reads every other result wrongly.

In the first rollout of one question it ends its own sandbox instead.
"""

from __future__ import annotations

import re
from collections import Counter

from scripted import tool_call

FATAL = "What is 13 * 21?"
KILLS = "kill -KILL $PPID; sleep 60"
_asked: Counter[str] = Counter()
_read: Counter[str] = Counter()


def says(context: str) -> str:
    found = re.search(r"What is (\d+) \* (\d+)\?", context)
    assert found is not None
    question = found[0]
    if printed := re.findall(r"<tool_response>\n(-?\d+)", context):
        _read[question] += 1
        return f"The answer is {int(printed[-1]) + _read[question] % 2}"
    _asked[question] += 1
    if question == FATAL and _asked[question] == 1:
        return tool_call("shell", command=KILLS)
    return tool_call("code_interpreter", code=f"print({found[1]} * {found[2]})")
