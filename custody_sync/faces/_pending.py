"""A removal that is recorded and not verified yet, where an answer has no room to say so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

log = logging.getLogger("custody_sync.faces")


class Ends(Protocol):
    """A result that says whether nothing is left to do."""

    @property
    def complete(self) -> bool:
        """True when every removal was seen through."""
        ...


R = TypeVar("R", bound=Ends)


def tell_pending(on_pending: Callable[[R], object] | None, *results: R, said: bool = False) -> None:
    """Log once that stores may still hold what is gone, and hand each such result to the caller.

    Nobody is served it, and everything is recorded by then, so nothing may fail any more.

    Args:
        on_pending: the caller's own function.
        results: of which those count that are not complete.
        said: whether the answer says so itself; then nothing is logged.
    """
    pending = [result for result in results if not result.complete]
    if pending and not said:
        log.warning("a removal is recorded and not yet verified in every store: run repair")
    if on_pending is None:
        return
    for result in pending:
        try:
            on_pending(result)
        except Exception as error:
            log.warning("on_pending raised %s", type(error).__name__)


__all__ = ["tell_pending"]
