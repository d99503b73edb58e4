"""The contract of a store adapter: rules with stable ids, in pytest by a mixin and outside it.

In pytest, one class is a whole conformance test; give it an async fixture `store` that yields a
fresh store, and the hooks that apply. Mark and fixture work in both modes of pytest-asyncio:

    @pytest.mark.asyncio
    class TestMyStore(StoreContract):
        @pytest_asyncio.fixture
        async def store(self):
            async with my_store() as store:
                yield store

        async def break_delete(self, store):
            store.client.delete = do_nothing

Outside pytest: `report = await check_store(my_store)`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from custody_sync.errors import InvalidInput
from custody_sync.model import Capability, Limits, Support
from custody_sync.ports import Store, capabilities
from custody_sync.testing.contract_case import (
    Case,
    ContractViolation,
    NotApplicable,
    Rule,
    StoreHooks,
    Trouble,
)
from custody_sync.testing.contract_proof import PROOF
from custody_sync.testing.contract_rules import HOLDING
from custody_sync.testing.contract_story import STORY
from custody_sync.testing.contract_trouble import TROUBLE
from custody_sync.testing.contract_trouble_proof import TROUBLE_PROOF

RULES: Final[tuple[Rule, ...]] = tuple(
    sorted([*HOLDING, *PROOF, *TROUBLE, *TROUBLE_PROOF, *STORY], key=lambda rule: rule.rule_id)
)
"""Every rule, in the order of its id."""

_Entered: TypeAlias = "AbstractAsyncContextManager[Store] | AbstractContextManager[Store]"
_Yielded: TypeAlias = "AsyncGenerator[Store, None] | Generator[Store, None, None]"
StoreFactory: TypeAlias = Callable[[], "Store | Awaitable[Store] | _Entered | _Yielded"]
"""Makes a fresh store for each rule: the store, something to await, a context or a one-yield generator."""

Progress: TypeAlias = "Callable[[RuleResult], None]"


class _NoStore(InvalidInput):
    __doc__ = InvalidInput.__doc__


class Verdict(StrEnum):
    """How a rule ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What one rule showed; `reason` is empty only when it passed."""

    rule_id: str
    title: str
    verdict: Verdict
    reason: str = ""
    note: str = ""
    """On what scale it was tried, and what it had to leave open."""

    def to_dict(self) -> dict[str, str]:
        """Return the result ready for JSON."""
        return {
            "rule_id": self.rule_id,
            "title": self.title,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractReport:
    """What the whole suite showed of one store, with all that a table of stores has to say of it."""

    store: str
    results: tuple[RuleResult, ...]
    capabilities: Mapping[Capability, Support] = field(default_factory=dict)
    """What the store declares, each level with its reason."""
    limits: Limits = field(default_factory=Limits)
    versions: Mapping[str, str] = field(default_factory=dict)
    """What was tried, as the hooks name it."""

    @property
    def passed(self) -> bool:
        """True when rules passed and none failed; a report without a passed rule proves nothing."""
        verdicts = {result.verdict for result in self.results}
        return Verdict.PASSED in verdicts and Verdict.FAILED not in verdicts

    @property
    def failures(self) -> tuple[RuleResult, ...]:
        """The rules that the store breaks."""
        return tuple(result for result in self.results if result.verdict is Verdict.FAILED)

    def to_dict(self) -> dict[str, Any]:
        """Return the report ready for JSON."""
        counts = {v.value: sum(r.verdict is v for r in self.results) for v in Verdict}
        return {
            "store": self.store,
            "passed": self.passed,
            "counts": counts,
            "rules": [result.to_dict() for result in self.results],
            "capabilities": {
                capability.value: {"level": support.level.value, "reason": support.reason}
                for capability, support in sorted(self.capabilities.items())
            },
            "limits": {"text_chars": self.limits.text_chars, "text_bytes": self.limits.text_bytes},
            "versions": dict(self.versions),
        }


async def check_store(
    factory: StoreFactory,
    *,
    hooks: StoreHooks | None = None,
    rules: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> ContractReport:
    """Try the rules one after the other, each on a store that the factory makes for it.

    Args:
        factory: Makes a fresh store.
        hooks: What the adapter offers beside it, such as sabotage.
        rules: Ids of the rules to try; all unless given.
        progress: Called with each rule's result as soon as it is known.

    Raises:
        InvalidInput: the factory is a store or makes lists of them, or a rule is none.
    """
    _check_factory(factory)
    chosen = _chosen(rules)
    trial = _Trial(factory, hooks if hooks is not None else StoreHooks())
    results: list[RuleResult] = []
    for rule in chosen:
        results.append(await trial.run(rule))
        if progress is not None:
            progress(results[-1])
    return ContractReport(
        store=trial.name,
        results=tuple(results),
        capabilities=trial.capabilities,
        limits=trial.limits,
        versions=dict(trial.hooks.versions),
    )


def _check_factory(factory: object) -> None:
    """Refuse a finished store: every rule needs a fresh one, and a failed rule would spoil the next."""
    is_store = not isinstance(factory, type) and hasattr(factory, "put")
    if is_store or not callable(factory):
        problem = f"{type(factory).__name__} makes no stores; pass the class, or a function that makes one"
        raise InvalidInput(field="factory", problem=problem)


def _chosen(ids: Iterable[str] | None) -> list[Rule]:
    if ids is None:
        return list(RULES)
    known = {rule.rule_id: rule for rule in RULES}
    wanted = list(ids)
    for rule_id in wanted:
        if rule_id not in known:
            raise InvalidInput(field="rules", problem=f"{rule_id!r} is no rule of the contract")
    return [known[rule_id] for rule_id in wanted]


class _Trial:
    """The stores of one factory, and what the last of them says of itself."""

    def __init__(self, factory: StoreFactory, hooks: StoreHooks) -> None:
        self.factory = factory
        self.hooks = hooks
        self.name = ""
        self.capabilities: dict[Capability, Support] = {}
        self.limits = Limits()

    async def run(self, rule: Rule) -> RuleResult:
        verdict, reason, notes = Verdict.PASSED, "", tuple[str, ...]()
        try:
            async with AsyncExitStack() as stack:
                store = await _make(self.factory, stack)
                self._look_at(store)
                notes = await rule.run(store, self.hooks)
        except _NoStore:
            raise
        except NotApplicable as left_out:
            verdict, reason = Verdict.NOT_APPLICABLE, str(left_out.fields["reason"])
        except ContractViolation as broken:
            verdict, reason = Verdict.FAILED, str(broken)
        # An adapter may raise anything; for a report that is a finding, not the end of the run.
        except Exception as problem:
            verdict, reason = Verdict.FAILED, f"raised {type(problem).__name__}: {problem}"
        note = "; ".join(notes)
        return RuleResult(rule_id=rule.rule_id, title=rule.title, verdict=verdict, reason=reason, note=note)

    def _look_at(self, store: Any) -> None:
        self.name = str(getattr(store, "name", self.name))
        self.capabilities = capabilities(store)
        self.limits = getattr(store, "limits", None) or Limits()


async def _make(factory: StoreFactory, stack: AsyncExitStack) -> Any:
    made: Any = factory()
    if isinstance(made, Generator):
        return stack.enter_context(contextmanager(lambda: made)())
    if isinstance(made, AbstractContextManager) and not hasattr(made, "put"):
        return stack.enter_context(made)
    if isinstance(made, AsyncGenerator):
        # Resumed after the rule like a pytest fixture, so its teardown needs no try/finally.
        return await stack.enter_async_context(asynccontextmanager(lambda: made)())
    # A store may itself be a context; the factory's own contexts are told by having no put.
    if isinstance(made, AbstractAsyncContextManager) and not hasattr(made, "put"):
        return await stack.enter_async_context(made)
    store = await made if inspect.isawaitable(made) else made
    if isinstance(store, Iterable) and not hasattr(store, "put"):
        # What `factory` in custody.toml names makes all stores at once, and is easily passed here.
        problem = f"it made a {type(store).__name__}; the contract tries one fresh store at a time"
        raise _NoStore(field="factory", problem=problem)
    return store


class StoreContract(StoreHooks):
    """A pytest mixin with one test per rule; subclass it with a fixture `store`.

    Needs pytest-asyncio (mode auto, or mark the class). A rule that does not apply is skipped
    with the adapter's own reason.
    """


def _as_test(rule: Rule) -> Callable[[StoreContract, Any], Awaitable[None]]:
    async def test(self: StoreContract, store: Any) -> None:
        try:
            await rule.run(store, self)
        except NotApplicable as left_out:
            import pytest  # noqa: PLC0415  # the suite runs without pytest; only this face needs it

            pytest.skip(str(left_out.fields["reason"]))

    test.__name__ = _test_name(rule)
    test.__qualname__ = f"{StoreContract.__qualname__}.{test.__name__}"
    test.__doc__ = rule.title
    return test


def _test_name(rule: Rule) -> str:
    return f"test_{rule.rule_id.lower().replace('-', '')}_{rule.name}"


for _each in RULES:
    setattr(StoreContract, _test_name(_each), _as_test(_each))


__all__ = [
    "RULES",
    "Case",
    "ContractReport",
    "ContractViolation",
    "NotApplicable",
    "Progress",
    "Rule",
    "RuleResult",
    "StoreContract",
    "StoreFactory",
    "StoreHooks",
    "Trouble",
    "Verdict",
    "check_store",
]
