"""Tasks are made by a TaskGroup or by gateway.aio only, also where ruff cannot see it.

Ruff bans `asyncio.create_task` by name; this test bans the method on everything that is not called a group: a loop's
`create_task` makes the same unowned task, which can vanish together with its error.
"""

from __future__ import annotations

import ast

from tests.meta.source_tree import PACKAGE, Source, python_sources

TASK_MAKERS = {"create_task", "ensure_future"}


def receiver_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def unowned_tasks(source: Source) -> list[str]:
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute) or node.attr not in TASK_MAKERS:
            continue
        name = receiver_name(node.value).lstrip("_")
        if not (name in {"tg", "group", "tasks"} or name.endswith(("_tg", "_group"))):
            found.append(f"{source.name}:{node.lineno}")
    return found


def test_only_aio_makes_tasks_outside_a_task_group() -> None:
    sources = [source for source in python_sources(PACKAGE) if source.name != "gateway/aio.py"]
    assert [place for source in sources for place in unowned_tasks(source)] == []


def test_a_task_made_on_the_loop_is_found() -> None:
    text = "def f(self, group):\n    group.create_task(g())\n    self._loop.create_task(g())\n    get_loop().create_task(g())\n"
    source = Source(path=PACKAGE / "made.py", text=text, tree=ast.parse(text))
    assert unowned_tasks(source) == ["gateway/made.py:3", "gateway/made.py:4"]
