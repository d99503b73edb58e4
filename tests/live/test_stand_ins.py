"""The imitations of services, run like engines; beside a real server, for what that cannot be made to do."""

from __future__ import annotations

from contract import test_cognee_store, test_letta_store, test_mem0_hosted, test_zep_store

from live.engine import Engine, Live


class TestMem0(Live, test_mem0_hosted.TestMemoryClient):
    """Mem0's hosted service behind its own client."""

    engine = Engine("mem0-hosted", "Mem0 hosted", "mem0", "stand-in", ("mem0ai",))


class TestZep(Live, test_zep_store.TestZep):
    """Zep Cloud behind its own client."""

    engine = Engine("zep", "Zep Cloud", "zep", "stand-in", ("zep-cloud",))


class TestZepAsItIs(Live, test_zep_store.TestZepAsItIs):
    """Zep Cloud with what extraction leaves behind."""

    engine = Engine("zep-derived", "Zep Cloud that derives and merges", "zep", "stand-in", ("zep-cloud",))
    forgets_as = "unverified"


class TestLetta(Live, test_letta_store.TestLettaArchives):
    """A Letta server that lags and skips."""

    engine = Engine("letta-stand-in", "Letta", "letta", "stand-in", ("letta-client",))


class TestCognee(Live, test_cognee_store.TestCogneeStore):
    """A Cognee server that lags and skips."""

    engine = Engine("cognee-stand-in", "Cognee", "cognee", "stand-in", ("httpx",))
