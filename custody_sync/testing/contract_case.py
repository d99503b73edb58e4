"""What a contract rule works with: a fresh store, the adapter's hooks, and facts nobody else has."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from custody_sync.errors import CustodyError, InvalidInput
from custody_sync.model import Capability, Entry, Fact, Hit, Json, Label, Level, Provenance, Support
from custody_sync.ports import capabilities
from custody_sync.runtime import SystemIds

T = TypeVar("T")
_IDS = SystemIds()


class ContractViolation(CustodyError, AssertionError):
    """Rule {rule_id} is broken: expected {expected}; got {got}."""

    code = "contract_violation"

    def __init__(self, rule_id: str, expected: str, got: str) -> None:
        super().__init__(rule_id=rule_id, expected=expected, got=got)


class NotApplicable(CustodyError):
    """{reason}."""

    code = "not_applicable"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


class Trouble(StrEnum):
    """What a store's service does wrong, as the services behind adapters were seen to do."""

    LAG = "lag"
    """What is deleted is still served by the store's search for the next so many questions."""
    SEARCH_FAILS = "search_fails"
    """The next so many searches are answered with an error."""
    THROTTLED = "throttled"
    """The next so many requests are turned away with 429 and Retry-After; nothing is done."""
    FAILS_AFTER = "fails_after"
    """The next so many writes are committed and answered with 500."""
    LOST_REPLY = "lost_reply"
    """The next so many writes are committed, and the connection ends before the answer."""
    RESET = "reset"
    """The next so many requests meet a connection that is reset; nothing is done."""
    REPEATS = "repeats"
    """From now on each page of a listing begins with the last row of the page before."""
    SKIPS = "skips"
    """The next so many listings leave out the first row of their second page."""
    LYING_DELETE = "lying_delete"
    """From now on a delete says yes and does nothing."""
    PENDING = "pending"
    """From now on a write is accepted and never carried out: PENDING, or an open task, for ever."""
    EMPTY_BODY = "empty_body"
    """The next so many writes and deletes are carried out and answered with 204 and no body."""


class StoreHooks:
    """What an adapter's fixtures may offer beside a fresh store; override what applies.

    A rule whose hook is missing is reported as not applicable, never as passed.
    """

    own_keys: bool = True
    """The store lets us choose its keys, so a retried put adds nothing; False where it makes up ids."""
    bulk: int = 130
    """How many entries make a listing longer than one page of the store."""
    crowd: int = 301
    """How many equal texts crowd the search."""
    many: int = 1234
    """How many entries are listed and swept in a full store; the report names the size."""
    workers: int = 16
    """How many calls run at once where a rule needs many."""
    questions: int = 8
    """How often an index that may lag is asked before its answer counts."""
    pause: float = 0.02
    """Seconds before the second question; it grows with each."""
    rule_timeout: float = 120.0
    """Seconds that one rule may take."""
    versions: Mapping[str, str] = MappingProxyType({})
    """What was tried, client and server by name, for the report."""

    async def break_delete(self, store: Any) -> None:
        """Make deletes succeed without effect from now on."""
        raise NotApplicable("the fixture has no break_delete()")

    async def break_search(self, store: Any) -> None:
        """Make the store's own search fail from now on."""
        raise NotApplicable("the fixture has no break_search()")

    async def put_unlabelled(self, store: Any, text: str) -> str:
        """Put a text past custody, as another program would, and return its external id."""
        raise NotApplicable("the fixture has no put_unlabelled()")

    async def make_trouble(self, store: Any, trouble: Trouble, times: float = 1) -> None:
        """Let the service behind the store misbehave from now on; `times` may be `math.inf`."""
        raise NotApplicable(f"the fixture cannot make {trouble.value}")

    async def reopened(self, store: Any) -> Any:
        """Return another adapter over the same service, as a process that starts later makes it."""
        raise NotApplicable("the fixture has no reopened()")

    async def value_of(self, store: Any, entry: Entry) -> object | None:
        """Return the fact's value as the store holds it; None where it holds none."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A put that the store confirmed."""

    fact: Fact
    label: Label
    ids: tuple[str, ...]
    entries: tuple[Entry, ...]
    """How the coordinator addresses them while it knows the text."""

    @property
    def blind(self) -> tuple[Entry, ...]:
        """How they are addressed once the text is erased."""
        return tuple(replace(entry, text=None) for entry in self.entries)


