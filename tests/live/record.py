"""The results of a run by engine, as one JSON document that a later run of other engines adds to."""

from __future__ import annotations

import json
import math
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from custody_sync import __version__
from custody_sync.ports import capabilities
from custody_sync.testing.contract import RULES
from live.engine import LATENCIES, NOTES, SWEEPS, VERSION, Live

_TITLES = {f"test_{rule.rule_id.lower().replace('-', '')}_{rule.name}": rule.rule_id for rule in RULES}
_VERDICTS = {"passed": "passed", "skipped": "not_applicable", "failed": "failed"}


class Record:
    """Collects what the tests of each engine showed."""

    def __init__(self) -> None:
        self.engines: dict[str, dict[str, Any]] = {}

    def take(
        self, kind: type[Live], item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]
    ) -> None:
        """Take one phase of one test: its call, or a setup or teardown that went wrong."""
        if report.when != "call" and report.passed:
            return
        row = self.engines.setdefault(kind.engine.key, _fresh(kind))
        store = getattr(item, "funcargs", {}).get("store")
        if store is not None and not row["capabilities"]:
            row |= _described(store)
        verdict, reason = _VERDICTS[report.outcome], _reason(report, call)
        rule = _TITLES.get(getattr(item, "originalname", item.name))
        if rule is not None:
            row["rules"][rule] = {"verdict": verdict, "reason": reason}
        else:
            row["runs"][item.name] = {"verdict": verdict, "reason": reason}
        for name, value in item.user_properties:
            if name == LATENCIES:
                row["latency"] = _summed(dict(value))
            elif name in (NOTES, SWEEPS, VERSION):
                row[name] = value

    def write(self, path: Path) -> None:
        """Put these engines' results in place of their earlier ones."""
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        rules = {rule.rule_id: rule.title for rule in RULES}
        engines = known.get("engines", {}) | self.engines
        document = {"rules": rules, "engines": dict(sorted(engines.items()))}
        path.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def _fresh(kind: type[Live]) -> dict[str, Any]:
    engine = kind.engine
    return {
        "title": engine.title,
        "adapter": engine.adapter,
        "kind": engine.kind,
        "ran": True,
        "why": "",
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
        "with": f"custody-sync {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores",
        "versions": {name: _version(name) for name in engine.packages},
        "crowd": kind.crowd,
        "bulk": kind.bulk,
        "many": kind.many,
        "forgets_as": kind.forgets_as,
        "capabilities": {},
        "limits": {},
        "rules": {},
        "runs": {},
        "notes": [],
        "latency": {},
    }


def _described(store: Any) -> dict[str, Any]:
    supports = capabilities(store).items()
    limits = getattr(store, "limits", None)
    return {
        "capabilities": {c.value: {"level": s.level.value, "reason": s.reason} for c, s in supports},
        "limits": {word: getattr(limits, word, None) for word in ("text_chars", "text_bytes")},
    }


def _reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    if report.passed or call.excinfo is None:
        return ""
    # A failure's first line names rule, expectation and finding; the rest is for whoever debugs it.
    said = str(call.excinfo.value).strip().splitlines() or [""]
    return said[0][:300] if report.skipped else f"{call.excinfo.typename}: {said[0]}"[:300]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _summed(taken: dict[str, Any]) -> dict[str, Any]:
    listed = taken.pop("listed")
    rows = {name: _quantiles(seconds) for name, seconds in taken.items()}
    rows["list"] |= {"entries": listed}
    return rows


def _quantiles(seconds: list[float]) -> dict[str, Any]:
    """Return the median and the nearest-rank 95th percentile, in milliseconds."""
    ranked = sorted(seconds)
    at = {name: ranked[math.ceil(share * len(ranked)) - 1] for name, share in (("p50", 0.5), ("p95", 0.95))}
    return {name: round(value * 1000, 2) for name, value in at.items()} | {"calls": len(ranked)}
