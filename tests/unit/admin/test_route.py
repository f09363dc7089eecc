import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from gateway.admin.route import Route, read_query, require_declared
from gateway.admin.schemas import RequestQuery
from gateway.core.stream.summary import Outcome
from gateway.errors import BadRequest


def query(text: str) -> RequestQuery:
    return read_query(make_mocked_request("GET", f"/x?{text}"), RequestQuery)


def test_a_query_is_read_into_its_struct() -> None:
    assert query("") == RequestQuery()
    assert query("limit=7&before=99&model=m%2F1&backend=a&outcome=client_gone&slowest=true") == RequestQuery(
        limit=7, before=99, model="m/1", backend="a", outcome=Outcome.CLIENT_GONE, slowest=True
    )
    assert query("slowest=0").slowest is False


@pytest.mark.parametrize(
    "text,param",
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("before=-1", "before"),
        ("before=99999999999999999999", "before"),
        ("outcome=fine", "outcome"),
        ("slowest=maybe", "slowest"),
        (f"model={'m' * 257}", "model"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_an_ill_formed_parameter_is_named(text: str, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        query(text)
    assert caught.value.param == param


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="modell"):
        query("modell=x")


async def _handle(_request: web.Request, *_: object) -> web.StreamResponse:
    return web.Response()


def test_a_route_without_a_declared_scope_is_found() -> None:
    app = web.Application()
    app.router.add_get("/known", _handle)
    require_declared(app, {_handle})
    with pytest.raises(RuntimeError, match="/known: a route without a declared scope"):
        require_declared(app, set())


def test_a_route_cannot_be_made_without_a_scope() -> None:
    with pytest.raises(TypeError, match="scope"):
        Route(name="x", method="GET", path="/x", handle=_handle, summary="", answer="text/plain")  # type: ignore[call-arg]
