"""What went wrong in a store."""

from __future__ import annotations

from custody_sync.errors.base import CustodyError, Terminal, Transient


class StoreError(CustodyError):
    """store {store!r}: {operation} failed ({cause})."""

    code = "store_error"
    exit_code = 3


class StoreUnavailable(StoreError, Transient):
    """store {store!r}: {operation} failed for now ({cause})."""

    code = "store_unavailable"


class StoreRefused(StoreError, Terminal):
    """store {store!r}: {operation} was refused ({cause})."""

    code = "store_refused"


class NoProof(StoreError):
    """store {store!r}: the answer to {operation} proves nothing ({cause})."""

    code = "no_proof"


class StoreWriteFailed(CustodyError, Transient):
    """Nothing was recorded: store {store!r} did not take the write ({cause}); removed again from {removed}, may be
    left in {left}."""

    code = "store_write_failed"
    exit_code = 3
