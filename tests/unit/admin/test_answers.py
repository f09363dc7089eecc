import msgspec
import pytest

from gateway.admin.answers import error_answer, json_answer, status_of, whole
from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, EngineMetrics, Outcome, StreamSummary
from gateway.errors import BadRequest, ConfigError, NotAuthenticated, StoreUnusable, TooManyAttempts
from gateway.ports import StoredRequest
from tests.fakes.settled import record_of

BARE = RequestRecord(
    request_id="r",
    slot=0,
    accepted_wall=1.0,
    endpoint="models",
    method="GET",
    status=200,
    outcome=Outcome.OK,
    ending=Ending.COMPLETE,
)


def test_every_field_is_named_even_where_nothing_is_known() -> None:
    found = msgspec.json.decode(json_answer(StoredRequest(id=1, record=BARE)).body)
    assert set(found["record"]) == set(RequestRecord.__struct_fields__)
    assert found["record"]["ttft_s"] is None
    assert found["record"]["summary"] is None


def test_structs_inside_structs_are_whole_too() -> None:
    record = msgspec.structs.replace(BARE, summary=StreamSummary(engine=EngineMetrics(mean_itl_ms=12.5)))
    summary = whole(record)["summary"]
    assert set(summary) == set(StreamSummary.__struct_fields__)
    assert set(summary["engine"]) == set(EngineMetrics.__struct_fields__)
    assert summary["engine"]["mean_itl_ms"] == 12.5


def test_what_is_sent_can_be_read_back_as_the_record() -> None:
    body = json_answer(StoredRequest(id=1, record=record_of())).body
    assert msgspec.json.decode(body, type=StoredRequest).record == record_of()


def test_dictionaries_and_lists_keep_their_values() -> None:
    assert whole({"a": [1, (2, 3)], "b": Outcome.OK}) == {"a": [1, [2, 3]], "b": "ok"}


def test_an_error_comes_in_the_one_shape_with_its_mark() -> None:
    answer = error_answer(BadRequest("no such thing", param="limit"))
    assert answer.status == 400
    assert answer.headers["X-Gateway-Error"] == "1"
    assert msgspec.json.decode(answer.body) == {
        "error": {"message": "no such thing", "type": "invalid_request_error", "param": "limit", "code": "bad_request"}
    }


def test_errors_bring_the_headers_that_go_with_them() -> None:
    assert error_answer(TooManyAttempts("wait", retry_after_s=0.2)).headers["Retry-After"] == "1"
    assert error_answer(TooManyAttempts("wait", retry_after_s=2.1)).headers["Retry-After"] == "3"
    assert error_answer(NotAuthenticated("who?")).headers["WWW-Authenticate"].startswith("Bearer")
    assert error_answer(BadRequest("no"), allow="GET").headers["Allow"] == "GET"


@pytest.mark.parametrize(
    "error,status", [(StoreUnusable("full"), 503), (ConfigError("bad"), 422), (BadRequest("no"), 400)], ids=repr
)
def test_a_store_in_trouble_is_no_fault_of_the_question(error: StoreUnusable, status: int) -> None:
    assert status_of(error) == status


def test_answers_are_neither_kept_nor_guessed_at_and_do_not_name_the_server() -> None:
    headers = json_answer(StoredRequest(id=1, record=BARE)).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "aiohttp" not in headers["Server"]
