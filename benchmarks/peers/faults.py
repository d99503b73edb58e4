"""The same faults for LangChain's indexing, Mem0, LangGraph, two stores at once, and custody-sync over each.

Nine operations of an application (five memories are put, two corrected, one deleted, and all of one
person's) are told to each peer again and again; in each run one fault strikes one call of a store's
client, or of what the peer keeps beside it. Every peer's calls go over the same wire, the stores' clients
are the same objects with and without custody-sync, and everybody tries once. Afterwards the fault is
over, what failed is done again, and the one recovery runs that the peer documents, if there is one.
Then the stores are read, past everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _faults_bare import BareGraph, BareMem0, LangChainIndexing
from _faults_custody import over_graphs, over_mem0, over_vectors
from _faults_story import Caller, Peer, Verdict
from _faults_wire import OF_AN_OPERATION, RECORD, STRIKES, Fault, Strike, Wire

KINDS = ("lost", "kept", "stale", "stray")
BEGIN, END = "<!-- tables -->", "<!-- end -->"
CALM = Verdict(lied=0, before={}, after={})
ONE, TWO = ("one",), ("one", "two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A column of the comparison.

    Args:
        title: what it is.
        make: opens it over a wire, empty.
        ours: whether it is custody-sync.
        packages: whose versions matter.
    """

    title: str
    make: Callable[[Wire], Peer]
    ours: bool
    packages: tuple[str, ...]


