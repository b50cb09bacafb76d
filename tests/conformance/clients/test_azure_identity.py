"""azure-identity, unmodified, on a machine that asks 169.254.169.254 for a token."""

import json

import pytest
from tests.conformance.clients.conftest import INSTALLED, NODES, PROGRAMS, Network, need, run

pytestmark = pytest.mark.timeout(300)

PYTHON = INSTALLED / "ai4s-jobq" / "bin" / "python"
"""ai4s-jobq depends on azure-identity."""


def test_token_is_refused_at_once(network: Network) -> None:
    need(PYTHON)
    ask = (PYTHON, PROGRAMS / "ask_for_tokens.py")

    lines = run(*network.machines[NODES[0]].enter(*ask)).splitlines()

    answers = {answer["credential"]: answer for answer in map(json.loads, lines)}
    assert answers.keys() == {"ManagedIdentityCredential", "DefaultAzureCredential"}
    for answer in answers.values():
        assert "Identity not found" in answer["error"]
        assert answer["seconds"] < 3
