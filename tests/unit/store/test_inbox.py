import threading

import pytest

from gateway.errors import StoreUnusable
from gateway.store.inbox import Inbox, Question
from gateway.store.policy import StorePolicy
from tests.fakes.settled import record_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inbox(tmp_path, clock: Clock) -> Inbox:
    policy = StorePolicy(path=tmp_path / "h.db", pending_records=5, batch_records=2, pending_questions=2, flush_s=0.5)
    return Inbox(policy, clock)


def records(count: int) -> list:
    return [record_of(f"r{at}") for at in range(count)]


def test_records_come_in_order_in_batches_and_stay_until_they_are_done(inbox: Inbox) -> None:
    inbox.add(records(3))
    assert [record.request_id for record in inbox.batch()] == ["r0", "r1"]
    assert [record.request_id for record in inbox.batch()] == ["r0", "r1"]
    inbox.done(2)
    assert [record.request_id for record in inbox.batch()] == ["r2"]
    inbox.done(1)
    assert inbox.batch() == []


def test_what_finds_no_room_is_dropped_and_counted(inbox: Inbox) -> None:
    inbox.add(records(4))
    inbox.add(records(4))
    inbox.add(records(4))
    assert inbox.dropped == 7
    inbox.done(2)
    inbox.add(records(2))
    assert inbox.dropped == 7


def test_nothing_is_taken_after_the_end(inbox: Inbox) -> None:
    inbox.close()
    inbox.add(records(2))
    assert inbox.closing
    assert inbox.dropped == 2
    assert not inbox.ask(Question(lambda database: database.rows))


def test_what_cannot_be_written_at_the_end_is_counted(inbox: Inbox) -> None:
    inbox.add(records(3))
    inbox.abandon()
    assert inbox.dropped == 3
    assert inbox.batch() == []


def test_too_many_questions_are_turned_away(inbox: Inbox) -> None:
    questions = [Question(lambda database: database.rows) for _ in range(3)]
    assert [inbox.ask(question) for question in questions] == [True, True, False]
    assert [inbox.next_question() for _ in range(3)] == [questions[0], questions[1], None]


@pytest.mark.parametrize("waiting", ["records", "question", "end"])
def test_the_wait_ends_with_whatever_comes(inbox: Inbox, clock: Clock, waiting: str) -> None:
    match waiting:
        case "records":
            inbox.add(records(2))
        case "question":
            inbox.ask(Question(lambda database: database.rows))
        case _:
            inbox.close()
    inbox.wait(clock.now + 1000.0, hold_records=False)
    assert (len(inbox.batch()), inbox.has_question(), inbox.closing) == (
        2 if waiting == "records" else 0,
        waiting == "question",
        waiting == "end",
    )


def test_a_full_batch_wakes_the_thread_that_waits(inbox: Inbox, clock: Clock) -> None:
    waiter = threading.Thread(target=inbox.wait, args=(clock.now + 1000.0,), kwargs={"hold_records": False})
    waiter.start()
    inbox.add(records(1))
    inbox.add(records(1))
    waiter.join(timeout=10)
    assert not waiter.is_alive()


def test_a_lone_record_is_ripe_after_its_time(inbox: Inbox, clock: Clock) -> None:
    inbox.add(records(1))
    clock.now += 0.5
    inbox.wait(clock.now + 1000.0, hold_records=False)
    assert len(inbox.batch()) == 1


def test_records_are_held_back_while_they_cannot_be_written(inbox: Inbox, clock: Clock) -> None:
    inbox.add(records(5))
    waiter = threading.Thread(target=inbox.wait, args=(clock.now + 1000.0,), kwargs={"hold_records": True})
    waiter.start()
    waiter.join(timeout=0.05)
    assert waiter.is_alive(), "a full batch wakes nobody"
    inbox.close()
    waiter.join(timeout=10)
    assert not waiter.is_alive()


def test_a_failed_question_tells_its_asker_and_the_thread() -> None:
    def fail(_database: object) -> int:
        raise OSError("broken disk")

    question = Question(fail)
    with pytest.raises(OSError, match="broken disk"):
        question.put_to(None)  # type: ignore[arg-type]
    with pytest.raises(StoreUnusable, match="broken disk"):
        question.answer.result(timeout=0)


def test_a_question_whose_asker_has_left_is_not_asked() -> None:
    asked: list[object] = []
    for act in (lambda question: question.put_to(None), lambda question: question.refuse("too late")):
        question = Question(asked.append)
        question.answer.cancel()
        act(question)
    assert asked == []
