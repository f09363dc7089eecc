"""A setting that changes nothing is worse than none: each is tried at two values, or names the file that shows it."""

from __future__ import annotations

import re

from gateway.settings.install import Install
from gateway.settings.runtime import Runtime
from gateway.settings.section import walk
from tests.integration.settings_elsewhere import ELSEWHERE
from tests.integration.test_every_setting import IN_FAKE_TIME, IN_REAL_TIME, IN_THE_LOG
from tests.integration.test_queue_settings import QUEUE_IN_FAKE_TIME, QUEUE_IN_REAL_TIME
from tests.integration.test_reasoning_settings import REASONING_IN_FAKE_TIME, REASONING_IN_REAL_TIME
from tests.meta.source_tree import ROOT

TABLES = (
    IN_FAKE_TIME,
    IN_REAL_TIME,
    IN_THE_LOG,
    ELSEWHERE,
    REASONING_IN_FAKE_TIME,
    REASONING_IN_REAL_TIME,
    QUEUE_IN_FAKE_TIME,
    QUEUE_IN_REAL_TIME,
)


def keys() -> list[str]:
    """Every key that holds a value, as the reference page spells it."""
    return [path for part in (Install, Runtime) for path, child in walk(part) if child.section is None]


def test_every_setting_is_tried_once_and_nothing_else_is() -> None:
    assert sorted(path for table in TABLES for path in table) == sorted(keys())


def test_a_setting_that_is_tried_elsewhere_stands_in_that_file() -> None:
    texts = {path: (ROOT / file).read_text(encoding="utf-8") for path, file in ELSEWHERE.items()}
    names = {path: path.rpartition(".")[2] for path in ELSEWHERE}
    assert [path for path, text in texts.items() if not re.search(rf"\b{names[path]}\b", text)] == []


def test_the_walk_finds_keys_of_every_depth() -> None:
    assert {"workers", "timers.stall_s", "pools[].backends[].url"} <= set(keys())
