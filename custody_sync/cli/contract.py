"""`custody-sync contract`: try a store adapter of yours against the rules that custody relies on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from custody_sync.cli.options import JsonOption
from custody_sync.cli.output import Output
from custody_sync.cli.session import run
from custody_sync.errors import InvalidInput
from custody_sync.model import Level
from custody_sync.settings import import_target
from custody_sync.testing.contract import (
    RULES,
    ContractReport,
    StoreHooks,
    Verdict,
    check_store,
)


def contract(
    factory: Annotated[str, typer.Argument(metavar="MODULE:FACTORY", show_default=False)],
    hooks: Annotated[
        str | None,
        typer.Option(
            "--hooks", metavar="MODULE:CLASS", help="The StoreHooks that sabotage it and tune the rules."
        ),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option("--rules", metavar="IDS", help="Only these, such as C-01,C-42; otherwise all."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Try a store adapter against the contract.

    The factory makes a fresh store for each rule: a class, a function, plain or async, or a context
    manager, in a module that may lie in the current folder. Exits with 1 if a rule failed, or if
    none was kept; what does not apply is listed with its reason.
    """

    async def work(output: Output) -> int:
        made = import_target(Path.cwd(), "factory", factory)
        extras = _hooks(hooks)
        chosen = _ids(rules)
        with output.working("trying the rules", total=len(chosen)) as advance:
            report = await check_store(made, hooks=extras, rules=chosen, progress=lambda _: advance())
        _show(output, report)
        output.document(report.to_dict())
        return 0 if report.passed else 1

    return run(work, json=json)


def _hooks(target: str | None) -> StoreHooks:
    """Return the named hooks; a class of pytest tests that inherits them serves as well."""
    if target is None:
        return StoreHooks()
    made = import_target(Path.cwd(), "hooks", target)
    hooks = made() if isinstance(made, type) and issubclass(made, StoreHooks) else made
    if not isinstance(hooks, StoreHooks):
        raise InvalidInput(field="hooks", problem=f"{target} is no StoreHooks of custody_sync.testing")
    return hooks


def _ids(listed: str | None) -> list[str]:
    if listed is None:
        return [rule.rule_id for rule in RULES]
    named = [word.strip().upper() for word in listed.split(",") if word.strip()]
    if not named:
        raise InvalidInput(field="rules", problem="names no rule, such as C-01,C-42")
    return named


def _show(output: Output, report: ContractReport) -> None:
    output.table(
        f"the contract on {report.store}",
        ("rule", "verdict", "promise", "reason"),
        [(r.rule_id, r.verdict.value, r.title, r.reason or r.note) for r in report.results],
    )
    less = [
        (c.value, s.level.value, s.reason)
        for c, s in report.capabilities.items()
        if s.level is not Level.FULL
    ]
    if less:
        output.table("limits", ("capability", "level", "reason"), less)
    counts = {verdict: sum(r.verdict is verdict for r in report.results) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict.value.replace('_', ' ')}" for verdict, count in counts.items())
    output.line(f"{report.store}: {told}.")
    if not counts[Verdict.PASSED] and not counts[Verdict.FAILED]:
        output.note("No rule could be tried, which proves nothing.")


__all__ = ["contract"]