class Case:
    """One rule's look at one fresh store.

    Every fact carries a token that no other case uses, so a rule also holds in a store that
    is not empty.
    """

    def __init__(self, rule_id: str, store: Any, hooks: StoreHooks) -> None:
        self.rule_id = rule_id
        self.store = store
        self.hooks = hooks
        self.token = secrets.token_hex(6)
        self.ledger_id = f"contract-{self.token}"
        self.space = f"user:{self.token}"
        self.supports: dict[Capability, Support] = capabilities(store)
        self.notes: list[str] = []

    # --- judging ---------------------------------------------------------------------------

    def expect(self, holds: bool, expected: str, got: object) -> None:
        """Raise a violation unless it holds; say what was expected, and hand over what was got."""
        if not holds:
            raise ContractViolation(self.rule_id, expected, got if isinstance(got, str) else repr(got))

    def note(self, sentence: str) -> None:
        """Say in the report on what scale the rule was tried, or what it had to leave open."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def offers(self, capability: Capability) -> bool:
        """Return True if the store has the capability, at least in part."""
        return self.supports[capability].level is not Level.NONE

    def needs(self, capability: Capability) -> None:
        """Leave the rule out, with the store's own reason, if it lacks the capability."""
        if not self.offers(capability):
            raise NotApplicable(f"no {capability.value}: {self.supports[capability].reason}")

    @contextmanager
    def partly(self, capability: Capability) -> Iterator[None]:
        """Turn a violation into the store's own reason if it declares to support the capability in part."""
        try:
            yield
        except ContractViolation:
            if self.supports[capability].level is not Level.PARTIAL:
                raise
            reason = f"{capability.value} is partial: {self.supports[capability].reason}"
            raise NotApplicable(reason) from None

    async def eventually(self, ask: Callable[[], Awaitable[T]], good: Callable[[T], bool]) -> T:
        """Ask until the answer is good or the hooks' patience ends, and return the last answer."""
        answer = await ask()
        for n in range(1, self.hooks.questions):
            if good(answer):
                break
            await asyncio.sleep(self.hooks.pause * n)
            answer = await ask()
        return answer

    # --- making ----------------------------------------------------------------------------

    def fact(
        self, text: str | None = None, *, space: str | None = None, value: Json = None, actor: str = ""
    ) -> Fact:
        """Return a new fact, by default one free text with a token of its own."""
        now = datetime.now(UTC)
        said = text if text is not None else f"note {secrets.token_hex(4)} of case {self.token}"
        where = self.space if space is None else space
        return Fact(
            fact_id=_IDS.fact_id(now),
            space=where,
            subject=where,
            predicate="memory",
            value=said if value is None else value,
            text=said,
            actor=actor or "agent:contract",
            provenance=Provenance.ATTESTED,
            valid_from=now,
        )

    def label(self, fact: Fact, *, stored_at: datetime | None = None, ledger_id: str | None = None) -> Label:
        """Return a label of a new generation of the fact."""
        return Label(
            ledger_id=self.ledger_id if ledger_id is None else ledger_id,
            fact_id=fact.fact_id,
            space=fact.space,
            stored_at=stored_at if stored_at is not None else datetime.now(UTC),
            generation=_IDS.generation(),
            actor=fact.actor,
            provenance=fact.provenance,
            valid_from=fact.valid_from,
        )

    async def put(self, fact: Fact | None = None, label: Label | None = None) -> Put:
        """Put a fact and return what the coordinator would know of it."""
        said = fact if fact is not None else self.fact()
        tag = label if label is not None else self.label(said)
        return self.confirmed(said, tag, await self.store.put(said, tag))

    def confirmed(self, fact: Fact, label: Label, ids: Sequence[str]) -> Put:
        """Return a confirmed put with its entries addressed as the ledger records them."""
        scope_of: Any = getattr(self.store, "scope_of", None)
        scope: str | None = scope_of(fact) if scope_of is not None else None
        entries = tuple(
            Entry(
                store=self.store.name,
                external_id=external_id,
                fact_id=fact.fact_id,
                scope=scope,
                stored_at=label.stored_at,
                text=fact.text,
            )
            for external_id in ids
        )
        return Put(fact=fact, label=label, ids=tuple(ids), entries=entries)

    async def put_all(self, facts: Sequence[Fact]) -> list[Put]:
        """Put many facts, some at a time."""
        return await self.some_at_a_time([partial(self.put, fact) for fact in facts])

    async def delete(self, *puts: Put) -> None:
        """Delete every entry of these puts, some at a time."""
        entries = [entry for put in puts for entry in put.entries]
        await self.some_at_a_time([partial(self.store.delete, entry) for entry in entries])

    async def some_at_a_time(self, work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run the work by a few workers, and return the answers in order."""
        answers: dict[int, T] = {}
        jobs: Iterator[tuple[int, Callable[[], Awaitable[T]]]] = iter(enumerate(work))

        async def worker() -> None:
            for n, job in jobs:
                answers[n] = await job()

        await asyncio.gather(*(worker() for _ in range(min(self.hooks.workers, len(work)))))
        return [answers[n] for n in range(len(work))]

    # --- looking ---------------------------------------------------------------------------

    async def held(self, put: Put) -> list[Entry]:
        """Return the fact's entries by find, else by a full listing."""
        if self.offers(Capability.FIND):
            found: list[Entry] = await self.store.find(put.fact.fact_id)
            return found
        if self.offers(Capability.LIST_ENTRIES):
            return [entry for entry in await self.listed() if entry.fact_id == put.fact.fact_id]
        raise NotApplicable("neither find nor list_entries shows what is held")

    async def listed(self) -> list[Entry]:
        """Return one full listing."""
        async with aclosing(self.store.list_entries()) as entries:
            return [entry async for entry in entries]

    async def search(self, query: str, k: int = 10, spaces: Sequence[str] | None = None) -> list[Hit]:
        """Return the store's own hits."""
        hits: list[Hit] = await self.store.search(query, k, spaces)
        return hits

    async def served(self, put: Put, *, k: int = 10, spaces: Sequence[str] | None = None) -> list[Entry]:
        """Ask the search for the fact's own text until it is served, and return the fact's hits."""

        async def ask() -> list[Entry]:
            hits = await self.search(put.fact.text or "", k, spaces)
            return [hit.entry for hit in hits if hit.entry.fact_id == put.fact.fact_id]

        return await self.eventually(ask, bool)

    async def readings(self, put: Put) -> dict[str, list[Entry]]:
        """Return the fact's entries by every way the store offers."""
        found: dict[str, list[Entry]] = {}
        if self.offers(Capability.FIND):
            found["find"] = await self.store.find(put.fact.fact_id)
        if self.offers(Capability.LIST_ENTRIES):
            found["list_entries"] = [e for e in await self.listed() if e.fact_id == put.fact.fact_id]
            if (texts := getattr(self.store, "list_with_text", None)) is not None:
                found["list_with_text"] = [e async for e in texts() if e.fact_id == put.fact.fact_id]
        if self.offers(Capability.SEARCH):
            found["search"] = await self.served(put, k=50)
        if not found:
            raise NotApplicable("the store shows nothing of what it holds")
        return found

    async def said_gone(self, entry: Entry) -> bool | str:
        """Ask once whether an entry is gone; an error counts as its type's name, never as gone."""
        try:
            return bool(await self.store.verify_deleted(entry))
        except CustodyError as problem:
            return type(problem).__name__

    async def proved_gone(self, entry: Entry) -> bool | str:
        """Ask until the store says gone, or its patience with us ends."""
        return await self.eventually(lambda: self.said_gone(entry), lambda answer: answer is True)


Check: TypeAlias = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One promise of an adapter under a stable id."""

    rule_id: str
    check: Check

    @property
    def name(self) -> str:
        """The function's name, for a test's name."""
        return getattr(self.check, "__name__", self.rule_id)

    @property
    def title(self) -> str:
        """The promise in one sentence."""
        return (self.check.__doc__ or "").strip().splitlines()[0]

    async def run(self, store: Any, hooks: StoreHooks) -> tuple[str, ...]:
        """Try the rule on a fresh store, and return what it noted on the way.

        Raises:
            ContractViolation: The store breaks the rule, or did not answer in time.
            NotApplicable: The store honestly does not offer what the rule is about.
        """
        case = Case(self.rule_id, store, hooks)
        try:
            async with asyncio.timeout(hooks.rule_timeout):
                await self.check(case)
                return tuple(case.notes)
        except TimeoutError:
            raise ContractViolation(
                self.rule_id, f"an answer within {hooks.rule_timeout:g} s", "no answer, or a TimeoutError"
            ) from None


class RuleBook(list[Rule]):
    """Rules in the order of their ids."""

    def rule(self, rule_id: str) -> Callable[[Check], Check]:
        """Enter a function under an id; an id is given once and never again."""
        if any(known.rule_id == rule_id for known in self):
            raise InvalidInput(field="rule_id", problem=f"{rule_id} is taken")

        def enter(check: Check) -> Check:
            self.append(Rule(rule_id, check))
            return check

        return enter
