"""When one that waits for a restore keeps calls of running actions off what it waits for, and when it lets them pass.

Let them pass, and they may use for ever what has to go for it. Keep them off, and one of them may be what somebody who
sits there is waiting for; then nobody could go on. Who waits for whom is not looked at: it does both in turn, each time
for twice as long. So whoever sits there ends at last, whether that takes a call or not, and the one that waits is
served: after some four times the time that takes without calls, or that it takes to have a claim (`claims`), counted
from when nobody has waited longer and the calls that were there before it have ended (`scheduling.barring`).
"""

from __future__ import annotations

import math

_FIRST_S = 1.0


def bars_calls(waited_s: float) -> tuple[bool, float]:
    """Return whether one that has waited so long bars calls, and after how many seconds of waiting that changes.

    The first second calls pass; then each half of the time from one power of two to the next they are barred, and pass.
    """
    if waited_s < _FIRST_S:
        return False, _FIRST_S
    begin_s = _FIRST_S * 2.0 ** math.floor(math.log2(waited_s / _FIRST_S))
    middle_s = 1.5 * begin_s
    return (True, middle_s) if waited_s < middle_s else (False, 2 * begin_s)
