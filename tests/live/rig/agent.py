"""The command-line agent (pi) that `run.sh` installs, configured as docs/clients.md says.

It runs in a folder of its own that is its home as well: nothing of the machine's user is read or written.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.rig.npm import node
from tests.live.rig.screen import AtTerminal

FOLDER = Path(__file__).resolve().parent.parent / "agent"
PROGRAM = FOLDER / "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
# With only the one tool, so that the tiny model has the choice that it was made for.
ARGUMENTS = [
    *("--no-builtin-tools", "--no-extensions", "--no-mcp", "--no-skills", "--no-context-files", "--offline"),
    *("--extension", str(FOLDER / "weather.ts"), "--system-prompt", "Be brief."),
]
COLUMNS, ROWS = 100, 60
ANSWER_S = 90.0


def models(base_url: str, api: str) -> dict[str, Any]:
    """The agent's models.json: where the model is and which API it is asked by; the key is in the environment."""
    compat = {
        "openai-completions": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
        "openai-responses": {"supportsDeveloperRole": False},
        "anthropic-messages": {"forceAdaptiveThinking": True},
    }[api]
    model = {"id": "tiny", "reasoning": True, "contextWindow": 32_768, "maxTokens": 600}
    provider = {"baseUrl": base_url, "api": api, "apiKey": "$PACEKEEPER_KEY", "compat": compat, "models": [model]}
    return {"providers": {"pacekeeper": provider}}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the agent had on its screen in the end, and what it wrote down itself."""

    lines: list[str]
    words: str
    messages: list[dict[str, Any]]

    def parts(self, role: str, kind: str) -> list[dict[str, Any]]:
        """The parts of one kind in the messages of one role."""
        return [
            part
            for message in self.messages
            if message["role"] == role
            for part in message["content"]
            if part["type"] == kind
        ]


def environment(folder: Path, key: str) -> dict[str, str]:
    """The agent's whole environment."""
    path = f"{Path(node()).parent}:/usr/local/bin:/usr/bin:/bin"
    own = {"PACEKEEPER_KEY": key, "HOME": str(folder)}
    return {"PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8", **own}


def written(sessions: Path) -> list[dict[str, Any]]:
    """The messages of the agent's session so far; a line that is being written is none yet."""
    whole = [row for file in sessions.rglob("*.jsonl") for row in file.read_text().split("\n")[:-1]]
    rows = [json.loads(row) for row in whole]
    return [row["message"] for row in rows if row["type"] == "message"]


def ask(folder: Path, prompt: str, *, base_url: str, api: str, key: str) -> Seen:
    """Start the agent with a prompt and watch until its last answer stands there; then leave it by its own keys."""
    config = folder / ".pi/agent"
    config.mkdir(parents=True)
    (config / "models.json").write_text(json.dumps(models(base_url, api), indent=1))
    sessions = folder / "sessions"
    command = [node(), str(PROGRAM), *ARGUMENTS, "--session-dir", str(sessions)]
    with AtTerminal(
        [*command, "--model", "pacekeeper/tiny", prompt],
        cwd=folder,
        env=environment(folder, key),
        columns=COLUMNS,
        rows=ROWS,
    ) as agent:

        def answered() -> bool:
            if agent.ended():
                raise AssertionError("\n".join(["the agent ended by itself:", *agent.screen.lines]))
            messages = written(sessions)
            if not messages or messages[-1].get("stopReason") in (None, "toolUse"):
                return False
            shown = [part["text"] for part in messages[-1]["content"] if part["type"] == "text"]
            return all(" ".join(text.split()) in agent.screen.words for text in shown)

        agent.until(answered, "the agent's last answer on its screen", within_s=ANSWER_S)
        seen = Seen(agent.screen.lines, agent.screen.words, written(sessions))
        agent.type("\x04")
        agent.until(agent.ended, "the agent's end after Ctrl-D", within_s=20)
    return seen
