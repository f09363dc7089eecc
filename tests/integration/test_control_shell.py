"""The whole control process: it comes up whatever the backends do, and says clearly why when it cannot."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from gateway.admin.tokens import TOKEN_FILE
from gateway.app.control import ControlShell
from gateway.control.loop import ControlLoop
from gateway.core.link.messages import Pulse, Shares
from gateway.core.routing.snapshot import ModelCard
from gateway.errors import ConfigError, OperatorError, RuntimeDirUnusable, StoreUnusable
from tests.fakes.control_bench import config_text, install, running_control, worker_end
from tests.fakes.probed_backend import ProbedBackend, answer, listening
from tests.fakes.settled import record_of

pytestmark = pytest.mark.asyncio


def rewrite(config_path: str, text: str) -> None:
    """What an operator's editor does."""
    Path(config_path).write_text(text, encoding="utf-8")


async def test_it_comes_up_and_serves_workers_operators_and_scrapes(tmp_path: Path) -> None:
    async with listening(ProbedBackend(models=["kimi-k2.5"], tokens=7.0)) as fake:
        spec, _ = install(tmp_path, config_text(tmp_path, fake))
        async with running_control(spec) as control, worker_end(spec) as worker:
            worker.beat = {"outcomes": {"chat|kimi-k2.5|a|ok|200": 4}, "in_flight": {"a": 1}, "holding": 1}
            await worker.until(lambda: any(isinstance(it, Shares) for it in worker.messages))
            assert worker.states == {"a": "serving"}
            await worker.until(lambda: any(isinstance(it, Pulse) for it in worker.messages))
            worker.link.offer(record_of("r1", accepted_wall=time.time()))

            page = ""
            while "pacekeeper_records_total 1.0" not in page:
                _, page = await control.ask("/metrics")
            labels = 'backend="a",endpoint="chat",model="kimi-k2.5",outcome="ok",status="2xx"'
            assert f"pacekeeper_requests_total{{{labels}}} 4.0" in page

            status, report = await control.ask("/admin/v1/status")
            assert (status, report["summary"]) == (200, "all well: 1 of 1 backends serve, 1 request in flight")
            status, found = await control.ask("/admin/v1/requests/r1")
            assert status == 200
            assert "r1" in json.dumps(found)
        assert control.exit_code == 0
        assert stat.S_IMODE((Path(spec.runtime_dir) / TOKEN_FILE).stat().st_mode) == 0o600
        await fake.until(lambda: fake.connections == 0)


