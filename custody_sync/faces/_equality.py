"""When two values of a filter are the same, in every face alike."""

from __future__ import annotations

from typing import Any


def same(held: Any, wanted: Any) -> bool:
    """Compare as JSON does, whole trees: 1 is 1.0, and neither is true."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        return held.keys() == wanted.keys() and all(same(held[key], wanted[key]) for key in wanted)
    if isinstance(held, list | tuple) and isinstance(wanted, list | tuple):
        alike = len(held) == len(wanted) and isinstance(held, list) is isinstance(wanted, list)
        return alike and all(map(same, held, wanted))
    return isinstance(held, bool) is isinstance(wanted, bool) and bool(held == wanted)


__all__ = ["same"]
