"""One entry of a store: deleting it, and asking until the store's own search finds it no more.

Nothing is recorded here; what an answer means for the ledger is `removal`'s to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import tenacity

from custody_sync.errors import CustodyError, NoProof, StoreThrottled, Transient
from custody_sync.ledger import Ledger
from custody_sync.model import Capability, Entry, Outcome
from custody_sync.ports import ANOTHER_LEDGER, NO_LABEL, NO_TEXT
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

NOT_OURS = {
    ANOTHER_LEDGER: "its label names another ledger",
    NO_LABEL: "what its id holds has no label and is not known to be ours; look in the store itself",
}
"""What is said of an entry that a removal leaves alone, by the cause that its store gives."""
PROVES_NOTHING = "its answer proves nothing"
CANNOT_PROVE = "it cannot prove an absence"
STRIPPED = "it has no label any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long a store is asked whether an entry is gone.

    The waits grow by `factor`; the defaults ask six times within about nine seconds, since an
    index may lag behind an acknowledged delete.
    """

    questions: int = 6
    first_wait: float = 0.15
    factor: float = 2.4
    total: float = 10.0
    deletes: int = 3
    no_proofs: int = 3
    """After so many answers that decide nothing no further one is waited for. An index that lags may give
    one or two; most of them, such as a search too crowded to show an absence, do not pass with time."""


class Prover:
    """Deletes entries and proves that they are gone.

    Args:
        ledger: knows the texts of facts, and whose labels are ours.
        runtime: sleep.
        patience: of deletes and questions.
    """

    def __init__(self, ledger: Ledger, runtime: Runtime, patience: Patience) -> None:
        self._ledger = ledger
        self._runtime = runtime
        self._patience = patience

    async def take_away(self, gate: Gate, entry: Entry, *, once: bool = False) -> tuple[Outcome, str]:
        """Delete an entry and ask until it is gone; a failed delete whose entry is gone counts as done.

        With `once` there is one delete and one question, whatever comes of them.
        """
        entry = self._as_ours(entry)
        failure: CustodyError | None = None
        try:
            await (gate.delete(entry) if once else self._delete(gate, entry))
        except CustodyError as error:
            failure = error
        outcome, detail = await self.ask(gate, entry, once=once or failure is not None)
        if failure is not None and outcome not in (Outcome.VERIFIED, Outcome.FAILED):
            return Outcome.FAILED, f"delete failed ({describe(failure)})"
        return outcome, detail

    async def _delete(self, gate: Gate, entry: Entry) -> None:
        patience = self._patience
        try:
            # Setting up to retry takes as long as a delete does, and most need none.
            await gate.delete(entry)
            return
        except CustodyError as error:
            if not _may_pass_soon(error) or patience.deletes < 2:
                raise
        await self._runtime.sleep(patience.first_wait)
        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(patience.deletes - 1),
            wait=tenacity.wait_exponential(multiplier=patience.first_wait * 2),
            retry=tenacity.retry_if_exception(_may_pass_soon),
            sleep=self._runtime.sleep,
            reraise=True,
        ):
            with attempt:
                await gate.delete(entry)

    async def ask(self, gate: Gate, entry: Entry, *, once: bool = False) -> tuple[Outcome, str]:
        """Ask a store whether an entry is gone; only its own clear answer is `verified`."""
        if not gate.can(Capability.VERIFY_DELETED):
            return Outcome.UNVERIFIED, f"{CANNOT_PROVE} ({gate.supports[Capability.VERIFY_DELETED].reason})"
        entry = self._as_ours(entry)
        answers = [(Outcome.UNVERIFIED, "no answer in time")]

        async def question() -> tuple[Outcome, str]:
            answers.append(await self._question(gate, entry))
            return answers[-1]

        def may_change(answer: tuple[Outcome, str]) -> bool:
            if answer[0] in (Outcome.VERIFIED, Outcome.FAILED) or answer[1] == STRIPPED:
                return False
            decided_nothing = [detail for _, detail in answers if detail.startswith(PROVES_NOTHING)]
            return len(decided_nothing) < self._patience.no_proofs

        try:
            async with asyncio.timeout(self._patience.total):
                if may_change(await question()) and not once:
                    await self._ask_again(question, may_change)
        except TimeoutError:
            return answers[-1]
        return answers[-1]

    async def _ask_again(
        self,
        question: Callable[[], Awaitable[tuple[Outcome, str]]],
        may_change: Callable[[tuple[Outcome, str]], bool],
    ) -> None:
        patience = self._patience
        if patience.questions < 2:
            return
        await self._runtime.sleep(patience.first_wait)
        await tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(patience.questions - 1),
            wait=tenacity.wait_exponential(
                multiplier=patience.first_wait * patience.factor, exp_base=patience.factor
            ),
            retry=tenacity.retry_if_result(may_change),
            retry_error_callback=lambda _: None,
            sleep=self._runtime.sleep,
        )(question)

    async def _question(self, gate: Gate, entry: Entry) -> tuple[Outcome, str]:
        try:
            gone = await gate.is_gone(entry)
        except NoProof as error:
            cause = str(error.fields["cause"])
            if cause in (NO_LABEL, NO_TEXT) and entry.text is None:
                # Only its text tells whether it is the entry that was adopted, or finds it at all.
                with contextlib.suppress(CustodyError):
                    if was := await self._text_of(entry.fact_id or ""):
                        outcome, detail = await self._question(gate, replace(entry, text=was))
                        stripped = cause == NO_LABEL and outcome is Outcome.STILL_INDEXED
                        return outcome, STRIPPED if stripped else detail
            if cause in NOT_OURS:
                return Outcome.FAILED, NOT_OURS[cause]
            return Outcome.UNVERIFIED, f"{PROVES_NOTHING} ({describe(error)})"
        except CustodyError as error:
            return Outcome.UNVERIFIED, f"cannot be asked ({describe(error)})"
        return (Outcome.VERIFIED, "") if gone else (Outcome.STILL_INDEXED, "")

    async def _text_of(self, fact_id: str) -> str | None:
        """Return a fact's text; None once it is forgotten."""
        fact = await self._ledger.get(fact_id)
        return fact.text if fact is not None else None

    def _as_ours(self, entry: Entry) -> Entry:
        """Name this ledger: what another one labelled is not ours, whatever its id is on record as."""
        return replace(entry, ledger_id=self._ledger.ledger_id)


def _may_pass_soon(error: BaseException) -> bool:
    # A store that throttles was waited for as long as the deadline allows, and said that it takes longer.
    return isinstance(error, Transient) and not isinstance(error, StoreThrottled)


__all__ = [
    "CANNOT_PROVE",
    "NOT_OURS",
    "PROVES_NOTHING",
    "STRIPPED",
    "Patience",
    "Prover",
]
