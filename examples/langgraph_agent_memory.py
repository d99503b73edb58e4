"""An agent that remembers through a LangGraph store with a ledger under it: one line changes.

Runs offline; a rule takes the place of the model. The nodes know nothing but LangGraph's `BaseStore`. With
the package `langgraph` the same store goes into `graph.compile(store=store)`, and LangMem's tools work on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from custody_sync.faces.langgraph import CustodyStore
from custody_sync.sync import Coordinator
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64


@dataclass
class State:
    """What goes from node to node."""

    user: str
    said: str
    known: list[str] = field(default_factory=list)
    answer: str = ""


def look_up(state: State, store: BaseStore) -> State:
    """Find what is remembered of this user that has to do with what was said."""
    found = store.search(("memories", state.user), query=state.said, limit=3)
    state.known = [str(item.value["text"]) for item in found]
    return state


def answer(state: State, store: BaseStore) -> State:
    """Stand in for a model: repeat what is known."""
    state.answer = "; ".join(state.known) or "I do not know."
    return state


def remember(state: State, store: BaseStore) -> State:
    """Keep `topic: statement`, correct what is known of a topic, and forget what has to be forgotten."""
    verb, _, rest = state.said.partition(" ")
    topic, _, statement = rest.partition(": ")
    if verb == "remember":
        store.put(("memories", state.user), topic, {"text": f"{topic}: {statement}"})
    elif verb == "forget":
        store.delete(("memories", state.user), topic)
    return state


NODES: tuple[Callable[[State, BaseStore], State], ...] = (remember, look_up, answer)


def ask(store: BaseStore, user: str, said: str) -> str:
    """Go once through all nodes."""
    state = State(user, said)
    for node in NODES:
        state = node(state, store)
    print(f"{user}: {said}\n  agent: {state.answer}")
    return state.answer


def main(folder: Path) -> None:
    """Talk to the agent, then show what the ledger has."""
    index = {"dims": DIMENSIONS, "embed": WordEmbedder(DIMENSIONS).many, "fields": ["text"]}
    original = InMemoryStore(index=index)  # type: ignore[arg-type]  # a plain dict will do

    # The line that changes. It was: store = original
    store = CustodyStore.over(original, f"sqlite:///{folder / 'custody.db'}", actor="agent:assistant")
    with store:
        ask(store, "ann", "remember price: the list price is 4200 dollars")
        ask(store, "ann", "remember tea: Ann drinks green tea")
        ask(store, "ann", "remember price: the list price is 3600 dollars")
        assert "4200" not in ask(store, "ann", "what is the list price?")
        assert ask(store, "bob", "what is the list price?") == "I do not know."
        assert "green tea" in ask(store, "ann", "which tea does Ann drink?")
        ask(store, "ann", "forget tea: please")
        assert "green tea" not in ask(store, "ann", "which tea does Ann drink?")

        custody = store.custody
        assert isinstance(custody, Coordinator)
        (card,) = custody.card("memories/ann/price", "item")
        print("\nWhat the ledger has on the price:")
        for link in card.chain:
            print(f"  {link.belief.value:10} {link.fact.text}  (by {link.fact.actor})")
        assert [link.belief.value for link in card.chain] == ["superseded", "believed"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
