"""Getting an event into the ledger, and settling what became of it when the answer was lost.

An unknown outcome is settled by writing, never by reading: a read that does not show the event
proves nothing about a commit that is still on its way. The same event is appended again until
the ledger answers; if that fails for too long, the fact id is claimed by a repair event, and
whoever got the id decides.
"""

from __future__ import annotations

import tenacity

from custody_sync.errors import (
    AlreadyRecorded,
    AssertedId,
    ClosedError,
    InvalidInput,
    LedgerArriving,
    LedgerBusy,
    LedgerError,
    LedgerFull,
    LedgerMoved,
    LedgerReadOnly,
    LedgerTooLarge,
    LedgerUnavailable,
    Refused,
)
from custody_sync.ledger import Assert, Ledger, Repair
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Event, Placement
from custody_sync.runtime import Runtime

STOPPED = (LedgerMoved, LedgerArriving, LedgerTooLarge)
"""The ledger goes on in another place, or has to; asking here again does not change that."""
NOT_COMMITTED = (LedgerFull, LedgerBusy, LedgerReadOnly, *STOPPED)
"""Errors after which the event is certainly not in the ledger."""
DECIDED = (Refused, InvalidInput, ClosedError)
"""Answers that asking again does not change. Any other error, whatever its type, may hide a commit."""
CLAIM_TRIES = 2


async def check_place(ledger: Ledger) -> None:
    """Refuse early where a ledger goes on elsewhere, since its stores are that one's.

    Raises:
        LedgerMoved: it was moved.
        LedgerArriving: the move to it is not complete.
    """
    mark = await ledger.mark()
    if mark is not None:
        raise mark.refusal(ledger.name)


class Recorder:
    """Appends drafts and settles unknown outcomes.

    Args:
        ledger: the ledger.
        runtime: sleep and ids.
        tries: how often an append without an answer is repeated, with growing waits.
    """

    def __init__(self, ledger: Ledger, runtime: Runtime, tries: int) -> None:
        self._ledger = ledger
        self._runtime = runtime
        self._tries = tries

    async def append(self, draft: Draft, placements: tuple[Placement, ...] = ()) -> Event:
        """Append a draft whatever it takes within the deadline.

        Raises:
            Refused, InvalidInput, ClosedError: the ledger did not take it, now or after the outcome was
                settled against it.
            LedgerFull, LedgerBusy, LedgerReadOnly, LedgerTooLarge, LedgerMoved, LedgerArriving: it is
                certainly not recorded.
            LedgerUnavailable: nobody can say; names the entries that stores may hold.
        """
        try:
            return await self._ledger.append(draft)
        except (*DECIDED, *NOT_COMMITTED):
            raise
        except Exception as error:
            cause = error
        try:
            return await self._insist(draft)
        except (ClosedError, *NOT_COMMITTED):
            # The first attempt's outcome is still open, so a later "not this time" settles nothing.
            pass
        except DECIDED:
            raise
        except Exception as error:
            cause = error
        if isinstance(draft, Assert):
            return await self.claim(draft, placements, cause)
        raise self._unavailable(draft, placements, cause) from None

    async def _insist(self, draft: Draft, tries: int = 0) -> Event:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(tries or self._tries),
            wait=tenacity.wait_exponential(multiplier=0.1, max=5),
            retry=tenacity.retry_if_exception(_is_open),
            sleep=self._runtime.sleep,
            reraise=True,
        )
        await self._runtime.sleep(0.05)
        return await retrying(self._ledger.append, draft)

    async def claim(self, draft: Assert, placements: tuple[Placement, ...], cause: BaseException) -> Event:
        """Claim the fact id: lost, and the assert had committed; its event is the answer.

        Raises:
            Unrecorded: won, so the assert can never commit.
            Refused: lost, to another assert of the same id.
            LedgerUnavailable: nobody can say.
        """
        claim = Repair(
            event_id=self._runtime.ids.event_id(),
            fact_id=draft.fact_id,
            actor=draft.actor,
            receipt_id=draft.receipt_id,
            reason="the outcome of its assert was unknown",
        )
        try:
            try:
                await self._insist(claim, CLAIM_TRIES)
            except AssertedId:
                return await self._insist(draft)
            except AlreadyRecorded:
                # A sweep was first with it, which settles it as well.
                pass
        except (Refused, InvalidInput):
            raise
        except Exception:
            raise self._unavailable(draft, placements, cause) from None
        raise Unrecorded(self._unavailable(draft, placements, cause))

    def _unavailable(
        self, draft: Draft, placements: tuple[Placement, ...], cause: BaseException
    ) -> LedgerUnavailable:
        kind = cause.code if isinstance(cause, LedgerError) else type(cause).__name__
        entries = [{"store": p.store, "external_id": p.external_id} for p in placements]
        return LedgerUnavailable(name=self._ledger.name, cause=kind, fact_id=draft.fact_id, entries=entries)


def _is_open(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (*DECIDED, *STOPPED))


class Unrecorded(Exception):  # a signal between two modules, never seen by a caller
    """The id was claimed, so the event is certainly not recorded; carries the error for the caller."""

    def __init__(self, error: LedgerUnavailable) -> None:
        super().__init__(error)
        self.error = error

    def but_only(self, stores: list[str]) -> LedgerUnavailable:
        """Return the error for the caller, naming only entries in stores they may be left in."""
        fields = dict(self.error.fields)
        fields["entries"] = [entry for entry in fields["entries"] if entry["store"] in stores]
        return LedgerUnavailable(**fields)