async def test_prometheus_may_ask_by_a_name_that_was_configured_and_by_no_other(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake:
        spec, _ = install(tmp_path, config_text(tmp_path, fake, more="operators: {names: [Gateway.Example]}\n"))
        async with running_control(spec) as control:
            status, page = await control.ask("/metrics", host="gateway.example:8081")
            assert status == 200
            assert "pacekeeper_build_info" in page
            status, refusal = await control.ask("/metrics", host="rebound.example:8081")
            assert status == 403
            assert "operators.names" in refusal["error"]["message"]


async def test_it_comes_up_with_every_backend_down_and_serves_as_soon_as_one_is_there(tmp_path: Path) -> None:
    fake = ProbedBackend()
    async with listening(fake):
        port = int(fake.url.rpartition(":")[2])
    spec, _ = install(tmp_path, config_text(tmp_path, fake))
    async with running_control(spec) as control, worker_end(spec) as worker:
        await worker.until(lambda: worker.states == {"a": "ejected"})
        _, report = await control.ask("/admin/v1/status")
        assert report["summary"] == "DOWN: no backend serves pool p"
        async with listening(ProbedBackend(), port=port):
            await worker.until(lambda: worker.states == {"a": "serving"})


async def test_backends_that_answer_garbage_to_everything_do_it_no_harm(tmp_path: Path) -> None:
    noise = answer(body=os.urandom(200_000))
    fake = ProbedBackend(raw={"/v1/models": noise, "/metrics": noise, "/version": noise})
    async with listening(fake), listening(ProbedBackend(raw={"/health": os.urandom(5000)})) as worse:
        spec, _ = install(tmp_path, config_text(tmp_path, fake, worse, more="probes: {scrape_s: 0.05, fall: 1}\n"))
        async with running_control(spec) as control, worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving", "b": "ejected"})
            await fake.until(lambda: fake.asked["/metrics"] >= 5)
            status, _ = await control.ask("/metrics")
            assert status == 200
        assert control.exit_code == 0


async def test_a_reload_by_the_supervisor_is_applied_and_reported_ready_again(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b:
        spec, _ = install(tmp_path, config_text(tmp_path, a, b))
        async with running_control(spec) as control, worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving", "b": "serving"})
            rewrite(spec.config_path, config_text(tmp_path, a))
            control.ready.clear()
            control.shell.reload()
            await worker.until(lambda: worker.states == {"a": "serving"})
            await control.ready.wait()
            assert control.readies == 2


async def test_a_reload_by_an_operator_says_what_changed_and_what_needs_a_restart(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b:
        spec, _ = install(tmp_path, config_text(tmp_path, a, b))
        async with running_control(spec) as control, worker_end(spec) as worker:
            rewrite(spec.config_path, config_text(tmp_path, a, more="workers: 4\n"))
            status, verdict = await control.ask("/admin/v1/config/reload", method="POST")
            assert (status, verdict["applied"], verdict["needs_restart"]) == (200, True, ["workers: 1 → 4"])
            assert verdict["changes"] == ["backend b: removed; answers that are open go on, its engine is left alone"]
            await worker.until(lambda: worker.states == {"a": "serving"})

            rewrite(spec.config_path, "pools: []\nnonsense: 1\n")
            status, refused = await control.ask("/admin/v1/config/reload", method="POST")
            assert status == 422
            assert len(refused["faults"]) >= 2
            assert worker.states == {"a": "serving"}


async def test_a_reload_before_it_is_up_is_no_error(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake:
        spec, _ = install(tmp_path, config_text(tmp_path, fake))
        shell = ControlShell(spec, [])
        shell.reload()
        async with running_control(spec) as control:
            pass
        control.shell.reload()
        assert (control.exit_code, control.readies) == (0, 1), "after its end nobody is told either"


async def test_its_next_life_has_the_same_fleet_whatever_became_of_the_file(tmp_path: Path) -> None:
    async with listening(ProbedBackend(models=["m"])) as a, listening(ProbedBackend(models=["n"])) as b:
        spec, spec_path = install(tmp_path, config_text(tmp_path, a, b))
        os.utime(spec_path, ns=(0, 1_000))
        async with running_control(spec), worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving", "b": "serving"})
            before = worker.snapshots[-1]
        for text in ("broken: [", config_text(tmp_path, a), ""):
            rewrite(spec.config_path, text)
            async with running_control(spec), worker_end(spec) as worker:
                await worker.until(lambda: bool(worker.snapshots))
                after = worker.snapshots[-1]
            assert (after.pools, after.backends, after.policy) == (before.pools, before.backends, before.policy)
            assert names(after.cards) == names(before.cards)
            assert after.generation > before.generation


def names(cards: tuple[ModelCard, ...]) -> list[str]:
    return [card.id for card in cards]


async def test_a_start_of_the_whole_gateway_reads_the_file_anew(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b:
        spec, _ = install(tmp_path, config_text(tmp_path, a, b))
        async with running_control(spec):
            pass
        spec, spec_path = install(tmp_path, config_text(tmp_path, a))
        os.utime(spec_path, ns=(2**62, 2**62))
        async with running_control(spec), worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving"})


async def test_an_applied_configuration_that_no_longer_holds_gives_way_to_the_file(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake:
        spec, spec_path = install(tmp_path, config_text(tmp_path, fake))
        os.utime(spec_path, ns=(0, 1_000))
        (Path(spec.runtime_dir) / "applied.yaml").write_text("pools: []\n")
        async with running_control(spec), worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving"})


# --- what an operator has to mend ---


async def refused(folder: Path, text: str, kind: type[OperatorError], *, spoil: str = "") -> str:
    spec, _ = install(folder, text)
    match spoil:
        case "config":
            rewrite(spec.config_path, "pools: []\n")
        case "link":
            (Path(spec.runtime_dir) / "link.sock").mkdir()
        case "token":
            (Path(spec.runtime_dir) / TOKEN_FILE).write_text("short")
    with pytest.raises(kind) as caught:
        async with running_control(spec):
            pass
    return caught.value.message


async def test_a_store_that_cannot_be_used_ends_the_start_with_its_path(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake:
        (tmp_path / "history.db").mkdir()
        message = await refused(tmp_path, config_text(tmp_path, fake), StoreUnusable)
        assert str(tmp_path / "history.db") in message
        await fake.until(lambda: fake.connections == 0)


@pytest.mark.parametrize(
    "spoil,kind,place",
    [
        ("config", ConfigError, "gateway.yaml"),
        ("link", RuntimeDirUnusable, "link.sock"),
        ("token", RuntimeDirUnusable, TOKEN_FILE),
    ],
)
async def test_other_things_that_cannot_be_used_end_it_with_their_place(
    tmp_path: Path, spoil: str, kind: type[OperatorError], place: str
) -> None:
    async with listening(ProbedBackend()) as fake:
        assert place in await refused(tmp_path, config_text(tmp_path, fake), kind, spoil=spoil)
        await fake.until(lambda: fake.connections == 0)


async def test_without_its_loop_it_ends_with_1_so_that_another_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_loop: ControlLoop) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(ControlLoop, "run", broken)
    async with listening(ProbedBackend()) as fake:
        spec, _ = install(tmp_path, config_text(tmp_path, fake))
        async with running_control(spec) as control:
            pass
        assert control.exit_code == 1
