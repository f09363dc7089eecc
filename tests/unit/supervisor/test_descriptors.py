"""The children can open as many descriptors as the host allows."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource
from gateway.supervisor.descriptors import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
assert raise_descriptor_limit() == 512
assert raise_descriptor_limit() == 512
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_becomes_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "(512, 512)"
