"""The examples in a network namespace, where 169.254.169.254 is ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import Block, read_commands
from tests.docs.walks import SECONDS, is_shown
from tests.needs import need, need_namespaces

pytestmark = pytest.mark.timeout(300)


def test_built_in_address_is_ours_in_a_namespace(blocks: list[Block]) -> None:
    need("curl", "jq")
    need_namespaces(*(("--net",) if os.getuid() == 0 else ("--user", "--net")))

    for block in blocks:
        ((command, shown),) = read_commands(block.text)
        printed = subprocess.run(
            ["sh", "-c", command],
            cwd=block.page.parent,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        ).stdout
        assert is_shown(shown, printed), f"{block.place}: {command} printed:\n{printed}"
