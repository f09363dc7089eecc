"""Which gateway a command talks to, and with which token.

Options win over the environment, the environment over the configuration file, the file over the defaults.  The token
is read, sent in one header and never shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.cli.exits import CommandFailed, Exit

CONFIG_PLACES: Final = (Path("config/gateway.yaml"), Path("/etc/pacekeeper/gateway.yaml"))
TOKEN_NAME: Final = "admin.token"  # noqa: S105 - the name of a file
_MAX_TOKEN_BYTES: Final = 4096
_GIVEN: Final = "this is the file that --token-file or PACEKEEPER_TOKEN_FILE names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was given on the command line or in the variables of the same names; None: not given."""

    config: Path | None = None
    operators: str | None = None
    token_file: Path | None = None

    def over(self, other: Options) -> Options:
        """These options, and those of ``other`` where these say nothing."""
        return Options(
            config=self.config or other.config,
            operators=self.operators or other.operators,
            token_file=self.token_file or other.token_file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Where the token comes from: ``value`` if it was given, else the file at ``path``.

    ``hint`` says what to do when there is no such file.
    """

    value: str = ""
    path: Path = Path()
    hint: str = field(default="", compare=False)

    def read(self) -> str:
        """The token.  Raises CommandFailed when it cannot be read or cannot be one."""
        token = self.value or _read_token(self.path, self.hint)
        if token and token.isascii() and token.isprintable() and " " not in token:
            return token
        raise CommandFailed(
            "the token is empty or holds characters that no token has", exit_code=Exit.NOT_AUTHORISED, code="bad_token"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the admin API is (``http://host:port``, ``https://host:port``, ``unix:/path``), and the token for it."""

    url: str
    token: Token


def config_file(options: Options) -> Path | None:
    """The configuration file that is meant: the one given, or the first that is there."""
    return options.config or next((path for path in CONFIG_PLACES if path.is_file()), None)


def find(options: Options, environ: Mapping[str, str] | None = None) -> Target:
    """Who to ask; the token is not read yet, since that nobody answers is the better thing to say.

    Raises CommandFailed (bad URL) and ConfigError.
    """
    from gateway.settings import Install, load  # noqa: PLC0415 - only what a command needs is loaded

    environ = os.environ if environ is None else environ
    given_token = environ.get("PACEKEEPER_TOKEN", "") if options.token_file is None else ""
    token_file = options.token_file or _as_path(environ.get("PACEKEEPER_TOKEN_FILE"))
    install, file = Install(), None
    if options.operators is None or not (token_file or given_token):
        file = config_file(options)
        install = load(file, environ=environ, look_at_host=False).install if file else install
    url = _given_url(options.operators) if options.operators else _to_reach(install.operators.listen)
    hint = _GIVEN if token_file else _hint(file)
    return Target(
        url=url, token=Token(value=given_token, path=token_file or install.runtime_dir / TOKEN_NAME, hint=hint)
    )


def _hint(file: Path | None) -> str:
    """Why there may be no token where ``file`` or, without one, the default says."""
    if file is None:
        return "no configuration file was given or found, so this is the default place; give --config or --token-file"
    return (
        f"this is the place by {file}; a gateway that was started with another file, or elsewhere with a relative "
        "runtime_dir, has it there: run this there, or give --token-file"
    )


def _as_path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _given_url(text: str) -> str:
    from gateway.settings.addresses import parse_url  # noqa: PLC0415 - only what a command needs is loaded

    try:
        return parse_url(text)
    except ValueError as error:
        raise CommandFailed(
            f"--operators: {error}", exit_code=Exit.USAGE, code="bad_url", hint='for example "http://127.0.0.1:8081"'
        ) from error


def _to_reach(listen: tuple[str, ...]) -> str:
    """The URL for the first listen address; one that means every address is reached by the loopback."""
    first = listen[0]
    if first.startswith("unix:"):
        return first
    host, _, port = first.rpartition(":")
    return f"http://{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"  # noqa: S104 - not bound here


def _read_token(path: Path, hint: str) -> str:
    try:
        return path.read_bytes()[:_MAX_TOKEN_BYTES].decode("ascii").strip()
    except FileNotFoundError as error:
        raise CommandFailed(
            f"no token at {path.absolute()}",
            exit_code=Exit.NOT_AUTHORISED,
            code="no_token",
            hint=hint,
        ) from error
    except PermissionError as error:
        raise CommandFailed(
            f"may not read the token at {path.absolute()}",
            exit_code=Exit.NOT_AUTHORISED,
            code="token_unreadable",
            hint="only the user that the gateway runs as can read it; try as that user, or give --token-file",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            f"cannot read the token at {path.absolute()}", exit_code=Exit.NOT_AUTHORISED, code="token_unreadable"
        ) from error
