from __future__ import annotations

import pytest

from gateway.simulator.routes import Route, find, response_id


@pytest.mark.parametrize(
    "path,found",
    [
        ("/v1/responses", (Route.RESPONSES, "POST")),
        ("/v1/responses/r", (Route.RESPONSE, "GET")),
        ("/v1/responses/r/cancel", (Route.CANCEL, "POST")),
        ("/v1/responses/r/other", None),
        ("/v1/responses/", None),
        ("/v1/responses/{}", (Route.RESPONSE, "GET")),
        ("/v1/messages/count_tokens", (Route.COUNT, "POST")),
        ("/nope", None),
    ],
)
def test_a_path_has_its_route(path: str, found: tuple[Route, str] | None) -> None:
    assert find(path) == found


def test_the_id_of_a_response_is_the_segment_after_its_path() -> None:
    assert response_id("/v1/responses/r/cancel") == "r"
