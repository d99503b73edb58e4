"""Change one thing of the code at a time and see whether a test notices; what none notices is explained.

`make mutants` does so for every target of `targets.toml`, `make mutants TARGETS=rules` for one. It goes on
where it stopped: a mutant that was killed stays so while its function and the file of the test that killed it
are the same, another one is tried again as soon as anything has changed, and one whose trying was ended from
outside, or went wrong itself, in any case. It says how many were tried now and how many are known already.
`--fresh` forgets all that.

The counts are told as JSON in the file that CUSTODY_SYNC_MUTANTS_REPORT names. It fails on a survivor that
`survivors.toml` does not explain and on what could not be tried, but for targets whose survivors nobody has
gone through yet (`is_open`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mutants.making import (
    HERE,
    ROOT,
    WORK,
    Change,
    Target,
    changes_of,
    digest_of,
    digest_of_test,
    forget,
    make,
    read_targets,
)

WITHOUT = ("randomly", "cacheprovider", "xdist")
OPTIONS = (
    "-q",
    "--tb=no",
    "-p",
    "mutants.trying",
    *(part for name in WITHOUT for part in ("-p", f"no:{name}")),
)
OF_A_TEST, OF_THE_TREE, LIVING = "killed", ("endless", "alive", "untested"), ("alive", "untested")


@dataclass(slots=True, kw_only=True)
class Counts:
    """What became of the mutants of one target."""

    mutants: int
    killed: int = 0
    """Those that a test has noticed, which is named."""
    endless: int = 0
    """Those that used up all the time of a processor that they were allowed."""
    not_tried: int = 0
    """Those whose trying was ended from outside, or went wrong itself."""
    tried: int = 0
    """Those whose end was found in this run."""
    known: int = 0
    """Those whose end is known from an earlier run."""
    explained: int = 0
    unexplained: list[Change] = field(default_factory=list)
    seconds: float = 0.0
    """How long this run took, which may have had but a part to do."""

    @property
    def share(self) -> float:
        """How many of a hundred were killed."""
        return round(100 * self.killed / max(self.mutants, 1), 1)


def read_explained() -> dict[Change, str]:
    """Return the survivors that no test can tell from the code as it is, and why."""
    document = tomllib.loads((HERE / "survivors.toml").read_text())
    return {
        Change(one["function"], change["before"], change["after"]): one["reason"]
        for one in document["survivor"]
        for change in one["changes"]
    }


def read_ends(path: Path, mutants: dict[str, str], tree: str) -> dict[str, str]:
    """Return the mutants whose end is known.

    That of one that a test killed is as long as the file of that test is the same, that of any other one only
    as long as nothing at all has changed.
    """
    ends: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        if one["function"] == mutants.get(one["key"]) and is_still_so(one, path.parent, tree):
            ends[one["key"]] = one["end"]
    return ends


def is_still_so(one: dict[str, str], folder: Path, tree: str) -> bool:
    """Tell whether what came of a mutant would still come of it."""
    if one["end"] == OF_A_TEST:
        return bool(one.get("test")) and one["test"] == digest_of_test(folder, one["by"])
    return one["end"] in OF_THE_TREE and one["tree"] == tree


def try_target(name: str, target: Target, *, children: int) -> Counts:
    """Try the mutants of a target whose end is not known, and count what became of all.

    Raises:
        SystemExit: the tests do not hold without a mutant, or could not be run.
    """
    began, folder = time.monotonic(), WORK / name
    mutants, ends = make(folder, target), folder / "ends.jsonl"
    tree = digest_of(folder)
    known = read_ends(ends, mutants, tree)
    if left := {key: function for key, function in mutants.items() if key not in known}:
        work = folder / "work.json"
        work.write_text(json.dumps({"mutants": left, "tree": tree, "children": children, "ends": str(ends)}))
        if code := run_tests(folder, target, work):
            raise SystemExit(f"{name}: pytest ended with {code}; see {folder / 'log.txt'}")
    found = count(folder, mutants, read_ends(ends, mutants, tree))
    found.known, found.tried = len(known), found.mutants - found.not_tried - len(known)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def run_tests(folder: Path, target: Target, work: Path) -> int:
    """Run the tests of a target in its copy, against the mutants that are named in a file."""
    path = os.pathsep.join((str(folder), str(folder / "tests")))
    environment = {**os.environ, "PYTHONPATH": path, "CUSTODY_SYNC_MUTANTS_WORK": str(work)}
    command = [sys.executable, "-m", "pytest", *OPTIONS, *target["tests"]]
    with (folder / "log.txt").open("w") as log:
        return subprocess.run(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode


def count(folder: Path, mutants: dict[str, str], ends: dict[str, str]) -> Counts:
    """Count what became of the mutants of a target."""
    survivors = changes_of(folder, [key for key in mutants if ends.get(key) in LIVING])
    explained = read_explained()
    return Counts(
        mutants=len(mutants),
        killed=sum(end == OF_A_TEST for end in ends.values()),
        endless=sum(end == "endless" for end in ends.values()),
        not_tried=len(mutants) - len(ends),
        explained=sum(change in explained for change in survivors.values()),
        unexplained=sorted(change for change in survivors.values() if change not in explained),
    )


def tell(name: str, counts: Counts) -> None:
    """Print what became of a target."""
    print(
        f"{name}: {counts.mutants} mutants, {counts.killed} killed ({counts.share} %), {counts.explained} "
        f"explained, {len(counts.unexplained)} not explained, {counts.endless} endless, "
        f"{counts.not_tried} not tried; {counts.tried} tried now, {counts.known} known from before; "
        f"{counts.seconds} s",
        flush=True,
    )
    for change in counts.unexplained:
        print(f"  {change.function}\n    - {change.before}\n    + {change.after}")


def report(found: dict[str, Counts]) -> None:
    """Write the counts to the file that the environment names."""
    if path := os.environ.get("CUSTODY_SYNC_MUTANTS_REPORT"):
        told = {name: {**asdict(counts), "share": counts.share} for name, counts in found.items()}
        Path(path).write_text(json.dumps(told, indent=2) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Try the targets that are named, or all; 1 if a mutant was not noticed, nor explained, or not tried."""
    targets = read_targets()
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(targets)}; all if none is named")
    parser.add_argument("--fresh", action="store_true", help="forget what is known of each mutant")
    parser.add_argument("--children", type=int, default=2, help="how many mutants are tried at once")
    given = parser.parse_args(arguments)
    if unknown := set(given.targets) - targets.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    os.nice(19)
    os.chdir(ROOT)  # where mutmut finds its settings
    found: dict[str, Counts] = {}
    for name in given.targets or targets:
        if given.fresh:
            forget(WORK / name)
        found[name] = try_target(name, targets[name], children=given.children)
        tell(name, found[name])
        report(found)
    closed = [counts for name, counts in found.items() if not targets[name].get("is_open")]
    return int(any(counts.unexplained or counts.not_tried for counts in closed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
