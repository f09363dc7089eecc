"""The settings of LoRA adapters: which there are, and where on the backends' host they lie.

Not a station.  The only place from which an adapter's path comes: no request and no operator names one.
"""

from __future__ import annotations

from pydantic import Field

from gateway.settings.section import Section
from gateway.settings.types import AdapterPath, ModelName, Switch


class LoraAdapter(Section):
    """A LoRA adapter that the pool's engines may load."""

    name: ModelName = Field(
        description="What clients ask for, as the name of a model. No model's or alias' name, in no pool."
    )
    path: AdapterPath = Field(
        description="Its folder on the backends' own host, in full, or what else their vLLM takes for one. The gateway "
        "never opens it. Only this file says it: requests to load an adapter name it and nothing else."
    )
    load: Switch = Field(
        default=False,
        description="Wanted from the start, unless an operator has unloaded it (`pacekeeper lora unload`). Off: wanted "
        "once an operator has loaded it, until one unloads it.",
    )
