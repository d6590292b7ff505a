"""Guess the inputs of a model from its signature, its config and its first layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.wiring.foreign import aside, no_exit, reason, usable, watched
from streamgauge.wiring.keep import left_as_it_was

BATCH, TOKENS = 2, 8
Guess = dict[str, Any]
Shaped = Callable[[], Tensor | None]


def guess_inputs(model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any], list[str]]:
    """Positional and keyword inputs that the model's forward takes, and a note that says what was guessed.

    Token ids for embeddings, features for linear layers, images and sound for convolutions; names and sizes from the
    signature and, where there is one, the config. Guesses are tried in turn until the model runs.
    Raises InputError when none does.
    """
    first: Exception | None = None
    runs = watched(usable(model, "guess_inputs takes"))
    for kwargs in guesses(model):
        try:
            with left_as_it_was(model), torch.no_grad(), aside(), no_exit(f"the forward of {_name(runs)}", "returning"):
                runs(**kwargs)
        except InputError:
            raise
        except Exception as error:  # whatever a foreign model raises on a wrong guess
            first = first or error
            continue
        return (), kwargs, [said(kwargs)]
    raise none_fits(model, first) from first


def said(guess: Guess) -> str:
    """The note on a guess."""
    tensors = {name: value for name, value in guess.items() if isinstance(value, Tensor)}
    return "inputs guessed: " + ", ".join(f"{name} {_said(value)}" for name, value in tensors.items())


def none_fits(model: nn.Module, error: Exception | None) -> InputError:
    """The error when no guess runs."""
    names = ", ".join(_needed(model)) or "no required argument"
    why = f" ({reason(error)})" if error is not None else ""
    return InputError(
        f"the inputs of {_name(watched(model))} could not be guessed from its signature ({names}){why}; "
        "pass them: read_wiring(model, *args, **kwargs), or let the factory return (model, inputs)"
    )


def _name(model: nn.Module) -> str:
    return type(model).__name__


def _said(value: Tensor) -> str:
    return f"{'ids' if not value.is_floating_point() else 'values'} {list(value.shape)}"


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        found = dict(inspect.signature(watched(model).forward).parameters)
    except (TypeError, ValueError):  # made in C, or no function at all
        return {}
    return {
        k: p
        for k, p in found.items()
        if p.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }


def _needed(model: nn.Module) -> list[str]:
    return [name for name, p in _parameters(model).items() if p.default is inspect.Parameter.empty]


def guesses(model: nn.Module) -> Iterator[Guess]:
    """Keyword inputs that may fit, the likeliest first; InputError where the model cannot even be looked at."""
    model = watched(model)
    try:
        yield from _guesses(model)
    except Exception as error:  # a property that raises, a config of another kind
        raise none_fits(model, error) from error


def _guesses(model: nn.Module) -> Iterator[Guess]:
    parameters, needed = _parameters(model), _needed(model)
    config = getattr(model, "config", None)
    seen: set[str] = set()
    for tokens in (TOKENS, 64, 256):
        table = _table(model, config, tokens)
        for names in _selections(model, config, parameters, needed):
            if any(name not in table for name in names):
                continue
            options = [table[name] for name in names]
            for which in range(max((len(o) for o in options), default=0)):
                made = {
                    name: option[min(which, len(option) - 1)]() for name, option in zip(names, options, strict=True)
                }
                guess = {name: value for name, value in made.items() if value is not None}
                key = str({name: (value.shape, value.dtype) for name, value in guess.items()})
                if guess and len(guess) == len(made) and key not in seen:
                    seen.add(key)
                    yield guess
                    if "use_cache" in parameters:  # a cache may suit other layers than these
                        yield {**guess, "use_cache": False}
    if len(needed) == 1 and not seen:
        for shaped in _by_layers(model):
            yield {needed[0]: shaped}
    elif len(needed) == 2:
        for shaped in _by_layers(model):
            yield dict.fromkeys(needed, shaped)


def _selections(
    model: nn.Module, config: Any, parameters: dict[str, inspect.Parameter], needed: list[str]
) -> Iterator[list[str]]:
    """Sets of names to fill, the likeliest first."""
    main = [n for n in [getattr(model, "main_input_name", None)] if n in parameters]
    decoder = [n for n in ("decoder_input_ids", "decoder_input_values") if n in parameters]
    if getattr(config, "is_encoder_decoder", False) or decoder:
        yield list(dict.fromkeys(main + decoder + needed))
    yield list(dict.fromkeys(main + needed))
    yield list(dict.fromkeys(needed + [n for n in ("input_ids", "pixel_values") if n in parameters]))
    known = [n for n in _table(model, config, TOKENS) if n in parameters and n not in ("inputs_embeds",)]
    for name in known:
        yield list(dict.fromkeys([name, *needed]))
    for name in known:
        yield list(dict.fromkeys([*main, name, *needed]))
    yield list(dict.fromkeys(main + known + needed))


def _table(model: nn.Module, config: Any, tokens: int) -> dict[str, list[Shaped]]:
    """What each usual name of an input stands for: ways to make it, by preference."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)

    def number(*names: str, default: int | None = None) -> int | None:
        for holder in (config, *(getattr(config, n, None) for n in _PARTS)):
            for name in names:
                value = getattr(holder, name, None)
                value = value[-1] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default

    def ids(n: int = tokens) -> Tensor | None:
        vocab = number("vocab_size") or _vocab(model)
        return None if not vocab else _ids((BATCH, n), vocab, device)

    def values(*shape: int | None) -> Shaped:
        return lambda: None if None in shape else _values([s for s in shape if s is not None], dtype, device)

    side = number("image_size", "img_size", default=None)
    channels = number("num_channels", "in_channels", "in_chans", default=3)
    width = number("hidden_size", "d_model", "n_embd", "dim")
    mels = number("num_mel_bins", "input_feat_per_channel", "feature_size", "feature_projection_input_dim", "input_dim")
    frames = number("max_source_positions")
    length = number("max_length", "audio_length")
    images: list[Shaped] = [values(BATCH, channels, s, s) for s in (side, 32, 64, 224) if s]
    clips: list[Shaped] = [
        values(BATCH, number("num_frames", "frames_per_clip", "temporal_patch_size", default=2), channels, s, s)
        for s in (side, 32, 224)
        if s
    ]
    sound: list[Shaped] = [
        values(BATCH, 2000),
        values(BATCH, 1, 2000),
        values(BATCH, length, mels),
        values(BATCH, channels, 2000),
        values(BATCH, 16000),
    ]
    features: list[Shaped] = [
        values(BATCH, mels, 2 * frames if frames else None),
        values(BATCH, 64, mels),
        values(BATCH, mels, 64),
        values(BATCH, 1, length, mels),
        values(BATCH, 1, 64, mels),
        values(BATCH, 64, width),
    ]
    token_ids: list[Shaped] = [ids]
    embeds: list[Shaped] = [values(BATCH, tokens, width)]
    table = dict.fromkeys(("input_ids", "ids", "idx", "tokens", "decoder_input_ids", "token_ids"), token_ids)
    table |= {name: [*images, *clips] for name in ("pixel_values", "images", "pixels", "img", "image")}
    table |= {"pixel_values_videos": clips, "input_values": sound, "input_features": features}
    table |= {"inputs_embeds": embeds, "hidden_states": embeds, "encoder_hidden_states": embeds}
    table["inputs"] = [*token_ids, *images, *embeds]
    table["attention_mask"] = [lambda: torch.ones(BATCH, tokens, dtype=torch.long, device=device)]
    table["bbox"] = [lambda: torch.ones(BATCH, tokens, 4, dtype=torch.long, device=device)]
    guessed = [lambda v=v: v for v in _by_layers(model, tokens)]
    for name in _needed(model):
        table.setdefault(name, list(guessed))
    return table


