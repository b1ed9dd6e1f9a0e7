"""A tiny Qwen2 for vLLM: its configuration and a tokenizer; `--load-format dummy` gives it random weights."""

import json
from pathlib import Path
from typing import Any

VOCABULARY = 4096
POSITIONS = 1024
END = "<|endoftext|>"

CONFIGURATION: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "max_position_embeddings": POSITIONS,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "use_cache": True,
}


def _byte_alphabet() -> list[str]:
    """Return the letters that byte-level tokenizers write bytes with: visible ones stand for themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) for byte in sorted(visible)] + [chr(256 + number) for number in range(len(hidden))]


def _tokenizer() -> dict[str, Any]:
    """Return a byte-level BPE that merges nothing; its other tokens are words that only a model would say."""
    tokens = [END, *_byte_alphabet()]
    tokens += [f"Ġword{number}" for number in range(VOCABULARY - len(tokens))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": []}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 0, "content": END, **flags}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": model,
    }


def write_model(folder: Path) -> None:
    """Write what vLLM wants to find in a model's folder."""
    folder.mkdir(parents=True)
    loading = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END}
    files: dict[str, dict[str, Any]] = {
        "config.json": CONFIGURATION,
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {**loading, "model_max_length": POSITIONS},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
