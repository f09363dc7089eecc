"""What was found about the ends of a server and of a client, one finding a check: recorded, and watched here.

A server that a check strikes is its own. Order matters where a real engine costs a start: see `conftest.py`.
"""

from __future__ import annotations

import signal

import pytest

from tests.conformance import endings
from tests.conformance.endings import Ending, await_line, await_none_left
from tests.conformance.servers import Lender, SimulatedServers
from tests.conformance.targets import Target, exchange
from tests.fakes.recordings import RecordedEnd

# What an engine that computes on two busy cores needs for a long answer; a simulated one does not come near it.
DRAIN_WATCH_S = 60.0
# Requests that were recorded while a server drained.
NEW_TO_A_DRAIN = (
    "drain-new-request-0", "drain-new-request-1", "drain-new-responses", "drain-new-messages",
    "drain-new-messages-stream", "drain-new-count-tokens", "drain-new-detokenize", "drain-new-get",
)  # fmt: skip
# An engine's death, as a stream and as a whole answer tell it (recordings of endings have only the last bytes).
IN_BAND = 'See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}'
ENGINE_ERROR = (
    '{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.",'
    '"type":"InternalServerError","param":null,"code":500}}'
)
DONE = "\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def check_aborted(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert ending.stream.last.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    assert '"completion_tokens_details"' in ending.stream.last
    assert ending.nonstream.end is RecordedEnd.COMPLETE
    assert ending.exit_code == 0
    assert ending.refused_s is not None
    assert ending.core_gone_s is not None
    assert ending.left == []


@pytest.mark.parametrize("name", ["sigterm-run2", "sigterm-run4"])
def test_sigterm_aborts_recorded(name: str) -> None:
    check_aborted(endings.recorded(name))


@pytest.mark.parametrize("which", ["stream", "nonstream"])
@pytest.mark.parametrize("run", ["sigterm-run2", "sigterm-run4"])
def test_what_sigterm_aborts_has_the_finish_reason_abort_recorded(run: str, which: str, recorded: Target) -> None:
    assert b'"finish_reason":"abort"' in recorded.exchange(f"{run}-{which}").raw


def check_aborted_here(ending: Ending) -> None:
    check_aborted(ending)
    assert '"finish_reason":"abort"' in ending.stream.last
    assert '"finish_reason":"abort"' in ending.nonstream.last


def test_sigterm_aborts_simulated(simulated: SimulatedServers) -> None:
    check_aborted_here(endings.watched(simulated.own(sigterm="abort"), "term"))


