"""Read the subset of the Dockerfile language that this project's Dockerfile uses, and its .dockerignore.

Pure: text in, values out.  An instruction or flag that is not known here is refused, so that the check of the image
cannot skip a step that it does not understand.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

KNOWN = frozenset(
    {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word, its flags (without the dashes) and the rest of the line."""

    word: str
    flags: dict[str, str]
    rest: str
    line: int

    def json_words(self) -> list[str]:
        """The words of the exec form; ValueError for the shell form, which would put a shell around the process."""
        words = json.loads(self.rest)
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise ValueError(f"line {self.line}: {self.word} must be a JSON list of words")
        return words


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM with what follows it; `name` is empty where the stage has none."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def last(self, word: str) -> Instruction:
        """The instruction that counts where only the last one does; ValueError when there is none."""
        found = [instruction for instruction in self.instructions if instruction.word == word]
        if not found:
            raise ValueError(f"the stage from {self.base} has no {word}")
        return found[-1]


def parse(text: str) -> list[Stage]:
    """Split a Dockerfile into stages; ValueError with the line for anything unknown."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for instruction in instructions(text):
        if instruction.word == "ARG" and not stages:
            name, _, default = instruction.rest.partition("=")
            arguments[name] = default
        elif instruction.word == "FROM":
            base, _, name = instruction.rest.partition(" AS ")
            base = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match.group(1)], base)
            stages.append(Stage(base=base.strip(), name=name.strip(), instructions=()))
        elif stages:
            stage = stages[-1]
            stages[-1] = Stage(stage.base, name=stage.name, instructions=(*stage.instructions, instruction))
        else:
            raise ValueError(f"line {instruction.line}: {instruction.word} before FROM")
    return stages


def instructions(text: str) -> list[Instruction]:
    """The instructions in order, continued lines joined, comments dropped."""
    found = []
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not (line.strip() or pending):
            continue
        start = start if pending else number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        found.append(instruction(pending, line=start))
        pending = ""
    return found


def instruction(text: str, *, line: int) -> Instruction:
    """One instruction from its joined text."""
    word, _, rest = text.partition(" ")
    if word not in KNOWN:
        raise ValueError(f"line {line}: unknown instruction {word}")
    flags = {}
    while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest.lstrip()):
        flags[match.group(1)] = match.group(2)
        rest = rest.lstrip()[match.end() :]
    return Instruction(word=word, flags=flags, rest=rest.strip(), line=line)


def environment(rest: str) -> dict[str, str]:
    """The variables of one ENV instruction in its `name=value` form."""
    return dict(pair.split("=", 1) for pair in shlex.split(rest))


def is_ignored(path: str, *, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps a file out of the build; the last pattern that matches decides."""
    ignored = False
    for pattern in patterns:
        if pattern_matches(path, pattern=pattern.removeprefix("!")):
            ignored = not pattern.startswith("!")
    return ignored


def ignore_patterns(text: str) -> list[str]:
    """The patterns of a .dockerignore, comments and empty lines dropped."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pattern_matches(path: str, *, pattern: str) -> bool:
    """Whether a pattern names the path or a folder above it; `**/` stands for any folders."""
    candidates = [path, *(str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")]
    expression = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return any(re.fullmatch(expression, candidate) for candidate in candidates)
