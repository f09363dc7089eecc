"""LoRA adapters for the tiny model, made on the spot: the two files that vLLM reads, with random weights.

Written byte by byte, so that nothing but the standard library is needed: a safetensors file is the length of its JSON
header, the header, and the numbers.
"""

import json
import random
import struct
from pathlib import Path

# Of the tiny model: layers, and (outputs, inputs) of what is tuned.
LAYERS = 3
TUNED = {"self_attn.q_proj": (128, 128), "self_attn.v_proj": (64, 128)}


def make_adapter(folder: Path, *, rank: int = 8, spread: float = 0.5, seed: int = 1) -> Path:
    """Write an adapter into `folder`; with a `spread` of 0.5 it answers otherwise than the model does."""
    dice = random.Random(seed)
    header: dict[str, object] = {}
    numbers = bytearray()
    for layer in range(LAYERS):
        for name, (outputs, inputs) in TUNED.items():
            for part, shape in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
                count = shape[0] * shape[1]
                begin = len(numbers)
                numbers += struct.pack(f"<{count}f", *(dice.gauss(0.0, spread) for _ in range(count)))
                key = f"base_model.model.model.layers.{layer}.{name}.{part}.weight"
                header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(numbers)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + numbers)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 2 * rank,
        "bias": "none",
        "target_modules": [name.rpartition(".")[2] for name in TUNED],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
