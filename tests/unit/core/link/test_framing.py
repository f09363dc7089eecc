"""Framing: messages survive any cut; what is too large or no message ends the connection, and is never kept."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.link.framing import MAX_MESSAGE_BYTES, control_messages, frame, worker_messages
from gateway.core.link.messages import (
    BackendFailure,
    DrainAck,
    Heartbeat,
    Hello,
    NewSnapshot,
    Pulse,
    Refused,
    RequestRecord,
    Settled,
    Shares,
)
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import BackendView, ModelCard, PoolView, Snapshot
from gateway.core.stream.summary import Ending, Exactness, Flag, Outcome, StreamSummary
from gateway.errors import LinkGarbled

RECORD = RequestRecord(
    request_id="r-1",
    slot=0,
    accepted_wall=1.5,
    endpoint="/v1/chat/completions",
    method="POST",
    status=200,
    outcome=Outcome.OK,
    ending=Ending.COMPLETE,
    summary=StreamSummary(completion_tokens=7, total_exactness=Exactness.EXACT, flags=(Flag.TOOL_CALLS,)),
)
FROM_WORKER = [
    Hello(protocol=1, slot=0, pid=17, started_wall=1.0),
    Heartbeat(
        slot=0, sent_at=2.0, generation=3, in_flight={"a": 1}, holding=1, connections=2, outcomes={"e|m|a|ok|200": 9}
    ),
    Settled(slot=0, records=[RECORD], failures=[BackendFailure(backend="a", code="backend_died", at=4.0)]),
    DrainAck(slot=0, backend="a", generation=3, in_flight=0),
]
FROM_CONTROL = [
    NewSnapshot(
        snapshot=Snapshot(
            generation=4,
            pools=(PoolView(name="p"),),
            backends=(BackendView(name="a", pool="p", url="http://127.0.0.1:1", state=BackendState.SERVING),),
            cards=(ModelCard(id="m", raw=b'{"id":"m"}'),),
        )
    ),
    Shares(in_flight_limit=10, others_in_flight={"a": 2}),
    Pulse(backend="a", generation_tokens=1e6, read_at=5.0),
    Refused(reason="no"),
]


@pytest.mark.parametrize(
    "messages,machine", [(FROM_WORKER, worker_messages), (FROM_CONTROL, control_messages)], ids=["worker", "control"]
)
@given(data=st.data())
def test_messages_survive_any_cut(messages, machine, data) -> None:
    framed = b"".join(frame(message) for message in messages)
    cuts = data.draw(st.lists(st.integers(0, len(framed))))
    framer = machine()
    edges = [0, *sorted(cuts), len(framed)]
    heard = [message for start, end in itertools.pairwise(edges) for message in framer.feed(framed[start:end])]
    assert heard == messages


def test_a_frame_over_the_bound_is_refused_from_its_length_alone() -> None:
    framer = worker_messages(max_bytes=100)
    with pytest.raises(LinkGarbled, match="a message of 101 bytes is over the bound of 100"):
        framer.feed((101).to_bytes(4, "big"))


def test_a_frame_at_the_bound_passes() -> None:
    message = DrainAck(slot=0, backend="a" * 50, generation=1, in_flight=0)
    size = len(frame(message)) - 4
    assert worker_messages(max_bytes=size).feed(frame(message, max_bytes=size)) == [message]
    with pytest.raises(LinkGarbled, match="a DrainAck of"):
        frame(message, max_bytes=size - 1)


def test_the_other_sides_messages_are_refused() -> None:
    with pytest.raises(LinkGarbled, match="not a message of the link"):
        worker_messages().feed(frame(Refused(reason="no")))


def test_after_a_fault_everything_is_refused() -> None:
    framer = worker_messages()
    with pytest.raises(LinkGarbled):
        framer.feed(b"\xff" * 8)
    with pytest.raises(LinkGarbled):
        framer.feed(frame(FROM_WORKER[0]))


def bodies() -> st.SearchStrategy[bytes]:
    values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
    tags = st.sampled_from(["hello", "heartbeat", "settled", "drain_ack"])
    tagged = st.builds(lambda tag, rest: {**rest, "type": tag}, tags, st.dictionaries(st.text(), values))
    return st.binary() | (values | tagged).map(msgspec.msgpack.encode)


@given(bodies())
@settings(max_examples=200, deadline=None)
def test_any_body_is_a_message_or_one_kind_of_error(body: bytes) -> None:
    framer, framed = worker_messages(), len(body).to_bytes(4, "big") + body
    try:
        heard = framer.feed(framed)
    except LinkGarbled:
        with pytest.raises(LinkGarbled):
            framer.feed(frame(FROM_WORKER[0]))
    else:
        assert worker_messages().feed(b"".join(map(frame, heard))) == heard
        assert len(heard) == 1


def test_deep_nesting_is_refused_like_other_garbage() -> None:
    body = b"\x82\xa4type\xa5hello\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(LinkGarbled):
        worker_messages().feed(len(body).to_bytes(4, "big") + body)


def test_a_batch_of_the_widest_records_is_far_below_the_bound() -> None:
    wide = msgspec.structs.replace(RECORD, model="m" * 256, request_id="r" * 128)
    assert len(frame(Settled(slot=0, records=[wide] * 256))) < MAX_MESSAGE_BYTES / 10


def test_a_number_that_no_message_can_hold_costs_the_message_alone() -> None:
    with pytest.raises(LinkGarbled, match="beyond 64 bits"):
        frame(DrainAck(slot=0, backend="a", generation=2**64, in_flight=0))
