from gateway.core.admission.throttle import Throttle


def test_a_peer_may_fail_so_often_and_then_has_to_wait() -> None:
    throttle = Throttle(3, 10.0, peers=8)
    for _ in range(3):
        assert throttle.wait_s("p", 0.0) == 0.0
        throttle.failed("p", 0.0)
    assert throttle.wait_s("p", 0.0) == 10.0
    assert throttle.wait_s("p", 4.0) == 6.0
    assert throttle.wait_s("p", 10.0) == 0.0


def test_after_the_wait_there_is_one_attempt_and_after_long_quiet_all_of_them() -> None:
    throttle = Throttle(3, 10.0, peers=8)
    for _ in range(3):
        throttle.failed("p", 0.0)
    throttle.failed("p", 10.0)
    assert throttle.wait_s("p", 10.0) == 10.0
    for at in range(3):
        assert throttle.wait_s("p", 1000.0) == 0.0, at
        throttle.failed("p", 1000.0)
    assert throttle.wait_s("p", 1000.0) == 10.0


def test_peers_do_not_pay_for_each_other() -> None:
    throttle = Throttle(1, 10.0, peers=8)
    throttle.failed("p", 0.0)
    assert throttle.wait_s("p", 0.0) > 0
    assert throttle.wait_s("q", 0.0) == 0.0


def test_the_table_is_bounded_and_the_peer_that_failed_longest_ago_goes_first() -> None:
    throttle = Throttle(1, 1000.0, peers=2)
    for at, peer in enumerate(("p", "q", "p", "r")):
        throttle.failed(peer, float(at))
    assert [throttle.wait_s(peer, 4.0) > 0 for peer in ("p", "q", "r")] == [True, False, True]
