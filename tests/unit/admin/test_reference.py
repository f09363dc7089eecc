from gateway.admin.reference import render


def test_the_page_names_every_route_with_its_scope() -> None:
    page = render()
    for row in (
        "| GET | `/health` | open | The control process answers. |",
        "| GET | `/metrics` | open |",
        "| GET | `/admin/v1/status` | read |",
        "| POST | `/admin/v1/config/reload` | admin |",
        "| GET | `/admin/v1/events` | read |",
    ):
        assert row in page


def test_the_page_tells_what_may_be_asked_for() -> None:
    page = render()
    assert "## GET /admin/v1/requests\n" in page
    assert "| `limit` | `50` | How many at most. |" in page
    assert "| `slowest` | `false` |" in page
    assert "## POST /admin/v1/config/check\n\nBody: The text of a configuration file" in page
    assert "## GET /admin/v1/status\n" not in page
