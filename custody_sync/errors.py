"""Every error of custody-sync: one root, a stable code, fields instead of prose.

The docstring of a class is its message, with `{field}` filled in. Errors survive pickling and
`to_dict()` is what `--json` prints. A store's own error text never enters a field: it may quote
the memory it failed on; type and status are enough.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class CustodyError(Exception):
    """custody-sync could not do what was asked."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2
    """The command line's exit status: 2 usage, 3 partial, 4 refused, 5 ledger unavailable."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(self._message())

    def _message(self) -> str:
        line = (type(self).__doc__ or "").strip().split("\n\n")[0]
        said = " ".join(line.split()).format_map(_Blank(self.fields))
        left = self.fields.get("left")
        return f"{said} Entries may be left in: {', '.join(left)}." if left and "{left}" not in line else said

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def leaving(self, stores: list[str]) -> Self:
        """Return this error, saying in which stores something may be left of what it undid."""
        return type(self)(**self.fields, left=stores) if stores else self

    def to_dict(self) -> dict[str, Any]:
        """Return code, message and fields, ready for JSON."""
        return {"code": self.code, "message": str(self), **{k: _plain(v) for k, v in self.fields.items()}}


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(cls: type[CustodyError], fields: dict[str, Any]) -> CustodyError:
    return cls(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)


class Transient:
    """Mixin: trying again later may succeed."""


class Terminal:
    """Mixin: trying the same again cannot succeed."""


# --- what the caller got wrong -------------------------------------------------------------


class InvalidInput(CustodyError, Terminal, ValueError):
    """{field}: {problem}."""

    code = "invalid_input"


class TextTooLong(InvalidInput):
    """text: {size} {unit} are more than the {limit} that store {store!r} takes."""

    code = "text_too_long"


class FutureValidity(InvalidInput):
    """valid_from: {valid_from} is more than two minutes ahead; write the fact when it becomes true."""

    code = "future_validity"


class InvalidStore(CustodyError, Terminal, TypeError):
    """store {store!r}: {problem}."""

    code = "invalid_store"


class MissingExtra(CustodyError, Terminal, ImportError):
    """{feature} needs an extra: pip install 'custody-sync[{extra}]'."""

    code = "missing_extra"


class InsideEventLoop(CustodyError, Terminal, RuntimeError):
    """{used} blocks and was called from inside a running event loop; use {instead} there."""

    code = "inside_event_loop"


class ClosedError(CustodyError, Terminal, RuntimeError):
    """{what} is closed."""

    code = "closed"


class ClockSkew(CustodyError, Transient):
    """This clock and the ledger's are {seconds} s apart, more than two minutes; set the clock right first."""

    code = "clock_skew"


class ValidatorFailed(CustodyError, Terminal):
    """Validator {validator} did not pass the fact: {problem}."""

    code = "validator_failed"
    exit_code = 4


# --- what the ledger refuses ---------------------------------------------------------------


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
    """Fact {fact_id} is under a legal hold."""

    code = "on_hold"


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
    """The repair of {external_id} in store {store!r} is already recorded."""

    code = "already_recorded"


class StalePlacement(Refused):
    """The entry in store {store!r} is too old or already removed; the write took too long and has to be made again."""

    code = "stale_placement"


class SharedEntry(Refused):
    """Store {store!r} answered with entry {external_id}, which already stands for fact {fact_id}; two facts cannot
    share one entry, since removing one would take the other."""

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


class SweepRunning(CustodyError, Transient):
    """A sweep by {holder} has been running since {since}; its lease ends at {until}."""

    code = "sweep_running"
    exit_code = 4


class BreakerOpen(CustodyError, Terminal):
    """{planned} removals out of {scanned} scanned entries are too many to start unasked; look at a dry run, then
    pass max_removals={planned} if they are right (a ledger put back from a backup looks like this)."""

    code = "breaker_open"
    exit_code = 4


# --- what went wrong outside ---------------------------------------------------------------


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


class LedgerError(CustodyError):
    """The ledger {name} cannot be used: {problem}."""

    code = "ledger_error"
    exit_code = 5


class LedgerUnavailable(LedgerError, Transient):
    """The ledger did not record the event ({cause}); entries that stores may hold for {fact_id}: {entries}."""

    code = "ledger_unavailable"


class LedgerNotFound(LedgerError, Terminal):
    """No ledger at {name}; create one with `custody-sync init` or Ledger.open(..., create=True)."""

    code = "ledger_not_found"


class LedgerDamaged(LedgerError, Terminal):
    """The ledger {name} is damaged or is not a custody-sync ledger ({cause}); nothing was changed."""

    code = "ledger_damaged"


class LedgerTooNew(LedgerError, Terminal):
    """The ledger {name} has schema version {found}; this custody-sync reads up to {known}. Upgrade custody-sync."""

    code = "ledger_too_new"


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
