"""Who asks a ledger at the same time shares a question, and nobody pays for a neighbour."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from custody_sync.errors import LedgerDamaged, LedgerUnreachable
from custody_sync.gathering import Gathering

AWAY = LedgerUnreachable(name="custody.db", cause="it is away")
DAMAGED = LedgerDamaged(name="custody.db", cause="13")


class Asked:
    """Doubles numbers, cannot read 13, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.ended = 0
        self.away = False

    async def __call__(self, numbers: Sequence[int]) -> dict[int, int]:
        """Answer about all of them, or fail for all of them."""
        self.calls.append(list(numbers))
        self.begun.put_nowait(None)
        try:
            await self.go_on.wait()
        finally:
            for _ in range(5):
                # A connection is not given back at once.
                await asyncio.sleep(0)
            self.ended += 1
        if self.away:
            raise AWAY
        if 13 in numbers:
            raise DAMAGED
        return {number: 2 * number for number in numbers}


async def test_one_turn_is_one_question() -> None:
    """Who asks in the same turn has an answer of their own from one question, which names each thing once."""
    asked = Asked()
    gathering = Gathering(asked)
    assert await asyncio.gather(*(gathering(n % 3) for n in range(200))) == [2 * (n % 3) for n in range(200)]
    assert asked.calls == [[0, 1, 2]]


async def test_who_comes_later_has_another_question() -> None:
    """No answer is older than its question: what is under way serves nobody who came after it began."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    first = asyncio.ensure_future(gathering(1))
    await asked.begun.get()
    later = [asyncio.ensure_future(gathering(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    assert asked.calls == [[1]]
    asked.go_on.set()
    assert await asyncio.gather(first, *later) == [2, 2, 4]
    assert asked.calls == [[1], [1, 2]]


async def test_only_what_is_damaged_fails() -> None:
    """What fails together is asked one by one."""
    asked = Asked()
    gathering = Gathering(asked)
    answers = await asyncio.gather(*(gathering(n) for n in (1, 13, 2, 13)), return_exceptions=True)
    assert [answers[0], answers[2]] == [2, 4]
    assert [type(answers[1]), type(answers[3])] == [LedgerDamaged, LedgerDamaged]
    assert asked.calls == [[1, 13, 2], [1], [13], [2]]


async def test_a_ledger_that_is_away_is_asked_once() -> None:
    """All who asked hear of it, each with an error of their own, and nobody asks again for them."""
    asked = Asked()
    gathering, asked.away = Gathering(asked), True
    answers = await asyncio.gather(*(gathering(n) for n in (1, 2, 3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == [str(AWAY)] * 3
    assert len({id(answer) for answer in answers}) == 3
    assert asked.calls == [[1, 2, 3]]
    asked.away = False
    assert await gathering(1) == 2


async def test_who_gives_up_leaves_the_others_their_answer() -> None:
    """A cancelled asker takes nothing along, asked or waiting."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    askers = [asyncio.ensure_future(gathering(n)) for n in (1, 2)]
    await asked.begun.get()
    askers += [asyncio.ensure_future(gathering(n)) for n in (3, 4)]
    await asyncio.sleep(0)
    for asker in (askers[0], askers[2]):
        asker.cancel()
    asked.go_on.set()
    answers = await asyncio.gather(*askers, return_exceptions=True)
    assert [answers[1], answers[3]] == [4, 8]
    assert [type(answers[0]), type(answers[2])] == [asyncio.CancelledError] * 2
    assert asked.calls[0] == [1, 2]


async def test_a_question_ends_with_the_last_who_waits() -> None:
    """Once nobody waits it is broken off before the last of them has gone, and the next begins anew."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    askers = [asyncio.ensure_future(gathering(n)) for n in (1, 2)]
    await asked.begun.get()
    for asker in askers:
        asker.cancel()
    await asyncio.wait(askers)
    assert asked.ended == 1
    asked.go_on.set()
    assert await gathering(3) == 6
    assert asked.calls == [[1, 2], [3]]


async def test_who_asks_as_the_last_one_leaves_is_answered() -> None:
    """A question that is being broken off takes nobody along who has come since."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    first = asyncio.ensure_future(gathering(1))
    await asked.begun.get()
    first.cancel()
    second = asyncio.ensure_future(gathering(2))
    asked.go_on.set()
    assert await second == 4
    assert first.cancelled()


