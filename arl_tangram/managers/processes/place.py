"""Whether this process is a worker."""

from __future__ import annotations

is_worker = False
"""Set once, at the start of a worker, before any code of the user runs there."""
