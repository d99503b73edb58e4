"""Bugs of recall, planted on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from custody_sync import recall
from custody_sync.recall import Recall
from custody_sync.recalled import Dropped


def _sifting(patch: pytest.MonkeyPatch, change: Callable[[list[Any]], object]) -> None:
    sift = Recall._sift

    async def changed(self: Recall, hits: Any) -> Any:
        sifted = await sift(self, hits)
        change(sifted.live)
        return sifted

    patch.setattr(Recall, "_sift", changed)


def recall_withholds(patch: pytest.MonkeyPatch) -> None:
    """A recall serves the first live fact and no other."""
    _sifting(patch, lambda live: live.__delitem__(slice(1, None)))


def recall_trusts_the_store(patch: pytest.MonkeyPatch) -> None:
    """A recall serves the words that the store shows, whoever wrote them."""
    serve = recall.recalled_of

    def shown(self: Recall, sifted: Any) -> Any:
        texts = {entry.external_id: entry.text for (entry, _), _ in sifted.live}
        with pytest.MonkeyPatch.context() as trusting:
            trusting.setattr(
                recall,
                "recalled_of",
                lambda fact, text, store, external_id, score, cut: serve(
                    fact, texts[external_id] or text, store, external_id, score, cut
                ),
            )
            return choose(self, sifted)

    choose = Recall._choose
    patch.setattr(Recall, "_choose", shown)


def recall_reversed(patch: pytest.MonkeyPatch) -> None:
    """A recall serves the worst first."""
    _sifting(patch, list.reverse)


def recall_serves_nothing(patch: pytest.MonkeyPatch) -> None:
    """A recall says that there is nothing."""
    _sifting(patch, list.clear)


def recall_always_exhausted(patch: pytest.MonkeyPatch) -> None:
    """A recall says that there is no more, whatever the ledger believes."""

    async def no(self: Recall, sifted: Any) -> bool:
        return False

    patch.setattr(Recall, "_has_more", no)


def _lax(patch: pytest.MonkeyPatch, passed: Dropped) -> None:
    judge = Recall._judge

    def lax(self: Recall, *told: Any) -> Dropped | None:
        why = judge(self, *told)
        return None if why is passed else why

    patch.setattr(Recall, "_judge", lax)


def recall_serves_twice(patch: pytest.MonkeyPatch) -> None:
    """A recall serves a fact once for each of its entries."""
    _lax(patch, Dropped.REPEATED)


def recall_of_any_space(patch: pytest.MonkeyPatch) -> None:
    """A recall trusts the store with the spaces that were asked for."""
    _lax(patch, Dropped.OTHER_SPACE)