async def test_a_question_that_was_cancelled_leaves_nobody_waiting() -> None:
    """Who waits for a question that is cancelled from outside hears of it; who came later is answered."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    before = asyncio.all_tasks()
    first = asyncio.ensure_future(gathering(1))
    await asked.begun.get()
    (clerk,) = asyncio.all_tasks() - before - {first}
    second = asyncio.ensure_future(gathering(2))
    await asyncio.sleep(0)
    clerk.cancel()
    asked.go_on.set()
    await asyncio.wait([first, second])
    assert first.cancelled()
    assert second.result() == 4


async def test_a_question_that_does_not_end_holds_up_nobody_else() -> None:
    """Each turn has a question of its own, whatever became of the ones before."""
    stuck = asyncio.Event()

    async def ask(numbers: Sequence[int]) -> dict[int, int]:
        if min(numbers) < 0:
            await stuck.wait()
        return {number: 2 * number for number in numbers}

    gathering = Gathering(ask)
    dead = []
    for n in range(-20, 0):
        dead.append(asyncio.ensure_future(gathering(n)))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(gathering(10), 10) == 20
    for asker in dead:
        asker.cancel()
    await asyncio.wait(dead)
    assert all(asker.cancelled() for asker in dead)


async def test_where_few_are_to_be_under_way_those_who_wait_share_the_next() -> None:
    """Whoever comes then goes with the first that can begin, and who has given up leaves room."""
    asked = Asked()
    gathering = Gathering(asked, at_once=3)
    asked.go_on.clear()
    askers = []
    for n in range(8):
        askers.append(asyncio.ensure_future(gathering(n)))
        for _ in range(3):
            await asyncio.sleep(0)
    assert asked.calls == [[0], [1], [2]]
    askers[0].cancel()
    await asyncio.wait([askers[0]])
    for _ in range(3):
        await asyncio.sleep(0)
    assert asked.calls[3:] == [[3, 4, 5, 6, 7]]
    asked.go_on.set()
    assert await asyncio.gather(*askers[1:]) == [2 * n for n in range(1, 8)]


async def test_all_who_give_up_at_once_wait_for_the_end_of_the_question() -> None:
    """None of them goes on while it still runs."""
    asked = Asked()
    gathering = Gathering(asked)
    asked.go_on.clear()
    ended: list[int] = []

    async def give_up(n: int) -> None:
        try:
            await gathering(n)
        finally:
            ended.append(asked.ended)

    askers = [asyncio.ensure_future(give_up(n)) for n in range(3)]
    await asked.begun.get()
    for asker in askers:
        asker.cancel()
    await asyncio.wait(askers)
    assert ended == [1, 1, 1]


async def test_what_cannot_be_looked_up_fails_for_its_asker_alone() -> None:
    """A neighbour has the answer."""
    gathering: Gathering[Any, Any] = Gathering(Asked())
    answers = await asyncio.gather(gathering(1), gathering([2]), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], TypeError)


async def test_an_answer_that_is_missing_is_an_error_and_no_wait() -> None:
    """Whoever answers about too few things is told so by each asker."""

    async def ask(numbers: Sequence[int]) -> dict[int, int]:
        return {}

    with pytest.raises(KeyError):
        await asyncio.wait_for(Gathering(ask)(1), 10)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 has eager tasks")
async def test_eager_tasks_are_answered_again_and_again() -> None:
    """A question that ends as it begins leaves the next one its turn."""
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009

    async def ask(numbers: Sequence[int]) -> dict[int, int]:
        return {number: 2 * number for number in numbers}

    gathering = Gathering(ask)
    for n in range(3):
        assert await asyncio.wait_for(gathering(n), 10) == 2 * n


def test_each_event_loop_has_questions_of_its_own() -> None:
    """Who asks from another loop does not wait for a question that is stuck in the first one."""

    async def ask(numbers: Sequence[int]) -> dict[int, int]:
        if 1 in numbers:
            await asyncio.Event().wait()
        return {number: 2 * number for number in numbers}

    gathering = Gathering(ask)
    stuck = asyncio.new_event_loop()
    first = stuck.create_task(gathering(1))
    for _ in range(3):
        stuck.run_until_complete(asyncio.sleep(0))
    assert asyncio.run(asyncio.wait_for(gathering(2), 10)) == 4
    first.cancel()
    stuck.run_until_complete(asyncio.wait([first]))
    stuck.close()


async def test_an_exception_of_any_kind_reaches_who_asked() -> None:
    """Also what is no error of ours, such as a process that ends here."""

    class Ends(BaseException):
        pass

    async def end(_: Sequence[int]) -> dict[int, int]:
        raise Ends

    with pytest.raises(Ends):
        await Gathering(end)(1)
