"""Settings that need whole processes, a disk or a certificate, and the file that shows what each of them does."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.core.routing.parameters import ParameterPolicy

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "clients.listen": "tests/integration/test_cli_serve.py",
        "pools[].aliases[].name": "tests/integration/test_aliases.py",
        "pools[].aliases[].model": "tests/integration/test_aliases.py",
        "pools[].lora[].name": "tests/integration/test_gateway_lora.py",
        "pools[].lora[].path": "tests/integration/test_gateway_lora.py",
        "pools[].lora[].load": "tests/integration/test_gateway_lora.py",
        "clients.tls.certificate": "tests/integration/test_client_tls.py",
        "clients.tls.key": "tests/integration/test_client_tls.py",
        "clients.drain_s": "tests/integration/test_gateway_stop.py",
        "operators.listen": "tests/integration/test_cli_serve.py",
        "operators.names": "tests/integration/test_control_shell.py",
        "auth.clients": "tests/unit/settings/test_load.py",
        "auth.keys_file": "tests/integration/test_gateway_keys.py",
        "pools[].backends[].url": "tests/integration/test_forward.py",
        "pools[].backends[].tls_ca": "tests/integration/test_forward.py",
        "pools[].backends[].driver": "tests/unit/settings/test_load.py",
        "timers.owner_s": "tests/integration/test_parameters.py",
        "limits.owned_responses": "tests/integration/test_parameters.py",
        **{f"parameters.{name}": "tests/integration/test_parameters.py" for name in ParameterPolicy.__struct_fields__},
        "probes.scrape_s": "tests/integration/test_control_loop.py",
        "probes.timeout_s": "tests/integration/test_control_loop.py",
    }
)