_PARTS = ("text_config", "vision_config", "audio_config", "encoder", "backbone_config", "encoder_config", "decoder")


def _by_layers(model: nn.Module, tokens: int = TOKENS) -> list[Tensor]:
    """Inputs that fit the model's first layer with weights; ids before features before images."""
    found: list[Tensor] = []
    for module in model.modules():
        weight = next((p for p in module.parameters(recurse=False)), None)
        if weight is None:
            continue
        dtype, device = weight.dtype, weight.device
        if isinstance(module, nn.Embedding):
            found.append(_ids((BATCH, tokens), module.num_embeddings, device))
        elif isinstance(module, nn.Linear):
            found.append(_values((BATCH, tokens, module.in_features), dtype, device))
            found.append(_values((BATCH, module.in_features), dtype, device))
        elif isinstance(module, nn.Conv1d):
            found.append(_values((BATCH, module.in_channels, 64), dtype, device))
        elif isinstance(module, nn.Conv2d):
            found += [_values((BATCH, module.in_channels, s, s), dtype, device) for s in (32, 64, 224)]
        elif isinstance(module, nn.Conv3d):
            found.append(_values((BATCH, module.in_channels, 4, 32, 32), dtype, device))
        elif isinstance(module, nn.MultiheadAttention):
            found.append(_values((BATCH, tokens, module.embed_dim), dtype, device))
        elif weight.dim() >= 1:  # a norm or hand-made weights: their widths
            found += [
                _values((BATCH, tokens, n), dtype, device) for n in dict.fromkeys([weight.shape[-1], weight.shape[0]])
            ]
        if len(found) >= 6:
            break
    return found


def _vocab(model: nn.Module) -> int | None:
    return next((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)), None)


def _ids(shape: tuple[int, int], vocab: int, device: torch.device) -> Tensor:
    """Ids clear of the usual special tokens, without the random number generator."""
    count = torch.arange(shape[0] * shape[1], device=device).reshape(shape)
    low = min(5, vocab - 1)
    return low + (count * 7) % max(1, vocab - low - 1)


def _values(shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = tuple(int(n) for n in shape)
    count = torch.arange(int(torch.Size(shape).numel()), device=device, dtype=torch.float32)
    return torch.sin(count * 0.7 + 1.0).reshape(shape).to(dtype)
