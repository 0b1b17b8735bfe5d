"""Whether this process is a worker, and whether it imports the program that started it."""

from __future__ import annotations

is_worker = False
"""Set once, at the start of a worker, before any code of the user runs there."""
is_preparing = False
"""While a worker imports the main module of the program."""
is_unguarded = False
"""Whether that import wanted to open a runtime: the program would run again in each worker."""
UNGUARDED = (
    "each worker process imports the script, so a script that opens a runtime needs its "
    '`if __name__ == "__main__":` around what is not to run there'
)


def check_not_imported() -> str | None:
    """Return why no runtime can be opened here now, or None."""
    global is_unguarded  # noqa: PLW0603 - it is about this process
    if not is_preparing:
        return None
    is_unguarded = True
    return f"a runtime cannot be opened while a worker process imports the script: {UNGUARDED}"
