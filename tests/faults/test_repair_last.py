"""What the last sweep and the last comparison came to can be asked, and read by Prometheus."""

from __future__ import annotations

from fix_custody import LATER, Desk, error_of

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.repair.last import last_reconcile, last_sweep, note_last_reconcile
from custody_sync.results import LastReconcile
from custody_sync.signals.metrics import render


async def test_the_last_sweep_tells_found_from_removed(desk: Desk) -> None:
    """What a store did not let go is among the orphans found, and not among the entries removed."""
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.OutcomeUnknown(name="x"), times=30)
    await error_of(desk.write(), errors.LedgerUnavailable)
    desk.plan._actions.clear()
    desk.clock.advance(LATER)

    async def stuck(entry: object) -> None:
        raise ConnectionError

    desk.stores["agent"].delete = stuck  # type: ignore[method-assign]
    await desk.repair()
    last = await last_sweep(desk.ledger)
    assert last is not None
    assert (last.orphans, last.removed) == ({"agent": 1, "memories": 1}, {"agent": 0, "memories": 1})
    text = render(await desk.custody.status())
    said = f'custody_sync_last_sweep_removed_entries{{ledger="{desk.ledger.ledger_id}",store="agent"}} 0'
    assert said in text.splitlines()


async def test_the_last_comparison_is_kept(desk: Desk) -> None:
    """Before the first there is none; afterwards a status has the last one."""
    assert await last_reconcile(desk.ledger) is None
    for count in (3, 4):
        kept = LastReconcile(
            finished_at=desk.clock.now(), complete=False, missing={"agent": count}, altered={"agent": 0}
        )
        await note_last_reconcile(desk.ledger, kept)
        assert (await desk.custody.status()).last_reconcile == kept


async def test_a_sweep_of_a_part_is_not_the_last_one(desk: Desk) -> None:
    """One of a space, of some stores or up to an earlier instant says nothing of all of it."""
    await desk.written()
    for part in ({"space": "no:such"}, {"stores": ["agent"]}, {"before": desk.clock.now() - LATER}):
        assert (await desk.repair(**part)).complete  # type: ignore[arg-type]  # as named
        assert (await desk.custody.status()).last_sweep is None
    assert (await desk.repair(stores=["agent", "memories"])).complete
    last = (await desk.custody.status()).last_sweep
    assert last is not None
    assert set(last.scanned) == {"agent", "memories"}
