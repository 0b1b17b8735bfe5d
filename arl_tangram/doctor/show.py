"""The doctor's text and JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from arl_tangram.doctor.findings import Finding, Leftover, exit_code


def lines(findings: Sequence[Finding], leftovers: Sequence[Leftover], *, removing: bool) -> str:
    """Return one line for each finding and each thing that is left.

    Args:
        findings: what was looked at.
        leftovers: what dead owners have left, or had.
        removing: whether it was to be removed.
    """
    text = [
        f"{finding.subject:<9}{finding.state:<9}{finding.text}"
        + (f"; to do: {finding.advice}" if finding.advice else "")
        for finding in findings
    ]
    if not leftovers:
        return "\n".join([*text, f"{'left':<9}{'ok':<9}nothing: no dead run has left anything"])
    for leftover in leftovers:
        state = "removed" if leftover.removed else "failed" if leftover.error else "left"
        reason = f": {leftover.error}" if leftover.error else ""
        name = leftover.name[:12] if leftover.kind == "container" else leftover.name
        text.append(f"{'left':<9}{state:<9}{leftover.kind} {name}, {leftover.text}{reason}")
    if not removing:
        advice = "python -m arl_tangram doctor --remove, or the next start of a pool"
        text.append(f"{'left':<9}{'':<9}to do: {advice}")
    return "\n".join(text)


def record(findings: Sequence[Finding], leftovers: Sequence[Leftover]) -> dict[str, object]:
    """Return the same as an object for JSON."""
    return {
        "findings": [asdict(finding) for finding in findings],
        "leftovers": [asdict(leftover) for leftover in leftovers],
        "exit_code": exit_code(findings, leftovers),
    }
