"""The Dockerfile can be read by the check that carries it out, and keeps to what an image must be.

The image itself is built and tried by `make docker-check`; here is what reading alone can tell.
"""

from __future__ import annotations

import shlex

import pytest

from deploy.docker.dockerfile import Stage, ignore_patterns, instructions, is_ignored, parse
from tests.meta.source_tree import ROOT

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PATTERNS = ignore_patterns((ROOT / ".dockerignore").read_text(encoding="utf-8"))


def stages() -> list[Stage]:
    return parse(TEXT)


def test_it_builds_in_one_stage_and_runs_in_another() -> None:
    assert [stage.name for stage in stages()] == ["build", ""]


def test_the_image_runs_as_a_numeric_user_that_is_not_root() -> None:
    user, _, group = stages()[-1].last("USER").rest.partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_process_is_started_without_a_shell_around_it() -> None:
    final = stages()[-1]
    assert final.last("ENTRYPOINT").json_words() == ["pacekeeper"]
    assert final.last("CMD").json_words()[0] == "serve"


def test_every_installation_is_hash_pinned_or_local() -> None:
    commands = [
        part for stage in stages() for i in stage.instructions if i.word == "RUN" for part in i.rest.split("&&")
    ]
    installs = [command for command in commands if "pip install" in command]
    assert installs
    assert [command for command in installs if "--require-hashes" not in command and "--no-index" not in command] == []


def test_everything_that_is_copied_from_the_tree_exists_and_reaches_the_builder() -> None:
    sources = [
        source
        for stage in stages()
        for instruction in stage.instructions
        if instruction.word == "COPY" and "from" not in instruction.flags
        for source in shlex.split(instruction.rest)[:-1]
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists() or is_ignored(source, patterns=PATTERNS)] == []


@pytest.mark.parametrize("name", [".git/config", ".venv/bin/python", "tests/meta/x.py", "gateway/__pycache__/x.pyc"])
def test_what_the_image_does_not_need_is_kept_from_the_builder(name: str) -> None:
    assert is_ignored(name, patterns=PATTERNS)


def test_continued_lines_are_one_instruction() -> None:
    assert [i.rest for i in instructions("RUN one \\\n  && two\n\n# a comment\nRUN three\n")] == ["one && two", "three"]


def test_flags_are_split_from_the_rest() -> None:
    (found,) = instructions("COPY --from=build --link=true /a /b\n")
    assert found.flags == {"from": "build", "link": "true"}
    assert found.rest == "/a /b"


@pytest.mark.parametrize("text", ["FROM x\nADD a b\n", "RUN before\n", "FROM x\nrun lower\n"])
def test_what_the_check_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        parse(text)


def test_a_command_in_shell_form_is_refused() -> None:
    (stage,) = parse('FROM x\nCMD "pacekeeper serve"\n')
    with pytest.raises(ValueError, match="JSON list"):
        stage.last("CMD").json_words()
