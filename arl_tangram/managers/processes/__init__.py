"""Worker processes for plain function bodies: pinned, killable, replaced, used again while they are idle.

Written here, on `posix_spawn`, a socket pair and a pidfd per worker, as no pool library has all that a grant needs:

- `concurrent.futures` and `loky` cannot end one call: when one worker dies, they give up the whole pool.
- `pebble` can, but all its workers share one pipe and its locks, so that a worker that is killed in the middle of a
  message can hold up the others; it asks with SIGTERM first and waits in a thread; no call can choose its worker.
- `anyio.to_process` kills the worker of a cancelled call, but notices a death only through its pipe, which a child of
  the body keeps open, tells no exit code, and cannot carry an error that does not pickle.
- `multiprocessing.Process` starts a resource tracker beside the workers, and settles the program's start method.

Nothing forks here: a worker is a new interpreter, so that no lock or thread of the trainer is in it. How `__main__` is
prepared in it is what `multiprocessing` does for its own method "spawn", and its code does it.
"""

from __future__ import annotations

from arl_tangram.managers.processes.call import Grant, PackedCall, pack
from arl_tangram.managers.processes.pool import BodyProcesses

__all__ = ["BodyProcesses", "Grant", "PackedCall", "pack"]
