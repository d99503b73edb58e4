"""What a coordinator serves: facts that a store's search leads to, and all there is on one property.

The half of the coordinator that an application reads through. It records nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime

from custody_sync.canonical import check_instant, check_name, check_optional, check_text
from custody_sync.errors import ClosedError, InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.model import Capability
from custody_sync.recall import MARK, Keep, Question, Recall, Unlabelled
from custody_sync.recalled import Belief, Budget, Card, Link, RecallResult
from custody_sync.runtime import Runtime
from custody_sync.signals.operations import traced
from custody_sync.stores import Gate

LARGEST_K = 1000
UNLIMITED = Budget()
PAGE = 1000


class AsyncServing:
    """Recalls; `AsyncCoordinator` is one."""

    ledger: Ledger
    _runtime: Runtime
    _gates: Mapping[str, Gate]
    _closed: bool

    @traced("recall")
    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        spaces: Sequence[str] | None = None,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
        include_claimed: bool = False,
        with_history: bool = False,
        store: str | None = None,
        unlabelled: Unlabelled = "drop",
        budget: Budget | None = None,
        keep: Keep | None = None,
    ) -> RecallResult:
        """Search a store and return only what the ledger believes, with the ledger's texts.

        The store is asked first and the ledger after it answered, so what was forgotten or superseded
        before this began is not served, whatever the store's index still has. A hit on any link of a
        chain leads to the link that is believed, once. The store is asked for more until there are `k`
        facts or it has no more.

        Args:
            query: what the store searches for.
            k: at most so many facts, up to 1,000.
            spaces: only facts of these spaces, as the ledger has them; None is all. In a store that takes no
                labels what was adopted there is only looked for where others do not make up `k`.
            valid_at: what was true then; an aware instant, now by default.
            tx_at: what the ledger knew then; an aware instant, now by default.
            include_claimed: also adopted facts that nobody has confirmed.
            with_history: each fact with the chain of those it corrected; claims that nobody ever confirmed
                are in it only with `include_claimed`.
            store: which store to search; the first that can be searched by default.
            unlabelled: entries that the ledger has no fact for are dropped and counted, shown apart, or
                refused. In which space one belongs nobody knows.
            budget: limits of characters and time.
            keep: leaves out facts for which it returns False; called once a fact and answer of the store.
                A plain function, not an asynchronous one.

        Raises:
            InvalidInput: an argument, or no store can be searched.
            StoreError: the store did not answer.
            UnlabelledEntries: with `unlabelled="refuse"`.
        """
        self._check_open()
        question = Question(
            query=_read_query(query),
            k=_read_k(k),
            spaces=_read_spaces(spaces),
            valid_at=None if valid_at is None else check_instant(valid_at, "valid_at"),
            tx_at=None if tx_at is None else check_instant(tx_at, "tx_at"),
            include_claimed=check_flag(include_claimed, "include_claimed"),
            with_history=check_flag(with_history, "with_history"),
            unlabelled=_read_policy(unlabelled),
            budget=_read_budget(budget),
            keep=_read_keep(keep),
        )
        return await Recall(self.ledger, self._searched(store), question).run()

    @traced("card")
    async def card(
        self,
        subject: str,
        predicate: str,
        *,
        space: str | None = None,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
    ) -> tuple[Card, ...]:
        """Return what is believed of one property, what was first stated, and everything in between.

        One card a space, in order of space; none where nothing was stated. All are of one moment. A fact
        of which an erasure took the identity is on a card only as a link of a chain that has others.

        Args:
            subject: what it is about.
            predicate: which property.
            space: only there; every space by default.
            valid_at: what was true then.
            tx_at: what the ledger knew then.
        """
        self._check_open()
        return await cards_of(self.ledger, subject, predicate, space=space, valid_at=valid_at, tx_at=tx_at)

    def _searched(self, store: str | None) -> Gate:
        check_optional(store, "store")
        can = [gate for gate in self._gates.values() if gate.can(Capability.SEARCH)]
        if store is None:
            if not can:
                known = ", ".join(self._gates)
                problem = f"none of {known} can be searched" if known else "none is configured to be searched"
                raise InvalidInput(field="store", problem=problem)
            return can[0]
        for gate in can:
            if gate.name == store:
                return gate
        known = ", ".join(gate.name for gate in can) or "none"
        problem = "cannot be searched" if store in self._gates else "is no configured store"
        raise InvalidInput(field="store", problem=f"{store!r} {problem}; {known} can be searched")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(what="the coordinator")


def check_fixed(custody: AsyncServing, *, k: int, budget: Budget | None, store: str | None) -> None:
    """Refuse what every recall with it would be refused for, before the first one is made."""
    _read_k(k)
    _read_budget(budget)
    custody._searched(store)


async def cards_of(
    ledger: Ledger,
    subject: str,
    predicate: str,
    *,
    space: str | None = None,
    valid_at: datetime | None = None,
    tx_at: datetime | None = None,
) -> tuple[Card, ...]:
    """Return the cards of one property as a ledger has them; see `AsyncCoordinator.card`.

    All is as of the head that the first question was answered at, whatever is written meanwhile.
    """
    check_name(subject, "subject")
    check_name(predicate, "predicate")
    check_optional(space, "space")
    spaces: dict[str, str] = {}
    after: int | None = None
    while True:
        page = await ledger.accounts(space=space, subject=subject, limit=PAGE, after=after)
        if tx_at is None and (head := page.head.tx_time) is not None:
            tx_at, valid_at = head, valid_at or max(head, ledger.now())
        spaces |= {account.fact_id: account.space for account in page if account.predicate == predicate}
        if (after := page.next) is None:
            break
    at, chains = await ledger.links(list(spaces), valid_at=valid_at, tx_at=tx_at)
    links: dict[str, dict[str, Link]] = {where: {} for where in sorted(spaces.values())}
    for where, chain in zip(spaces.values(), chains, strict=True):
        # Every fact of a chain comes with the whole of it; once is enough.
        if chain and chain[0].fact.fact_id not in links[where]:
            links[where] |= {link.fact.fact_id: link for link in chain}
    return tuple(
        Card(
            space=where,
            subject=subject,
            predicate=predicate,
            current=tuple(link.fact for link in chain if link.belief is Belief.BELIEVED),
            original=chain[0].fact,
            chain=chain,
            valid_at=at.valid_at,
            head=at.head,
        )
        for where, found in links.items()
        if (chain := tuple(sorted(found.values(), key=lambda link: link.fact.seq or 0)))
    )


def _read_query(query: object) -> str:
    text = check_text(query, "query")
    if not text.strip():
        raise InvalidInput(field="query", problem="must not be empty")
    return text


def _read_k(k: object) -> int:
    if type(k) is not int or not 1 <= k <= LARGEST_K:
        raise InvalidInput(field="k", problem=f"must be a whole number from 1 to {LARGEST_K}")
    return k


def _read_spaces(spaces: object) -> tuple[str, ...] | None:
    if spaces is None:
        return None
    if isinstance(spaces, str) or not isinstance(spaces, Sequence) or not spaces:
        raise InvalidInput(field="spaces", problem="must be a list of spaces, or None for all")
    return tuple(dict.fromkeys(check_name(space, "spaces") for space in spaces))


def _read_policy(policy: Unlabelled) -> Unlabelled:
    if policy not in ("drop", "show", "refuse"):
        raise InvalidInput(field="unlabelled", problem="must be 'drop', 'show' or 'refuse'")
    return policy


def _read_budget(budget: Budget | None) -> Budget:
    if budget is None:
        return UNLIMITED
    if not isinstance(budget, Budget):
        raise InvalidInput(field="budget", problem=f"must be a Budget, not {type(budget).__name__}")
    # Of a text that is cut to the mark alone nothing is left.
    for name, least in (("characters", 1), ("per_fact", 1 + len(MARK))):
        size = getattr(budget, name)
        if size is not None and (type(size) is not int or size < least):
            raise InvalidInput(field=f"budget.{name}", problem=f"must be a whole number from {least} on")
    if budget.seconds is not None and not _are_seconds(budget.seconds):
        raise InvalidInput(field="budget.seconds", problem="must be seconds above zero")
    return budget


def _are_seconds(said: object) -> bool:
    if not isinstance(said, int | float) or isinstance(said, bool):
        return False
    try:
        return 0 < float(said) < float("inf")
    except OverflowError:
        return False


def check_flag(flag: object, field: str) -> bool:
    """Return a flag; a text such as "false" counts as true, and would do what it was meant to prevent."""
    if not isinstance(flag, bool):
        raise InvalidInput(field=field, problem=f"must be True or False, not {type(flag).__name__}")
    return flag


def _read_keep(keep: Keep | None) -> Keep | None:
    if keep is None:
        return None
    if not callable(keep):
        raise InvalidInput(field="keep", problem=f"must be callable, not {type(keep).__name__}")
    # What an asynchronous function returns would count as a yes.
    for function in (keep, type(keep).__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInput(field="keep", problem="must be a plain function, not an asynchronous one")
    return keep


__all__ = ["AsyncServing", "cards_of", "check_fixed", "check_flag"]
