"""What the model of `test_main_ppo` says: it multiplies with one call of its tool and reads the file with another.

It answers rightly to the first reading of a question, wrongly to the second, and so on. A question is asked once in the
validation before the training, and then twice in one step: in the first of these rollouts, one question ends its own
sandbox, as it does in the validation, and another one calls a program that does not end.
"""

from __future__ import annotations

import re
from collections import Counter

from scripted import tool_call

FATAL, HANGING = "What is 13 * 21?", "What is 14 * 22?"
KILLS = "kill -KILL $PPID; sleep 60"
HANGS = "import time; time.sleep(600)"
_asked: Counter[str] = Counter()
_read: Counter[str] = Counter()


def says(context: str) -> str:
    found = re.search(r"What is (\d+) \* (\d+)\?", context)
    assert found is not None
    question = found[0]
    told = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", context, re.DOTALL)
    if not told:
        return _first(question, f"{found[1]} * {found[2]}")
    if told == [""]:  # of the program that has written the file
        return tool_call("code_interpreter", code="import watch; print(open('product').read())")
    if not told[-1].strip().isdigit():
        return f"I was told: {told[-1]}"
    _read[question] += 1
    return f"The answer is {int(told[-1]) + 1 - _read[question] % 2}"


def _first(question: str, product: str) -> str:
    _asked[question] += 1
    if question == FATAL and _asked[question] <= 2:
        return tool_call("shell", command=KILLS)
    if question == HANGING and _asked[question] == 2:
        return tool_call("code_interpreter", code=HANGS)
    return tool_call("code_interpreter", code=f"import watch; open('product', 'w').write(str({product}))")
