"""Run a Postgres with pgvector on loopback, from a Python package, as root too; its data go when it ends.

    python docker/live/postgres.py --port 54329

It needs custody-sync with the extra `demo`. For one whose data stay see docker/compose.yaml.
"""

from __future__ import annotations

import argparse

from services import until_told

from custody_sync.testing.postgres import EmbeddedPostgres

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Postgres with pgvector on loopback.")
    parser.add_argument("--port", type=int, default=54329)
    port = parser.parse_args().port
    with EmbeddedPostgres(port=port):
        print(f"postgresql://postgres@127.0.0.1:{port}/postgres", flush=True)
        until_told()
