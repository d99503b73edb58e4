"""The story that every peer is told, what its caller may rely on afterwards, and who is held to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from _faults_wire import Died, Wire


class Verb(StrEnum):
    """What a caller asks for."""

    PUT = "put"
    CORRECT = "correct"
    DELETE = "delete"
    DELETE_PERSON = "delete person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of the story.

    Args:
        verb: what is asked for.
        person: whose memory it is about.
        key: which one; none for all of a person's.
        text: what it says from now on.
    """

    verb: Verb
    person: str
    key: str = ""
    text: str = ""


STORY = (
    Step(verb=Verb.PUT, person="ann", key="ann-home", text="Ann lives at the harbour"),
    Step(verb=Verb.PUT, person="ann", key="ann-work", text="Ann repairs clocks for a living"),
    Step(verb=Verb.PUT, person="bob", key="bob-diet", text="Bob eats no fish"),
    Step(verb=Verb.PUT, person="bob", key="bob-door", text="Bob keeps the door code 4711"),
    Step(verb=Verb.PUT, person="cleo", key="cleo-plan", text="Cleo pays for the small plan"),
    Step(verb=Verb.CORRECT, person="ann", key="ann-home", text="Ann moved to the old mill"),
    Step(verb=Verb.CORRECT, person="cleo", key="cleo-plan", text="Cleo pays for the large plan"),
    Step(verb=Verb.DELETE, person="bob", key="bob-door"),
    Step(verb=Verb.DELETE_PERSON, person="ann"),
)
KEY_OF = {step.text: step.key for step in STORY if step.text}
PERSON_OF = {step.key: step.person for step in STORY if step.key}


class Peer(Protocol):
    """One way of keeping memories. Each verb returns whether it says that all is done, or raises."""

    async def put(self, step: Step) -> bool:
        """Keep a memory."""

    async def correct(self, step: Step) -> bool:
        """Replace what a memory says."""

    async def delete(self, step: Step) -> bool:
        """Delete a memory."""

    async def delete_person(self, step: Step) -> bool:
        """Delete all memories of a person."""

    async def search(self, person: str, text: str) -> list[str]:
        """Return the texts that its users get."""

    async def restart(self) -> None:
        """Begin anew after the process died; what was kept outside of it is there."""

    async def recover(self, failed: Sequence[Step]) -> list[Step]:
        """Do what its documentation has for afterwards, with what a caller knows to have failed.

        Returns what of it was acknowledged this time.
        """

    def held(self) -> Mapping[str, list[str]]:
        """Return what lies in each store, past the peer and past the wire."""

    async def close(self) -> None:
        """Let go of everything."""


