import msgspec

from gateway.admin.schemas import ConfigFaults, ErrorBody, RequestQuery
from gateway.core.stream.envelope import error_body
from gateway.core.stream.summary import Outcome
from gateway.errors import BadRequest
from gateway.ports import ConfigVerdict, RequestFilter


def test_a_query_asks_the_history_for_one_row_more_to_see_whether_another_page_follows() -> None:
    query = RequestQuery(limit=7, before=9, model="m", backend="b", outcome=Outcome.OK, slowest=True)
    assert query.filter() == RequestFilter(limit=8, before=9, model="m", backend="b", outcome="ok", slowest=True)
    assert RequestQuery().filter() == RequestFilter(limit=51)


def test_every_filter_of_the_history_can_be_asked_for() -> None:
    assert set(RequestQuery.__struct_fields__) == set(RequestFilter.__struct_fields__)


def test_the_error_shape_is_the_one_that_all_errors_have() -> None:
    body = msgspec.json.decode(error_body(BadRequest("no", param="p"), None), type=ErrorBody)
    assert (body.error.message, body.error.param, body.error.code) == ("no", "p", "bad_request")
    assert msgspec.json.decode(error_body(BadRequest("no"), None)).keys() == {"error"}


def test_refused_configurations_hold_the_whole_verdict() -> None:
    assert set(ConfigFaults.__struct_fields__) == {"error", *ConfigVerdict.__struct_fields__}
