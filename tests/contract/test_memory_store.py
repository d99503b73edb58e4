"""The memory store keeps the contract, and the suite works in pytest and outside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from custody_sync.errors import NoProof
from custody_sync.model import Capability, Entry, Level, Limits, Support
from custody_sync.testing import (
    RULES,
    Faults,
    MemoryHooks,
    MemoryStore,
    StoreContract,
    Verdict,
    check_store,
)


class TestMemoryStore(MemoryHooks, StoreContract):
    """A store that chooses our keys."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return a fresh one."""
        return MemoryStore(limits=Limits(text_chars=1_000, text_bytes=900))


class TestStoreWithItsOwnIds(MemoryHooks, StoreContract):
    """A store that makes up its ids, splits each text in two and keeps spaces in scopes."""

    own_keys = False

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return a fresh one."""
        return MemoryStore(own_ids=True, parts=2, scope="{space}", page_size=7)


class TestLaggingStore(MemoryHooks, StoreContract):
    """An index that lags behind by a few questions breaks no rule: the suite asks again."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return a fresh one."""
        return MemoryStore(faults=Faults(index_lag=3, put_lag=2))


# --- the faces -----------------------------------------------------------------------------


def test_rule_ids_are_unique_and_titled() -> None:
    """Ids are stable references, so each is unique, ordered, and says its promise in a sentence."""
    ids = [rule.rule_id for rule in RULES]
    assert ids == sorted(set(ids))
    assert all(rule.title.endswith(".") for rule in RULES)


def test_the_mixin_has_one_test_per_rule() -> None:
    """In pytest each rule is a test of its own, named after its id."""
    tests = [name for name in dir(StoreContract) if name.startswith("test_")]
    assert len(tests) == len(RULES)
    assert "test_c01_keeps_one_name" in tests


async def test_a_report_is_json_ready_and_counts() -> None:
    """The report lists every rule with its verdict and counts them."""
    report = await check_store(MemoryStore, hooks=MemoryHooks(), rules=["C-01", "C-40"])
    assert report.passed
    assert report.to_dict()["counts"] == {"passed": 2, "failed": 0, "not_applicable": 0}
    assert [rule["rule_id"] for rule in report.to_dict()["rules"]] == ["C-01", "C-40"]
    assert report.store == "memory"


async def test_a_missing_hook_is_not_a_pass() -> None:
    """Without sabotage a rule about it is not applicable, and a report of nothing else has not passed."""
    report = await check_store(MemoryStore, rules=["C-17", "C-36", "C-42"])
    assert {result.verdict for result in report.results} == {Verdict.NOT_APPLICABLE}
    assert all("the fixture has no" in result.reason for result in report.results)
    assert not report.passed


async def test_a_missing_capability_is_told_with_its_reason() -> None:
    """What a store honestly lacks is not applicable, with the store's own reason."""
    report = await check_store(lambda: MemoryStore(without=["verify_deleted"]), rules=["C-41"])
    assert report.results[0].verdict is Verdict.NOT_APPLICABLE
    assert "built without it" in report.results[0].reason


class ProvesNothing(MemoryStore):
    """A store whose answers never decide anything."""

    async def verify_deleted(self, entry: Entry) -> bool:
        """Admit it."""
        raise NoProof(store=self.name, operation="verify_deleted", cause="eventual")


async def test_no_proof_for_ever_needs_to_be_declared() -> None:
    """A store that can never prove a deletion fails, unless it says so beforehand."""
    undeclared = await check_store(ProvesNothing, rules=["C-41"], hooks=MemoryHooks())
    assert undeclared.results[0].verdict is Verdict.FAILED

    def declared() -> MemoryStore:
        store = ProvesNothing()
        store.capabilities[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, "its index is eventual")
        return store

    report = await check_store(declared, rules=["C-41", "C-40"], hooks=MemoryHooks())
    assert [r.verdict for r in report.results] == [Verdict.NOT_APPLICABLE, Verdict.PASSED]


async def test_a_store_that_never_answers_fails() -> None:
    """A rule ends by itself when the store hangs."""
    hooks = MemoryHooks()
    hooks.rule_timeout = 0.01
    hang = MemoryStore(faults=Faults(delays={"put": 3600}))
    report = await check_store(lambda: hang, hooks=hooks, rules=["C-02"])
    assert report.results[0].verdict is Verdict.FAILED
    assert "within 0.01 s" in report.results[0].reason


async def test_a_factory_may_open_and_close_its_store() -> None:
    """A generator factory is closed after each rule, so a store on a server can clean up."""
    closed: list[str] = []

    async def factory() -> AsyncGenerator[MemoryStore, None]:
        yield MemoryStore()
        closed.append("closed")

    async def awaited() -> MemoryStore:
        return MemoryStore()

    for make in (factory, awaited, asynccontextmanager(factory)):
        assert (await check_store(make, rules=["C-01", "C-02"])).passed
    assert closed == ["closed"] * 4


def test_the_suite_runs_without_pytest() -> None:
    """Third parties run it from a plain script: importing it imports no pytest."""
    program = (
        "import asyncio, sys\n"
        "from custody_sync.testing import MemoryStore, check_store\n"
        "report = asyncio.run(check_store(MemoryStore, rules=['C-01', 'C-41']))\n"
        "print(report.passed, 'pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