SIDES: Mapping[str, Side] = {
    "langchain": Side(
        title="LangChain `index()`", make=LangChainIndexing, ours=False, packages=("langchain-core",)
    ),
    "langchain-custody": Side(
        title="custody-sync", make=over_vectors, ours=True, packages=("langchain-core",)
    ),
    "mem0": Side(title="Mem0", make=BareMem0, ours=False, packages=("mem0ai", "qdrant-client")),
    "mem0-custody": Side(
        title="custody-sync", make=over_mem0, ours=True, packages=("mem0ai", "qdrant-client")
    ),
    "langgraph": Side(
        title="LangGraph store",
        make=partial(BareGraph, names=ONE),
        ours=False,
        packages=("langgraph-checkpoint",),
    ),
    "langgraph-custody": Side(
        title="custody-sync",
        make=partial(over_graphs, names=ONE),
        ours=True,
        packages=("langgraph-checkpoint",),
    ),
    "gather": Side(
        title="two stores, `gather`",
        make=partial(BareGraph, names=TWO),
        ours=False,
        packages=("langgraph-checkpoint",),
    ),
    "gather-custody": Side(
        title="custody-sync",
        make=partial(over_graphs, names=TWO),
        ours=True,
        packages=("langgraph-checkpoint",),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of the story."""

    strike: Strike
    kind: str
    operation: int
    verdict: Verdict


async def run(side: Side, wire: Wire) -> Verdict:
    """Tell a side the story once."""
    peer = side.make(wire)
    # What clients log of their troubles is what they were given; and the dead are not asked.
    logging.disable(logging.CRITICAL)
    try:
        return await Caller(peer, wire).tell()
    finally:
        logging.disable(logging.NOTSET)
        await peer.close()


def strikes(wire: Wire, faults: Sequence[Fault]) -> Iterator[tuple[Strike, str, int]]:
    """Yield every fault at every call that it can strike, of those that a calm run has made."""
    for fault in faults:
        able = [call for call in wire.calls if call.kind in STRIKES[fault]]
        if fault is Fault.STORE_DOWN:
            places = sorted({call.place for call in able})
            for place in places if len(places) > 1 else ():
                for operation in sorted({call.operation for call in able if call.place == place}):
                    yield Strike(fault=fault, at=operation, place=place), "operation", operation
        elif fault in OF_AN_OPERATION:
            for operation in sorted({call.operation for call in able if call.place == RECORD}):
                yield Strike(fault=fault, at=operation), "operation", operation
        else:
            for call in able:
                yield Strike(fault=fault, at=call.number), call.kind.value, call.operation


async def tried(side: Side, faults: Sequence[Fault]) -> list[Case]:
    """Run a side once in calm, and once for each fault at each call."""
    calm = Wire()
    verdict = await run(side, calm)
    assert verdict == CALM, f"{side.title} is wrong in calm: {verdict}"
    cases = []
    for strike, kind, operation in strikes(calm, faults):
        wire = Wire(strike)
        verdict = await run(side, wire)
        assert wire.struck, f"{strike} never happened"
        cases.append(Case(strike=strike, kind=kind, operation=operation, verdict=verdict))
    return cases


# --- what is said ---------------------------------------------------------------------------------


def summed(cases: Sequence[Case]) -> dict[str, Any]:
    """Count in how many runs something was wrong, by kind, before and after the recovery."""
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for case in cases:
        before.update(set(case.verdict.before))
        after.update(set(case.verdict.after))
    return {
        "runs": len(cases),
        "lied": sum(case.verdict.lied > 0 for case in cases),
        "before": {kind: before[kind] for kind in KINDS if before[kind]},
        "after": {kind: after[kind] for kind in KINDS if after[kind]},
        "wrong_after": sum(bool(case.verdict.after) for case in cases),
    }


def cell(found: Mapping[str, Any]) -> str:
    """Show one side under one fault."""
    if not found["runs"]:
        return "–"
    parts = [f"lied {found['lied']}"] if found["lied"] else []
    parts += [f"{kind} {number}" for kind, number in found["before"].items()]
    left = ", ".join(f"{kind} {number}" for kind, number in found["after"].items())
    if not parts and not left:
        return f"{found['runs']}: right"
    return f"{found['runs']}: {', '.join(parts) or 'right'}; then {f'**{left}**' if left else 'right'}"


def counted(name: str, faults: Sequence[Fault]) -> dict[str, Any]:
    """Try one side, and return what came of it as JSON holds it, every run included."""
    cases = asyncio.run(tried(SIDES[name], faults))
    by_fault = {fault.value: [case for case in cases if case.strike.fault is fault] for fault in faults}
    return {
        "versions": {package: version(package) for package in SIDES[name].packages},
        "all": summed(cases),
        "faults": {fault: summed(some) for fault, some in by_fault.items()},
        "runs": [run_of(case) for case in cases],
    }


def run_of(case: Case) -> dict[str, Any]:
    """Return one run as JSON holds it."""
    return {
        "fault": case.strike.fault.value,
        "at": case.strike.at,
        "place": case.strike.place,
        "kind": case.kind,
        "operation": case.operation,
        "lied": case.verdict.lied,
        "before": dict(case.verdict.before),
        "after": dict(case.verdict.after),
    }


def table(found: Mapping[str, Any]) -> str:
    """Return one table for each pair of a peer and custody-sync over the same stores."""
    lines: list[str] = []
    for name in [name for name in SIDES if name in found and not SIDES[name].ours]:
        sides = [one for one in (name, f"{name}-custody") if one in found]
        titles = ["fault", *(SIDES[one].title for one in sides)]
        lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for fault in found[name]["faults"]:
            if any(found[one]["faults"][fault]["runs"] for one in sides):
                cells = [cell(found[one]["faults"][fault]) for one in sides]
                lines.append(f"| {fault} | {' | '.join(cells)} |")
        lines += [f"| **all** | {' | '.join(cell(found[one]['all']) for one in sides)} |", ""]
    return "\n".join(lines)


def page(text: str, found: Mapping[str, Any]) -> str:
    """Return a page with its tables and versions written anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{versions(found)}\n\n{table(found)}{END}{rest.partition(END)[2]}"


def versions(found: Mapping[str, Any]) -> str:
    """Say which versions were tried."""
    tried_with = {package: number for side in found.values() for package, number in side["versions"].items()}
    return f"Tried with {', '.join(f'{package} {tried_with[package]}' for package in sorted(tried_with))}."


def compare(names: Sequence[str], faults: Sequence[Fault], jobs: int) -> dict[str, Any]:
    """Try each side under each fault, some sides at once."""
    # The longest are the last ones; what begins early is done early.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        under_way = {name: pool.submit(counted, name, faults) for name in reversed(names)}
        for name, answer in under_way.items():
            print(f"{name}: {answer.result()['all']['runs']} runs", file=sys.stderr, flush=True)
    return {name: under_way[name].result() for name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, try everybody, print the tables, and write what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sides", nargs="*", metavar="SIDE", help=f"of {', '.join(SIDES)}; all by default")
    parser.add_argument("--fault", action="append", type=Fault, help="only this fault; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many sides to try at once")
    parser.add_argument("--json", type=Path, help="where to write every run")
    parser.add_argument("--page", type=Path, help="a page whose tables are to be written anew")
    told = parser.parse_args(arguments)
    if unknown := [name for name in told.sides if name not in SIDES]:
        parser.error(f"no side is called {unknown[0]!r}")
    found = compare(told.sides or list(SIDES), told.fault or list(Fault), told.jobs)
    print(f"{table(found)}\n{versions(found)}")
    if told.json is not None:
        told.json.write_text(json.dumps({"name": "peer_faults", "sides": found}, indent=1) + "\n")
    if told.page is not None:
        told.page.write_text(page(told.page.read_text(), found))
    ours = [found[name]["all"] for name in found if SIDES[name].ours]
    return 1 if any(side["lied"] or side["wrong_after"] for side in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
