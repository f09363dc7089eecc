"""A start that meets a leftover configuration file of NCCL."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.targets import SimulatedServer


def test_a_wrong_value_in_a_configuration_file_ends_a_start_whose_environment_is_clean(tmp_path: Path) -> None:
    conf = tmp_path / "left-over.conf"
    conf.write_text("NCCL_PROTO=LL, Simple\n", encoding="utf-8")
    server = SimulatedServer(preset="kimi-k2.5-int4", environment={"NCCL_CONF_FILE": str(conf)})
    try:
        assert server.process.wait(20) == 1
        assert "NCCL_PROTO" in server.log_text()
    finally:
        server.kill()
