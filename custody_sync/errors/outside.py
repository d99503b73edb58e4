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


class StoreThrottled(StoreUnavailable):
    """store {store!r}: {operation} was turned away, too many requests ({cause})."""

    code = "store_throttled"

    def __init__(
        self, store: str, operation: str, cause: str, retry_after: float | None = None, **fields: object
    ) -> None:
        super().__init__(store=store, operation=operation, cause=cause, retry_after=retry_after, **fields)


class StoreRefused(StoreError, Terminal):
    """store {store!r}: {operation} was refused ({cause})."""

    code = "store_refused"


class NoProof(StoreError):
    """store {store!r}: the answer to {operation} proves nothing ({cause})."""

    code = "no_proof"


class UnlabelledEntries(StoreError, Terminal):
    """store {store!r} served entries that the ledger has no fact for ({count}); run adopt, or let recall drop them."""

    code = "unlabelled_entries"
    exit_code = 4


class StoreWriteFailed(CustodyError, Transient):
    """Nothing was recorded: store {store!r} did not take the write ({cause}); removed again from {removed}, may be
    left in {left}."""

    code = "store_write_failed"
    exit_code = 3


class NotForgotten(CustodyError, Transient):
    """{left} of {found} facts are not forgotten yet ({cause}); the same call goes on with them."""

    code = "not_forgotten"
    exit_code = 3
