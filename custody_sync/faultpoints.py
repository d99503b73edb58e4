"""The registry of fault points: every place where a process can be made to fail in a test.

The core calls `Runtime.reach(point)`; without a hook that does nothing. The crash matrix
kills a real process at each of these, so a new point is tested by being listed here.
"""

from __future__ import annotations

from enum import StrEnum


class FaultPoint(StrEnum):
    """Where a hook is called, in the order of the work."""

    VALIDATED = "coordinator.validated"
    """Input is good, a keyed write is reserved; nothing has been sent to a store."""
    BEFORE_PUT = "store.before_put"
    AFTER_PUT = "store.after_put"
    """One store has confirmed; reached once per store."""
    STORED = "coordinator.stored"
    """Every store has confirmed; the ledger knows nothing yet."""
    BEFORE_COMMIT = "ledger.before_commit"
    """Rows are written, COMMIT has not been sent."""
    AFTER_COMMIT = "ledger.after_commit"
    """The commit is durable; no caller has been told."""
    RECORDED = "coordinator.recorded"
    """The ledger has answered; the stores' follow-up work has not begun."""
    BEFORE_ERASURE = "ledger.before_erasure"
    AFTER_ERASURE = "ledger.after_erasure"
    """The erased value has left the ledger's files."""
    BEFORE_COMPENSATION = "store.before_compensation"
    BEFORE_DELETE = "store.before_delete"
    AFTER_DELETE = "store.after_delete"
    AFTER_QUESTION = "store.after_question"
    """A store has answered whether an entry is gone; nothing is recorded of it."""
    REMOVED = "removal.recorded"
    """A removal's outcome is in the ledger."""
    RESTORED = "removal.restored"
    """A fact that is believed again was put, its `place` event is not recorded yet."""
    SWEEP_LEASED = "sweep.leased"
    SWEEP_DRAINED = "sweep.drained"
    SWEEP_SPOOLED = "sweep.spooled"
    """All candidates of all stores are spooled; none was touched."""
    SWEEP_RECORDED = "sweep.recorded"
    """One candidate's event is in the ledger, its entry still in the store."""
    SWEEP_DONE = "sweep.done"
    RECONCILE_PILED = "reconcile.piled"
    """All differences that are to be mended are kept beside the log; none was touched."""
    RECONCILE_PLACED = "reconcile.placed"
    """A fact was put anew and that is in the ledger; what it replaces is still in the store."""
    RECONCILE_DONE = "reconcile.done"
