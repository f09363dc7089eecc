import json

import msgspec
import pytest

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, Outcome
from gateway.store.rows import COLUMNS, INSERT, Unreadable, from_row, to_row
from tests.fakes.settled import record_of


def test_a_record_comes_back_as_it_was() -> None:
    record = record_of()
    row = dict(zip(COLUMNS, to_row(record), strict=True))
    assert from_row(7, str(row["record"])).record == record
    assert from_row(7, str(row["record"])).id == 7


def test_the_columns_hold_what_the_record_and_its_summary_say() -> None:
    record = record_of()
    row = dict(zip(COLUMNS, to_row(record), strict=True))
    for name, cell in row.items():
        if name == "record":
            continue
        source = record if hasattr(record, name) else record.summary
        assert cell == getattr(source, name), name


def test_without_a_summary_the_rates_are_unknown_and_not_zero() -> None:
    record = RequestRecord(
        request_id="r",
        slot=0,
        accepted_wall=1.0,
        endpoint="models",
        method="GET",
        status=200,
        outcome=Outcome.OK,
        ending=Ending.COMPLETE,
    )
    row = dict(zip(COLUMNS, to_row(record), strict=True))
    assert [row[name] for name in ("decode_tps", "completion_tokens", "ttft_s")] == [None, None, None]


def test_the_cells_are_plain_values_that_a_database_takes() -> None:
    assert {type(cell) for cell in to_row(record_of())} <= {str, int, float, type(None)}


def test_the_record_is_json_that_any_tool_can_read() -> None:
    assert json.loads(str(to_row(record_of())[-1]))["request_id"] == "req-1"


def test_a_record_of_a_newer_release_is_read_without_its_new_fields() -> None:
    text = json.loads(str(to_row(record_of())[-1])) | {"invented_later": 1}
    assert from_row(1, json.dumps(text)).record == record_of()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"request_id": 1}', b"\xff"])
def test_what_is_no_record_is_unreadable(text: str | bytes) -> None:
    with pytest.raises(Unreadable):
        from_row(1, text)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        to_row(msgspec.structs.replace(record_of(), model="\ud800"))


def test_the_insert_has_a_place_for_every_column() -> None:
    assert INSERT.count("?") == len(COLUMNS) == len(to_row(record_of()))
