"""`custody-sync status`: what there is to do, as the ledger has it; it works while every store is down."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from custody_sync.cli.measuring import write_metrics
from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption, LogOption, MetricsOption
from custody_sync.cli.output import Output, plain
from custody_sync.cli.session import open_ledger, run
from custody_sync.cli.stores import named
from custody_sync.errors import CustodyError
from custody_sync.model import Erasure
from custody_sync.repair.status import status_of
from custody_sync.results import LastSweep, Status, StoreStatus
from custody_sync.settings import Settings, load_settings, open_stores
from custody_sync.signals.metrics import check_file

DONE, PENDING = 0, 1
UNTOLD = "the stores could not be made, so it is not known whether one without pending work is configured"
COLUMNS = ("store", "pending", "by outcome", "oldest", "owed", "waiting", "next", "tried again")


def status(
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    metrics_file: MetricsOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Show what is left to do, store by store.

    No store is asked, so this works while all of them are down. It says where the ledger stands, what
    is pending, owed or waiting for its time, when a store that did not answer is tried again, what the
    last sweep came to and who sweeps now. Exits with 1 if something is left to do; what waits for its
    time is not.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        names = await _configured(settings)
        async with open_ledger(settings, read_only=True) as opened:
            where = None if metrics_file is None else check_file(metrics_file, opened.files)
            found = await status_of(opened, names or ())
        if names is None:
            stores = tuple(replace(store, configured=True) for store in found.stores)
            found = replace(found, stores=stores, notices=(*found.notices, UNTOLD))
        _show(output, found)
        output.document({**plain(found), "pending": found.pending})
        if where is not None:
            write_metrics(found, output, where)
        return PENDING if found.pending else DONE

    return run(work, json=json)


async def _configured(settings: Settings) -> Collection[str] | None:
    """Return the names of the configured stores, or None where they cannot be made."""
    try:
        async with open_stores(settings) as stores:
            return {named(store) for store in stores}
    except CustodyError:
        return None


def _show(output: Output, found: Status) -> None:
    output.table("stores", COLUMNS, [_row(store) for store in found.stores])
    for store in found.stores:
        if not store.configured:
            output.line(f"Store {store.store!r} is not configured here, so nothing of it can be done.")
    if found.erasure is Erasure.PENDING:
        output.line("Erased values are not all out of the ledger's files; run repair.")
    output.line(_last(found.last_sweep))
    if found.sweeping is not None:
        output.line(f"Sweeping now: {found.sweeping}.")
    output.line(f"Ledger {found.ledger_id}, head {found.head.seq}: {found.head.hash}")
    for said in found.notices:
        output.note(f"{said}.")


def _row(store: StoreStatus) -> Sequence[object]:
    retry = store.retry
    tried = None
    if retry is not None:
        times = "once" if retry.failures == 1 else f"{retry.failures} times"
        tried = f"{retry.next_at.isoformat(timespec='seconds')} (no answer {times})"
    return (
        store.store,
        store.pending,
        ", ".join(f"{count} {outcome}" for outcome, count in store.by_outcome.items()),
        store.oldest_pending,
        store.owed,
        store.waiting,
        store.next_waiting,
        tried,
    )


def _last(sweep: LastSweep | None) -> str:
    if sweep is None:
        return "Nothing was swept yet."
    found = sum(sweep.orphans.values()) + sum(sweep.strays.values())
    left = "nothing was left" if sweep.complete else "something was left"
    when = sweep.finished_at.isoformat(timespec="seconds")
    return f"Last swept at {when}: {sum(sweep.scanned.values())} entries, {found} to remove, {left}."
