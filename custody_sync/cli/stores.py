"""`custody-sync stores`: what each store can do, as its code says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from custody_sync.cli.options import ConfigOption, JsonOption
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import sentence, told
from custody_sync.cli.session import run
from custody_sync.errors import CustodyError, InvalidStore
from custody_sync.model import Capability, Level, Support
from custody_sync.ports import capabilities
from custody_sync.registry import store_class, store_names
from custody_sync.settings import load_settings, open_stores


def stores(
    known: Annotated[
        bool, typer.Option("--known", help="Every store there is an adapter for, configured or not.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> int:
    """Show what each store can do.

    These are the configured stores, or without a factory the known adapters. No ledger is opened.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config)
        table: dict[str, Mapping[Capability, Support]] = {}
        missing: list[CustodyError] = []
        configured = settings.factory is not None and not known
        if configured:
            async with open_stores(settings) as opened:
                table = {named(store): capabilities(store) for store in opened}
        else:
            for name in store_names():
                try:
                    table[name] = capabilities(store_class(name))
                except CustodyError as error:
                    missing.append(error)
        _show(output, "configured stores" if configured else "known stores", table)
        if not configured:
            output.note("The adapters' classes are shown; a configured store may do less, and says why.")
        for problem in missing:
            output.note(sentence(problem))
        output.document(
            {
                "configured": configured,
                "stores": {
                    name: {c.value: {"level": s.level, "reason": s.reason} for c, s in levels.items()}
                    for name, levels in table.items()
                },
                "unavailable": [told(problem) for problem in missing],
            }
        )
        return 0

    return run(work, json=json)


def named(store: object) -> str:
    """Return a store's name, or refuse what has none as a coordinator would."""
    name = getattr(store, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise InvalidStore(store=type(store).__name__, problem="has no name")
    return name


def _show(output: Output, title: str, table: Mapping[str, Mapping[Capability, Support]]) -> None:
    names: Sequence[str] = list(table)
    output.table(
        title,
        ("capability", *names),
        [(c.value, *(table[name][c].level.value for name in names)) for c in Capability],
    )
    reasons = [
        (name, c.value, table[name][c].reason)
        for name in names
        for c in Capability
        if table[name][c].level is not Level.FULL
    ]
    if reasons:
        output.table("limits", ("store", "capability", "reason"), reasons)
