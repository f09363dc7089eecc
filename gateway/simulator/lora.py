"""LoRA adapters of a simulated engine: loaded and unloaded at run time, with vLLM's words where it says no.

Part of the face.  No file is read and nothing is tuned: an adapter answers as the model itself, under its own name.
The routes are there only with ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1``; without ``--enable-lora`` nothing can be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.simulator import refusals
from gateway.simulator.asked import object_of
from gateway.simulator.fields import Reader
from gateway.simulator.refusals import Refused
from gateway.simulator.routes import Route

CHANGES: Final = (Route.LOAD_ADAPTER, Route.UNLOAD_ADAPTER)
ALLOWING: Final = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
_NOT_ENABLED: Final = "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA."


def may_update(environment: Mapping[str, str]) -> bool:
    """Whether an engine with this environment lets adapters be loaded at run time."""
    return environment.get(ALLOWING, "0").strip().lower() in {"1", "true"}


class Adapters:
    """What a server has loaded: name -> path, in the order of loading."""

    def __init__(self, model: str, *, runs: bool) -> None:
        self.loaded: dict[str, str] = {}
        self._model = model
        self._runs = runs

    def change(self, route: Route, body: bytes, content_type: bytes) -> bytes:
        """Load or unload as ``body`` says; returns the sentence that is answered.  Raises Refused."""
        reader = Reader(object_of(body, content_type))
        wanted = ("lora_name", "lora_path") if route is Route.LOAD_ADAPTER else ("lora_name",)
        for name in wanted:
            if reader.required(name) and not isinstance(reader.fields[name], str):
                given = reader.fields[name]
                reader.fault("string_type", name, message="Input should be a valid string", given=given)
        reader.raise_faults()
        name = reader.fields["lora_name"]
        if route is Route.UNLOAD_ADAPTER:
            return self._unload(name)
        return self._load(name, reader.fields["lora_path"], in_place=reader.fields.get("load_inplace") is True)

    def _load(self, name: str, path: str, *, in_place: bool) -> bytes:
        if not name or not path:
            raise _bad_input("Both 'lora_name' and 'lora_path' must be provided.")
        if name == self._model:
            raise _bad_input(f"The lora adapter '{name}' conflicts with a served base model.")
        if name in self.loaded and not in_place:
            raise _bad_input(
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                "'load_inplace' to True."
            )
        if not self._runs:
            raise refusals.api_error(500, "InternalServerError", message=_NOT_ENABLED)
        self.loaded[name] = path
        return f"Success: LoRA adapter '{name}' added successfully.".encode()

    def _unload(self, name: str) -> bytes:
        if not name:
            raise _bad_input("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in self.loaded:
            raise refusals.api_error(404, "NotFoundError", message=f"The lora adapter '{name}' cannot be found.")
        del self.loaded[name]
        return f"Success: LoRA adapter '{name}' removed successfully.".encode()


def _bad_input(message: str) -> Refused:
    return refusals.api_error(400, "InvalidUserInput", message=message)
