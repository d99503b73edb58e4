"""What went wrong with a ledger itself."""

from __future__ import annotations

from typing import Any

from custody_sync.errors.base import CustodyError, Terminal, Transient


class LedgerError(CustodyError):
    """The ledger {name} cannot be used: {problem}."""

    code = "ledger_error"
    exit_code = 5


class LedgerUnavailable(LedgerError, Transient):
    """The ledger did not record the event ({cause}); entries that stores may hold for {fact_id}: {entries}."""

    code = "ledger_unavailable"

    def _shown(self) -> dict[str, Any]:
        by_store: dict[str, list[str]] = {}
        for entry in self.fields.get("entries", ()):
            by_store.setdefault(entry["store"], []).append(entry["external_id"])
        said = "; ".join(f"{store} ({', '.join(ids)})" for store, ids in by_store.items())
        return {**self.fields, "entries": said or "none"}


class LedgerNotFound(LedgerError, Terminal):
    """No ledger at {name}; create one with `custody-sync init` or Ledger.open(..., create=True)."""

    code = "ledger_not_found"


class LedgerDamaged(LedgerError, Terminal):
    """The ledger {name} is damaged or is not a custody-sync ledger ({cause}); nothing was changed."""

    code = "ledger_damaged"


class LedgerTooNew(LedgerError, Terminal):
    """The ledger {name} has schema version {found}; this custody-sync reads up to {known}. Upgrade custody-sync."""

    code = "ledger_too_new"


class LedgerTooOld(LedgerError, Terminal):
    """The ledger's tables are of schema version {found}, and only those of {known} can be compared with its log; open it
    once for writing to upgrade it."""

    code = "ledger_too_old"


class LedgerReadOnly(LedgerError, Terminal):
    """The ledger {name} is read-only here ({cause})."""

    code = "ledger_read_only"


class LedgerBusy(LedgerError, Transient):
    """Another process has kept the ledger {name} locked for more than thirty seconds; nothing was recorded."""

    code = "ledger_busy"


class LedgerFull(LedgerError, Transient):
    """The disk of ledger {name} is full; nothing was recorded."""

    code = "ledger_full"


class OutcomeUnknown(LedgerError, Transient):
    """The connection to ledger {name} broke while an event was being committed; it may or may not be there."""

    code = "outcome_unknown"


class LedgerBroken(LedgerError, Terminal):
    """The ledger {name} is not intact at event {seq}: {problem}."""

    code = "ledger_broken"


class LedgerNotEmpty(LedgerError, Terminal):
    """The ledger {name} has events already; another ledger can only be copied into a new one."""

    code = "ledger_not_empty"


class LedgerTooLarge(LedgerError, Terminal):
    """The ledger {name} holds {events} events, and a JSONL ledger answers from memory up to {most}; nothing was
    recorded. Move it: custody-sync ledger copy --move OLD-URL sqlite:///new.db."""

    code = "ledger_too_large"


class LedgerUnreachable(LedgerError, Transient):
    """The ledger {name} cannot be reached ({cause})."""

    code = "ledger_unreachable"


class LedgerMoved(LedgerError, Terminal):
    """The ledger {name} was moved to {to}; append to it there, or move it back with `custody-sync ledger copy --move`."""

    code = "ledger_moved"


class LedgerArriving(LedgerError, Terminal):
    """The move of a ledger from {origin} to {name} is not complete, and until then nothing is recorded in either;
    run it again: custody-sync ledger copy --move."""

    code = "ledger_arriving"


class ErasedMeanwhile(LedgerError, Transient):
    """A value of ledger {name} was erased while it was exported, and what was written before has it; export it again,
    to a file or while nothing is forgotten."""

    code = "erased_meanwhile"
    exit_code = 3
