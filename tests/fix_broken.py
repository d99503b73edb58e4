"""Stores that break a rule of the contract on purpose: what each breaks, and that it is told so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from custody_sync.testing import MemoryHooks, MemoryStore, Verdict, check_store
from custody_sync.testing.contract import Rule


@dataclass(frozen=True)
class Broken:
    """A store that breaks one rule, and what the violation says."""

    rule_id: str
    make: Callable[[], MemoryStore]
    says: str

    def __str__(self) -> str:
        return f"{self.rule_id}-{self.says[:24]}"


async def check_told(broken: Broken) -> None:
    """Hold the report against what the store breaks: the rule, and what was expected or got."""
    report = await check_store(broken.make, hooks=MemoryHooks(), rules=[broken.rule_id])
    [result] = report.results
    assert result.verdict is Verdict.FAILED, result
    assert broken.says in result.reason
    assert not report.passed


def check_all_broken(broken: Iterable[Broken], rules: Iterable[Rule]) -> None:
    """Hold that each rule has a store that breaks it: one that nothing can fail shows nothing."""
    assert {each.rule_id for each in broken} == {rule.rule_id for rule in rules}