def check_hangs(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.SILENCE
    assert ending.nonstream.end is RecordedEnd.SILENCE
    assert ending.core_gone_s is not None
    assert ending.refused_s is not None
    assert ending.exit_code is None
    assert len(ending.left) == 1


@pytest.mark.parametrize("name", ["sigterm", "sigterm-run5"])
def test_sigterm_hangs_recorded(name: str) -> None:
    check_hangs(endings.recorded(name))


def test_sigterm_hangs_simulated_until_the_clients_leave(simulated: SimulatedServers) -> None:
    server = simulated.own(sigterm="hang")
    ending = endings.watched(server, "insist")
    check_hangs(ending)
    assert len(ending.insisted_s) >= 2
    assert server.wait(within_s=10) == 0  # the clients of the watch have given up


def check_broken_off(ending: Ending) -> None:
    """Not recorded; seen of 0.32 since: the engine is gone before it reported, and the API process notices."""
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert IN_BAND in ending.stream.last
    assert ending.stream.last.endswith(DONE)
    assert ending.nonstream.end is RecordedEnd.COMPLETE
    assert ENGINE_ERROR in ending.nonstream.last
    assert ending.exit_code == 0
    assert ending.refused_s is not None
    assert ending.left == []


def test_sigterm_breaks_answers_off_simulated(simulated: SimulatedServers) -> None:
    check_broken_off(endings.watched(simulated.own(sigterm="error"), "insist"))


def test_sigterm_goes_one_of_the_three_ways_that_were_seen_and_leaves_nothing(servers: Lender) -> None:
    server = servers.own("base", sigterm="race")
    ending = endings.watched(server, "insist")
    if ending.stream.end is not RecordedEnd.COMPLETE:
        check_hangs(ending)
    elif IN_BAND in ending.stream.last:
        check_broken_off(ending)
    else:
        check_aborted_here(ending)
    assert server.wait(within_s=10) == 0
    await_none_left(server)


def check_drained(ending: Ending, *, tokens: int = 1900) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert '"finish_reason":"abort"' not in ending.stream.last
    assert f'"completion_tokens":{tokens}' in ending.stream.last
    assert ending.nonstream.end is RecordedEnd.COMPLETE
    # Once all is answered, a moment of 503 before the port closes has been seen too.
    assert {saw for at_s, saw in ending.health if at_s < ending.stream.after_s} == {"200"}
    assert ending.exit_code == 0
    assert ending.left == []
    assert ending.exit_s is not None
    assert ending.exit_s > ending.stream.after_s


@pytest.mark.parametrize("name", ["drain", "drain-new"])
def test_sigterm_with_a_timeout_drains_recorded(name: str) -> None:
    check_drained(endings.recorded(name))


def test_sigterm_with_a_timeout_drains_and_new_requests_are_refused(servers: Lender, recorded: Target) -> None:
    server = servers.own("guarded", speed=4.0)
    ending, refusals = endings.drained(server, NEW_TO_A_DRAIN, watch_s=DRAIN_WATCH_S, tokens=900)
    check_drained(ending, tokens=900)
    await_none_left(server)
    assert len(refusals) == len(NEW_TO_A_DRAIN)
    for name, refused in zip(NEW_TO_A_DRAIN, refusals, strict=True):
        theirs = recorded.exchange(name)
        assert (refused.status, refused.body) == (theirs.status, theirs.body), name
        assert [header for header in refused.headers if header != "x-request-id"] == list(theirs.headers), name


def test_sigterm_before_there_is_an_engine_core_ends_the_start(servers: Lender) -> None:
    """Not recorded of 0.26; 0.32 takes the signal as a Ctrl-C until EngineCore is there, and dies of that."""
    server = servers.starting("base", load_speed=20.0)
    await_line(server, "non-default args")
    server.send(signal.SIGTERM)
    assert server.wait(within_s=30) == -signal.SIGINT
    await_none_left(server)


def test_sigterm_while_loading_is_ignored_and_the_port_refuses_until_the_end(servers: Lender) -> None:
    server = servers.starting("base", load_speed=60.0)
    await_line(server, "Initializing a V1")
    assert not server.answers()
    server.send(signal.SIGTERM)
    server.await_ready()
    assert server.exit_code() is None
    assert exchange(server.port, "get-health").status == 200
    servers.adopt(server, "base")


def check_killed(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.EOF
    assert not ending.stream.last.endswith("0\r\n\r\n")
    assert ending.nonstream.end is RecordedEnd.EOF
    assert ending.exit_code == -9
    assert ending.refused_s is not None
    assert ending.core_gone_s is None  # it lives on, without a parent


def test_sigkill_of_the_api_process_recorded() -> None:
    ending = endings.recorded("sigkill")
    check_killed(ending)
    assert "VLLM::EngineCor" in ending.left


def test_sigkill_of_the_api_process_leaves_an_orphan_until_its_group_is_killed(servers: Lender) -> None:
    server = servers.own("base")
    ending = endings.watched(server, "kill")
    check_killed(ending)
    assert ending.left == ["core"]
    assert server.left()
    if servers.name == "real":  # a simulated one holds only what it says it holds: the next check
        assert endings.resident_bytes(server.left()) > 1 << 29
    server.kill()
    await_none_left(server)


def test_an_orphan_keeps_the_memory(simulated: SimulatedServers) -> None:
    server = simulated.own()
    server.send(signal.SIGKILL)
    assert server.wait(within_s=5) == -9
    (held,) = endings.holders(server.card)
    assert held.bytes_each > 1 << 36
    server.kill()
    endings.await_no_holder(server.card)


def check_engine_died(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert IN_BAND in ending.stream.last
    assert ending.stream.last.endswith(DONE)
    assert ENGINE_ERROR in ending.nonstream.last
    assert "503" in {saw for _, saw in ending.health}
    assert ending.refused_s is not None
    assert ending.exit_code == 0
    assert ending.left == []


def test_an_engines_death_ends_the_process_with_code_0_recorded() -> None:
    check_engine_died(endings.recorded("engine-killed"))


def test_an_engines_death_ends_the_process_with_code_0(servers: Lender) -> None:
    server = servers.own("base")
    check_engine_died(endings.watched(server, "kill-core"))
    await_none_left(server)


def test_an_injected_crash_ends_it_in_the_same_way(simulated: SimulatedServers) -> None:
    server = simulated.own()
    server.control("/drift", {"kind": "crash", "magnitude": 1.0})
    assert server.wait(within_s=10) == 0
