"""What the installed vLLM's command line takes; run by that vLLM's own Python.

    PYTHON tests/live/engine/vllm_cli.py catalogue          flags, parsers and variables, as JSON
    PYTHON tests/live/engine/vllm_cli.py read <LINES      command lines (JSON) as `vllm serve` reads them; 2: a bad one

The first is kept as tests/data/vllm-0.32-serve.json, so that a misspelt flag is found without a vLLM.
"""

import argparse
import json
import sys

from vllm import envs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parser():
    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


def takes_value(action):
    return not isinstance(action, (argparse.BooleanOptionalAction, argparse._StoreTrueAction)) and action.nargs != 0


def catalogue():
    flags = {flag: takes_value(it) for it in parser()._actions for flag in it.option_strings}
    return {
        "flags": {flag: "value" if value else "none" for flag, value in sorted(flags.items())},
        "reasoning_parsers": sorted(ReasoningParserManager.list_registered()),
        "tool_parsers": sorted(ToolParserManager.list_registered()),
        "environment": sorted(name for name in envs.environment_variables if name.startswith("VLLM_")),
    }


def read(argv):
    """One command line, from `serve` on, as `vllm serve` reads it; exits with code 2 where it is wrong."""
    arguments = parser().parse_args(argv[1:])
    arguments.model = arguments.model_tag or arguments.model
    validate_parsed_serve_args(arguments)
    return {name: value if isinstance(value, (int, str)) else str(value) for name, value in vars(arguments).items()}


answer = catalogue() if sys.argv[1] == "catalogue" else [read(argv) for argv in json.load(sys.stdin)]
print(json.dumps(answer, indent=1))  # noqa: T201 - its output
