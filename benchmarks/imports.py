"""What importing an adapter costs beside starting the interpreter, and beside importing its vendor.

Each round starts one process per import, in an order of its own, so that what else the machine
does meets all of them alike. An adapter imports no vendor; that is what keeps a program which only
names its stores, such as the command line, from paying for them.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import time
from collections.abc import Mapping

from _bench import Bound, conclude, median, spread

from custody_sync.registry import known_stores

VENDORS = {
    "cognee": "httpx",
    "langchain": "langchain_core.vectorstores",
    "langgraph": "langgraph.store.base",
    "letta": "letta_client",
    "mem0": "mem0",
    "pgvector": "psycopg",
    "zep": "zep_cloud",
}
BARE, CORE = "bare interpreter", "custody_sync"
ROUNDS = 15
MOST = 10.0
BOUND: Bound = {name: {"most": MOST} for name in known_stores}


def seconds_of(code: str) -> float:
    """Return how long a new interpreter takes to run a line and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return time.perf_counter() - began


def lines(*, vendors: bool) -> dict[str, str]:
    """Return what is run, by name; a vendor that is not installed is left out."""
    found = {BARE: "pass", CORE: "import custody_sync"}
    for name, known in known_stores.items():
        found[name] = f"import {known.target.partition(':')[0]}"
        vendor = VENDORS[name]
        if vendors and importlib.util.find_spec(vendor.partition(".")[0]) is not None:
            found[f"{name}, vendor"] = f"import {vendor}"
    return found


def measure(*, quick: bool) -> Mapping[str, list[float]]:
    """Return the times of each line, one a round, taken in turns; quickly without the vendors, and once."""
    code, taken = lines(vendors=not quick), dict[str, list[float]]()
    for line in code.values() if not quick else ():
        seconds_of(line)  # compiles what is not compiled yet
    order = list(code)
    for _ in range(1 if quick else ROUNDS):
        random.shuffle(order)
        for name in order:
            taken.setdefault(name, []).append(seconds_of(code[name]))
    return taken


def main() -> int:
    """Measure, show, and conclude."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    quick = parser.parse_args().quick
    taken = measure(quick=quick)
    floor = median(taken[BARE])
    print(f"{BARE}: {spread([1000 * seconds for seconds in taken[BARE]])} ms")
    figures = {name: median(times) / floor for name, times in taken.items() if name != BARE}
    for name, times in taken.items():
        if name != BARE:
            print(f"{name}: {figures[name]:.1f} × bare; {spread([1000 * t for t in times])} ms")
    return conclude("imports", figures, BOUND, enforced=not quick)


if __name__ == "__main__":
    sys.exit(main())
