"""What the tests of the scheduler have in common."""

from typing import Final

FLEET: Final = """
[[availability_set]]
name = "web"
[[virtual_machine]]
name = "web-0"
availability_set = "web"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
"""
