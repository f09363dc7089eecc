"""Every bound of the history store in one value: where it is, how long it remembers, how much may wait.

Read by all of `gateway.store`, made by `gateway.app` from the settings.  Holds no state.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class StorePolicy(Struct, frozen=True, kw_only=True):
    """Limits of the store; the first three come from the operator, the rest are proportions that fit them.

    ``keep_days`` and ``keep_bytes`` bound what is remembered (0: no bound); the size counted is that of the pages in
    use, not of the write-ahead log beside the file (about ``log_bytes``, then a checkpoint brings it into the file).
    ``pending_records`` may wait for the disk, more are dropped and counted.  A batch is written ``flush_s`` after its
    first record, when ``batch_records`` wait or when a question comes; every page of an index that a batch touches is
    written once, so a large batch costs less for each row.  Each tick removes at most ``trim_records`` old rows and
    gives at most ``vacuum_pages`` back to the file system, while ``spare_pages`` stay for the rows to come.  Files up
    to ``check_bytes`` are checked whole when they are opened; new ones have pages of ``page_bytes``: four rows fit in
    8 KiB, so that less of a page stays empty and fewer pages are written.  A question may take the disk ``query_s`` and
    its asker ``answer_s``; work on the disk that goes on for ``hung_s`` is told as a problem.  After a failure the file
    is opened again after ``retry_first_s``, then twice that, up to ``retry_max_s``; a damaged one is moved aside at
    most once in ``move_aside_every_s``.
    """

    path: Path
    keep_days: float = 30.0
    keep_bytes: int = 1024 * 1024 * 1024
    pending_records: int = 10_000
    pending_questions: int = 64
    batch_records: int = 1024
    flush_s: float = 1.0
    tick_s: float = 1.0
    busy_s: float = 2.0
    check_bytes: int = 64 * 1024 * 1024
    query_s: float = 2.0
    answer_s: float = 5.0
    hung_s: float = 10.0
    retry_first_s: float = 1.0
    retry_max_s: float = 30.0
    move_aside_every_s: float = 60.0
    trim_records: int = 1024
    vacuum_pages: int = 512
    spare_pages: int = 256
    cache_bytes: int = 8 * 1024 * 1024
    log_bytes: int = 16 * 1024 * 1024
    page_bytes: int = 8192
