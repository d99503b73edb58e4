"""The card of one property: what holds, what was first stated, and everything in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fix_custody import Desk
from fix_ledger import Book, day

from custody_sync import Coordinator
from custody_sync.errors import ClosedError, InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.model import Json, Provenance
from custody_sync.recalled import Belief, Card
from custody_sync.serving import cards_of

PLAN = ("acct:42", "plan")


def told(card: Card) -> list[tuple[Json, str]]:
    """Return each link's value and how it stands."""
    return [(link.fact.value, link.belief.value) for link in card.chain]


def current(card: Card) -> list[Json]:
    """Return the values that hold."""
    return [fact.value for fact in card.current]


async def test_a_card_has_every_chain_of_the_property_in_the_order_it_was_stated(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several chains, claims and retractions; other subjects, predicates and spaces are on others."""
    monkeypatch.setattr("custody_sync.serving.PAGE", 2)
    a = await book.add(*PLAN, "a")
    b = await book.add(*PLAN, "b")
    await book.add("acct:42", "owner", "Ada")
    await book.add("acct:43", "plan", "z")
    c = await book.add(*PLAN, "c", supersedes=a)
    await book.add(*PLAN, "d", supersedes=b, provenance=Provenance.CLAIMED)
    await book.add(*PLAN, "e", space="acme")
    await book.append(book.retract(c))
    acme, org = await cards_of(book.ledger, *PLAN)
    assert (acme.space, told(acme)) == ("acme", [("e", "believed")])
    assert (org.space, org.subject, org.predicate) == ("org", *PLAN)
    assert told(org) == [("a", "believed"), ("b", "believed"), ("c", "retracted"), ("d", "claimed")]
    assert current(org) == ["a", "b"]
    assert org.original == await book.ledger.get(a)
    assert acme.head == org.head == await book.ledger.head()
    assert await cards_of(book.ledger, *PLAN, space="acme") == (acme,)


async def test_a_card_of_an_instant_knows_nothing_later(book: Book) -> None:
    """A space of which nothing had been stated by then has none."""
    a = await book.add(*PLAN, "a", valid_from=day(1))
    first = await book.ledger.head()
    book.later(hours=1)
    await book.add(*PLAN, "b", valid_from=day(10), supersedes=a)
    await book.add(*PLAN, "c", space="acme")
    (card,) = await cards_of(book.ledger, *PLAN, tx_at=first.tx_time)
    assert (told(card), card.head) == ([("a", "believed")], first)
    acme, org = await cards_of(book.ledger, *PLAN, valid_at=day(10) - timedelta(microseconds=1))
    assert (current(acme), current(org)) == (["c"], ["a"])
    assert [current(card) for card in await cards_of(book.ledger, *PLAN, valid_at=day(10))] == [["c"], ["b"]]
    assert await cards_of(book.ledger, *PLAN, tx_at=day(1, month=8)) == ()


async def test_a_card_is_of_one_moment_whatever_is_written_meanwhile(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stated between its questions is on the next one; what has begun by the clock is on this one."""
    await book.add(*PLAN, "a")
    head = await book.ledger.head()
    later = book.later(hours=1)
    links = Ledger.links

    async def after_a_write(self: Ledger, *what: Any, **more: Any) -> Any:
        await book.add(*PLAN, "b")
        return await links(self, *what, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "links", after_a_write)
        (card,) = await cards_of(book.ledger, *PLAN)
    assert (current(card), card.head, card.valid_at) == (["a"], head, later)
    found = await book.ledger.as_of(tx_at=card.head.tx_time, valid_at=card.valid_at)
    assert [fact.value for fact in found] == current(card)
    (card,) = await cards_of(book.ledger, *PLAN)
    assert current(card) == ["a", "b"]


async def test_what_was_forgotten_keeps_its_place_and_nothing_more(book: Book) -> None:
    """Also without its names, as long as the chain has a link that still has them."""
    a = await book.add(*PLAN, "a")
    b = await book.add(*PLAN, "b", supersedes=a, receipt_id="ticket-7")
    await book.append(book.forget(b))
    (card,) = await cards_of(book.ledger, *PLAN)
    assert (told(card), card.current) == ([("a", "superseded"), (None, "forgotten")], ())
    assert card.chain[1].fact.receipt_id == "ticket-7"
    await book.append(book.forget(a, identity=True))
    (card,) = await cards_of(book.ledger, *PLAN)
    assert [link.fact.fact_id for link in card.chain] == [a, b]
    assert card.original is not None
    assert (card.original.subject, card.original.forgotten, card.subject) == ("", True, "acct:42")
    await book.append(book.forget(b, identity=True))
    assert await cards_of(book.ledger, *PLAN) == ()


async def test_a_coordinator_has_the_card_of_what_it_wrote(desk: Desk) -> None:
    """Every link with the receipt that came with it; the stores are not asked."""
    first = await desk.written("silver", receipt_id="ticket-17")
    desk.clock.advance(timedelta(days=50))
    second = await desk.written("gold", receipt_id="ticket-52", supersedes=first)
    calls = {name: len(store.calls) for name, store in desk.stores.items()}
    (card,) = await desk.custody.card(*PLAN)
    assert [fact.fact_id for fact in card.current] == [second]
    assert [(link.fact.receipt_id, link.belief) for link in card.chain] == [
        ("ticket-17", Belief.SUPERSEDED),
        ("ticket-52", Belief.BELIEVED),
    ]
    assert {name: len(store.calls) for name, store in desk.stores.items()} == calls
    assert await desk.custody.card(*PLAN, space="user:7") == ()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("", "plan"), "subject"),
        (("acct:42", ""), "predicate"),
        (("acct\x00", "plan"), "subject"),
        ((7, "plan"), "subject"),
    ],
)
async def test_names_that_are_none_are_refused(desk: Desk, arguments: Any, field: str) -> None:
    """In one sentence that names the argument."""
    with pytest.raises(InvalidInput) as refused:
        await desk.custody.card(*arguments)
    assert refused.value.fields["field"] == field
    with pytest.raises(InvalidInput, match="space"):
        await desk.custody.card(*PLAN, space="")


async def test_a_closed_coordinator_has_no_cards(desk: Desk) -> None:
    """As with everything else it offers."""
    await desk.custody.close()
    with pytest.raises(ClosedError):
        await desk.custody.card(*PLAN)


def test_synchronous_code_has_the_same_cards(desk_url: str) -> None:
    """`Coordinator.card` is `AsyncCoordinator.card`."""
    with Coordinator(desk_url, create=True, stores=[]) as custody:
        written = custody.write(value="gold", subject=PLAN[0], predicate=PLAN[1], space="org", actor="a")
        (card,) = custody.card(*PLAN, space="org")
        assert card.current == (custody.get(written.fact.fact_id),)


@pytest.fixture
def desk_url(tmp_path: Any) -> str:
    """A ledger that is not there yet."""
    return f"sqlite:///{tmp_path / 'sync.db'}"
