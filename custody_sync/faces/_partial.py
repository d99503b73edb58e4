"""A search that may lack something, where the interface that was asked has no room to say so."""

from __future__ import annotations

import logging

from custody_sync.recalled import RecallResult

log = logging.getLogger("custody_sync.faces")


def tell_partial(result: RecallResult, enough: int | None = None) -> None:
    """Log that there may be more than is shown, unless there is enough; nothing of a memory is in it.

    Args:
        result: what was recalled.
        enough: how many facts the caller shows, where more of them were asked for.
    """
    if result.complete or (enough is not None and len(result.hits) >= enough):
        return
    log.warning("a search was answered in part: %s", result.status.value)


__all__ = ["tell_partial"]
