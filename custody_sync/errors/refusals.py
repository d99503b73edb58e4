"""What the ledger or a lease refuses: nothing was appended."""

from __future__ import annotations

from typing import Any

from custody_sync.errors.base import CustodyError, Terminal, Transient


class Refused(CustodyError, Terminal):
    """The ledger refused the event; nothing was appended."""

    code = "refused"
    exit_code = 4


class UnknownFact(Refused):
    """No fact {fact_id} was ever asserted in this ledger."""

    code = "unknown_fact"


class SupersedeConflict(Refused):
    """Fact {fact_id} was superseded by another write first; read it again and decide anew."""

    code = "supersede_conflict"


class AlreadyCovered(SupersedeConflict):
    """Fact {fact_id} is already superseded by {by}; supersede that one instead."""

    code = "already_covered"


class AlreadyRetracted(Refused):
    """Fact {fact_id} is retracted."""

    code = "already_retracted"


class AlreadyConfirmed(Refused):
    """Fact {fact_id} is not waiting for a confirmation."""

    code = "already_confirmed"


class NotConfirmed(Refused):
    """Fact {fact_id} is only claimed; confirm it before anything supersedes it."""

    code = "not_confirmed"


class StartsTooEarly(Refused):
    """The replacement starts at {valid_from}, before fact {fact_id}, which starts at {target_from}."""

    code = "starts_too_early"


class OtherStatement(Refused):
    """A replacement keeps space, subject and predicate; {field} differs from fact {fact_id}."""

    code = "other_statement"


class OnHold(Refused):
    """Fact {fact_id} is under a legal hold: {holds}."""

    code = "on_hold"

    def _shown(self) -> dict[str, Any]:
        return {**self.fields, "holds": ", ".join(self.fields.get("holds", ())) or "?"}


class NoSuchHold(Refused):
    """Fact {fact_id} has no hold {hold_id}."""

    code = "no_such_hold"


class DuplicateHold(Refused):
    """Fact {fact_id} already has a hold {hold_id}."""

    code = "duplicate_hold"


class Forgotten(Refused):
    """Fact {fact_id} was forgotten."""

    code = "forgotten"


class RepairedId(Refused):
    """Fact id {fact_id} belongs to a repaired orphan and can never be asserted; write again under a new id."""

    code = "repaired_id"


class AssertedId(Refused):
    """Fact id {fact_id} was asserted; it is no orphan."""

    code = "asserted_id"


class DuplicateFact(Refused):
    """Fact id {fact_id} was asserted before, by another event."""

    code = "duplicate_fact"


class DuplicateEvent(Refused):
    """Event id {event_id} was used before, for another event."""

    code = "duplicate_event"


class AlreadyRecorded(Refused):
    """The repair of fact {fact_id} ({entry}) is already recorded."""

    code = "already_recorded"

    def _shown(self) -> dict[str, Any]:
        store, external_id = self.fields.get("store"), self.fields.get("external_id")
        entry = "without an entry" if store is None else f"{external_id} in store {store!r}"
        return {**self.fields, "entry": entry}


class StalePlacement(Refused):
    """The entry in store {store!r} is too old or already removed; the write took too long and has to be made again."""

    code = "stale_placement"


class SharedEntry(Refused):
    """Store {store!r} answered with entry {external_id}, which already stands for fact {fact_id}: let it give each
    entry an id that never comes again, such as a UUID, since removing one of the two would take the other."""

    code = "shared_entry"


class NotBelieved(Refused):
    """Fact {fact_id} is not believed now and belongs in no store."""

    code = "not_believed"


class NotRemoved(Refused):
    """Fact {fact_id} is believed and held by its stores; there is no removal of it to verify."""

    code = "not_removed"


class AlreadyPlaced(Refused):
    """Store {store!r} already holds a placement of fact {fact_id}."""

    code = "already_placed"


class NotPlaced(Refused):
    """Entry {external_id} in store {store!r} is no current placement of fact {fact_id}; nothing can replace it."""

    code = "not_placed"


class StillBelieved(Refused):
    """Fact {fact_id} is believed and {external_id} in store {store!r} is its placement; it is not due for removal."""

    code = "still_believed"


class IdempotencyConflict(Refused):
    """The idempotency key was used before for a different fact."""

    code = "idempotency_conflict"


class WriteInProgress(CustodyError, Transient):
    """A write with this idempotency key is under way; try again in a moment."""

    code = "write_in_progress"
    exit_code = 4


class LedgerRestored(Refused):
    """The ledger {name} does not have event {seq}, which its witness {path} has seen: it was put back from a backup
    or cut off, and a sweep would take what was written since for leftovers. Put the later ledger back; only if what
    is missing is given up for good, let the witness begin anew here: custody-sync ledger head --accept."""

    code = "ledger_restored"


class LedgerElsewhere(Refused):
    """The ledger {name} swept before at {before}, and this is {here}: a copy must not sweep the stores of the ledger
    that goes on. If this is the one that goes on, say so once: repair --moved, or moved=True."""

    code = "ledger_elsewhere"


class SweepRunning(CustodyError, Transient):
    """A sweep by {holder} has been running since {since}; its lease ends at {until}."""

    code = "sweep_running"
    exit_code = 4


class BreakerOpen(CustodyError, Terminal):
    """{planned} removals out of {scanned} scanned entries are too many to start unasked; look at a dry run, then
    pass max_removals={planned} if they are right (a ledger put back from a backup looks like this)."""

    code = "breaker_open"
    exit_code = 4


class TooManyPuts(CustodyError, Terminal):
    """{planned} of the {expected} entries that store {store!r} ought to hold would be put again, which is too many to
    start unasked (another table or namespace than before, or a store that was emptied, looks like this); look at a
    dry run, then pass max_puts={total} if they are right."""

    code = "too_many_puts"
    exit_code = 4