@dataclass(slots=True)
class Promise:
    """What the caller may rely on about one memory."""

    may_be: set[str | None] = field(default_factory=lambda: {None})
    """What it may say now, None for nothing at all; one thing where the answer was clear."""
    before: set[str] = field(default_factory=set)
    """What was replaced."""

    def settle(self, text: str | None) -> None:
        """Take a clear answer."""
        self.before |= {old for old in self.may_be if old is not None and old != text}
        self.may_be = {text}

    def doubt(self, text: str | None) -> None:
        """Take no answer, or an error: it may have happened or not."""
        self.may_be.add(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one run came to.

    Args:
        lied: operations that said that all was done while a store said otherwise, at that moment.
        before: what was wrong when the story was over, by kind.
        after: what was wrong after one recovery.
    """

    lied: int
    before: Mapping[str, int]
    after: Mapping[str, int]


class Caller:
    """Tells a peer the story, and remembers what it answered.

    Args:
        peer: the peer.
        wire: what the peer's calls go over.
    """

    def __init__(self, peer: Peer, wire: Wire) -> None:
        self._peer, self._wire = peer, wire
        self._promises = {key: Promise() for key in PERSON_OF}
        self._failed: list[Step] = []
        self._lied = 0

    async def tell(self) -> Verdict:
        """Tell all of it, let the fault end, look, let the peer recover, and look again."""
        for number, step in enumerate(STORY, 1):
            await self._tell(number, step)
        await self._wire.settle()
        before = await self._wrong()
        for step in await self._peer.recover(self._failed):
            self._note(step, is_clear=True)
        return Verdict(lied=self._lied, before=before, after=await self._wrong())

    async def _tell(self, number: int, step: Step) -> None:
        self._wire.operation = number
        says_all_done = False
        with suppress(Died, Exception):
            says_all_done = await ask(self._peer, step)
        self._wire.operation = 0
        if self._wire.is_dead:
            # Whatever was returned or raised in a process that is dead, nobody heard it.
            says_all_done = False
            self._wire.revive()
            await self._peer.restart()
        elif not says_all_done:
            self._failed.append(step)
        self._note(step, is_clear=says_all_done)
        if says_all_done:
            # What is overtaken by a clear answer is not done again.
            self._failed = [old for old in self._failed if not set(_keys(old)) <= set(_keys(step))]
            self._lied += not await self._is_so(step)

    def _note(self, step: Step, *, is_clear: bool) -> None:
        for key in _keys(step):
            text = step.text or None
            promise = self._promises[key]
            promise.settle(text) if is_clear else promise.doubt(text)

    async def _is_so(self, step: Step) -> bool:
        """Tell whether what was just said to be done is.

        What was put is in every store, what was replaced is not served, what was deleted is in no store.
        """
        held = self._peer.held().values()
        if not step.text:
            return not any(KEY_OF.get(text) in _keys(step) for texts in held for text in texts)
        is_stale = await self._is_served(step.key, self._promises[step.key])
        return all(step.text in texts for texts in held) and not is_stale

    async def _wrong(self) -> Counter[str]:
        """Count, by kind, the memories that are not as the caller may rely on."""
        found: Counter[str] = Counter()
        held = self._peer.held()
        for key, promise in self._promises.items():
            texts = {name: [t for t in in_store if KEY_OF.get(t) == key] for name, in_store in held.items()}
            kind = wrong_with(promise, texts)
            if kind in ("", "stray") and await self._is_served(key, promise):
                kind = "stale"
            found.update([kind] if kind else [])
        return found

    async def _is_served(self, key: str, promise: Promise) -> bool:
        """Tell whether the peer's own search still gives what was replaced by something else."""
        if promise.may_be == {None}:
            return False
        gone = promise.before - promise.may_be
        return any([text in await self._peer.search(PERSON_OF[key], text) for text in sorted(gone)])


def wrong_with(promise: Promise, texts: Mapping[str, Sequence[str]]) -> str:
    """Name what is wrong with what the stores hold of one memory, the worst first; nothing if all is well.

    * `lost`: it was acknowledged, and a store does not hold it.
    * `kept`: its deletion was acknowledged, and a store holds it.
    * `stale` (found by asking): what was replaced is still served.
    * `stray`: a store holds something that nobody stands behind, or one thing twice, or the stores differ.
    """
    sets = [set(held) for held in texts.values()]
    if None not in promise.may_be and any(not held & promise.may_be for held in sets):
        return "lost"
    if promise.may_be == {None} and any(sets):
        return "kept" if promise.before else "stray"
    fits = all(len(held) <= 1 and set(held) <= promise.may_be for held in texts.values())
    return "" if fits and all(held == sets[0] for held in sets) else "stray"


def _keys(step: Step) -> list[str]:
    return [step.key] if step.key else [key for key, person in PERSON_OF.items() if person == step.person]


async def ask(peer: Peer, step: Step) -> bool:
    """Have a peer do one step."""
    verbs = {
        Verb.PUT: peer.put,
        Verb.CORRECT: peer.correct,
        Verb.DELETE: peer.delete,
        Verb.DELETE_PERSON: peer.delete_person,
    }
    return await verbs[step.verb](step)


async def again(peer: Peer, failed: Sequence[Step]) -> list[Step]:
    """Do again what failed, once, as any caller would, and return what was acknowledged."""
    done = []
    for step in failed:
        # An error is one that the caller knows already; what is left is counted in the stores.
        with suppress(Exception):
            await ask(peer, step)
            done.append(step)
    return done
