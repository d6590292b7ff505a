"""Published sizes by name: a transformers model type and what differs from its defaults."""

from __future__ import annotations

from typing import Any

Preset = tuple[str, dict[str, Any]]


def _gpt2(layers: int, width: int, heads: int) -> Preset:
    return "gpt2", {"n_layer": layers, "n_embd": width, "n_head": heads, "architectures": ["GPT2LMHeadModel"]}


def _bert(layers: int, width: int, heads: int, vocab: int = 30522) -> Preset:
    return "bert", {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "vocab_size": vocab,
        "architectures": ["BertForMaskedLM"],
    }


def _llama(kind: str, layers: int, width: int, heads: int, kv: int, inner: int, vocab: int, **more: Any) -> Preset:
    return kind, {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": vocab,
        **more,
    }


def _t5(layers: int, width: int, heads: int, inner: int) -> Preset:
    return "t5", {"num_layers": layers, "d_model": width, "num_heads": heads, "d_ff": inner, "d_kv": 64}


def _vit(layers: int, width: int, heads: int) -> Preset:
    return "vit", {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


PRESETS: dict[str, Preset] = {
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "t5-small": _t5(6, 512, 8, 2048),
    "t5-base": _t5(12, 768, 12, 3072),
    "vit-base": _vit(12, 768, 12),
    "vit-large": _vit(24, 1024, 16),
    "llama-2-7b": _llama("llama", 32, 4096, 32, 32, 11008, 32000, rms_norm_eps=1e-5),
    "llama-3-8b": _llama("llama", 32, 4096, 32, 8, 14336, 128256, rms_norm_eps=1e-5),
    "llama-3-70b": _llama("llama", 80, 8192, 64, 8, 28672, 128256, rms_norm_eps=1e-5),
    "llama-3-405b": _llama("llama", 126, 16384, 128, 8, 53248, 128256, rms_norm_eps=1e-5),
    "mistral-7b": _llama("mistral", 32, 4096, 32, 8, 14336, 32000, rms_norm_eps=1e-5),
    "qwen2.5-7b": _llama("qwen2", 28, 3584, 28, 4, 18944, 152064, rms_norm_eps=1e-6),
    "gemma-2-9b": _llama("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256),
    "olmo-2-7b": _llama("olmo2", 32, 4096, 32, 32, 11008, 100352, rms_norm_eps=1e-6),
}
