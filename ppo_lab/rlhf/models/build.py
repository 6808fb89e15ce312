"""The four models: tiny builds, real ones from a folder or the hub, reward models on the trunk of a policy.

A tiny model's first weights depend on its seed alone, and making one leaves the caller's random state as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import PolicyConfig

from ..tokens import pad_id
from .outline import outline

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHIPPED = Path(__file__).parent.parent / "shipped"  # by rlhf/demo, 4 epochs of rewards, seed 0; long: rlhf/length
UNLIMITED = 1 << 20  # positions of a model that names no limit


@contextmanager
def random_state(*parts: int | str) -> Iterator[None]:
    """Global draws inside (weight init, dropout) come from the stream ``parts``; the state outside is untouched."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seeding.key(*parts))
        yield


def build_policy(
    cfg: PolicyConfig, tokenizer: PreTrainedTokenizerBase, seed: int, *, read: bool = True
) -> PreTrainedModel:
    """A tiny Llama or GPT-2 for this vocabulary, or the model at ``cfg.path``; float32, trainable as ``cfg`` says."""
    if cfg.path is not None:
        model = load_policy(cfg.path, read=read)
        rows = model.get_input_embeddings().num_embeddings
        if rows < len(tokenizer):
            raise ConfigError(
                f"policy.path {cfg.path!r} must have an embedding for each of the tokenizer's {len(tokenizer)} tokens, "
                f"got {rows}; use the tokenizer that belongs to the model"
            )
    else:
        from transformers import AutoModelForCausalLM

        with random_state("policy", seed):
            model = AutoModelForCausalLM.from_config(tiny_config(cfg, tokenizer), dtype=torch.float32)
    if cfg.trainable_layers is not None:
        train_last_layers(model, cfg.trainable_layers)
    return model


def tiny_config(cfg: PolicyConfig, tokenizer: PreTrainedTokenizerBase) -> Any:
    """The Hugging Face config of a tiny build. Embeddings are tied: on a small vocabulary that costs nothing."""
    from transformers import GPT2Config, LlamaConfig

    special: dict[str, Any] = dict(bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
                                   pad_token_id=pad_id(tokenizer), tie_word_embeddings=True)  # fmt: skip
    if cfg.family == "gpt2":
        return GPT2Config(
            vocab_size=len(tokenizer), n_positions=cfg.context, n_embd=cfg.width, n_layer=cfg.layers, n_head=cfg.heads,
            embd_pdrop=cfg.dropout, resid_pdrop=cfg.dropout, attn_pdrop=cfg.dropout, **special,
        )  # fmt: skip
    return LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=cfg.context, hidden_size=cfg.width,
        intermediate_size=8 * cfg.width // 3, num_hidden_layers=cfg.layers, num_attention_heads=cfg.heads,
        attention_dropout=cfg.dropout, **special,
    )  # fmt: skip


def resolve(path: str, *, field: str) -> str:
    """Where a model is: a folder as it is, ``shipped/NAME``, a fetched name's folder, else a hub name.

    Raises:
        ConfigError: it looks like a folder and is none, or is a name that `ppo_lab.rlhf.fetch` knows and has not got.
    """
    from ppo_lab.rlhf.fetch import FetchError, locate, names

    folder = SHIPPED / path.removeprefix("shipped/") if path.startswith("shipped/") else Path(path).expanduser()
    if folder.is_dir():
        return str(folder)
    if path in names():
        try:
            return str(locate(path))
        except FetchError as error:
            raise ConfigError(f"{field} {path!r} is not there yet: {error}") from error
    if path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise ConfigError(f"{field} must name an existing folder, a hub model or one of {', '.join(names())}, "
                          f"got {path!r}; check the path")  # fmt: skip
    return path


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and load reports of transformers, which would drown our own lines."""
    if not torch.cuda.is_available():  # transformers imports deepspeed where it is installed, which warns of no GPU
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """A plain Hugging Face folder: any of its classes loads it."""
    with quiet():
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


def _load(path: str, field: str, load: Any, **options: Any) -> Any:
    where = resolve(path, field=field)
    try:
        with quiet():
            return load(where, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"{field} {path!r} could not be loaded ({reason}); give a Hugging Face folder, or a hub name and a network"
        ) from error


def _outline(auto: Any, where: str, **options: Any) -> tuple[Any, bool] | None:
    with quiet():
        return outline(auto, where, **options)


def load_policy(path: str, *, field: str = "policy.path", read: bool = True) -> PreTrainedModel:
    """A causal language model in float32, from a folder, a hub name or a fetched name such as ``smollm2-135m``.

    Args:
        path: which.
        field: what the config calls it, for errors.
        read: False leaves the weights in the folder, for a learner that reads shards (`ppo_lab.learners.unread`).

    Raises:
        ConfigError: nothing there, or no causal language model.
    """
    from transformers import AutoModelForCausalLM

    from .recompute import take_over_checkpointing

    found = None if read else _outline(AutoModelForCausalLM, resolve(path, field=field))
    model = found[0] if found else _load(path, field, AutoModelForCausalLM.from_pretrained, dtype=torch.float32)
    take_over_checkpointing(model)
    return model


def load_tokenizer(path: str, *, field: str = "policy.path") -> PreTrainedTokenizerBase:
    """The tokenizer of a model. Where it has no pad token, EOS pads: masks come from lengths, so nothing is lost.

    Raises:
        ConfigError: nothing there, or neither pad nor EOS token.
    """
    from transformers import AutoTokenizer

    tokenizer = _load(path, field, AutoTokenizer.from_pretrained)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad_id(tokenizer))
    tokenizer.padding_side = "left"
    return tokenizer


def context_of(model: nn.Module) -> int:
    """Positions the model has; without a limit of its own, about a million."""
    config = model.config.get_text_config()  # type: ignore[operator, union-attr]
    names = ("max_position_embeddings", "n_positions", "max_sequence_length")
    return next((int(found) for name in names if (found := getattr(config, name, None))), UNLIMITED)


def train_last_layers(model: nn.Module, k: int, *, field: str = "policy.trainable_layers") -> None:
    """Freeze everything but the last ``k`` blocks and what stands after them in the trunk, the final norm.

    Embeddings stay frozen, and an output layer with them, tied or not. Raising ``k`` gives more to learn with, at more
    memory and time; what is frozen is shared with the reference.

    Raises:
        ConfigError: the model has fewer blocks.
    """
    blocks = blocks_of(model)
    if k > len(blocks):
        raise ConfigError(f"{field} must be at most the {len(blocks)} blocks of the model, got {k}")
    model.requires_grad_(False)
    for block in blocks[len(blocks) - k :]:
        block.requires_grad_(True)
    passed = False
    for child in model.base_model.children():  # type: ignore[operator, union-attr]
        if passed:
            child.requires_grad_(not any(isinstance(m, nn.Embedding) for m in child.modules()))
        passed = passed or child is blocks or any(module is blocks for module in child.modules())


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The stack of transformer blocks: the longest list of modules in the trunk."""
    lists = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList)]  # type: ignore[operator, union-attr]
    if not lists:
        name = type(model).__name__
        raise ConfigError(f"policy.trainable_layers needs a model made of blocks, got {name}; leave it unset")
    return max(lists, key=len)


def build_reward_model(policy: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """A sequence-classification model with one label on a copy of the policy's trunk, the usual start (Stiennon 2020).

    The new head is drawn from ``seed``, scaled so that first scores are of order one. All of it is trainable.
    """
    from transformers import AutoModelForSequenceClassification

    plain = {k: v for k, v in policy.config.to_dict().items() if k not in ("id2label", "label2id", "architectures")}
    config = type(policy.config).from_dict({**plain, "num_labels": 1})
    with random_state("reward model", seed):
        model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    model.base_model.load_state_dict(policy.base_model.state_dict())
    _init_head(model, seed)
    return model


def load_reward_model(
    path: str, *, seed: int, field: str = "reward_model.path", read: bool = True
) -> PreTrainedModel:
    """A reward model from a folder, hub name or fetched name (``minilm``): one label on any causal model or encoder.

    A trained one comes back as it was saved; an encoder or language model gets a fresh head drawn from ``seed``.
    ``read`` as of `load_policy`.
    """
    from transformers import AutoModelForSequenceClassification

    found = None if read else _outline(AutoModelForSequenceClassification, resolve(path, field=field),
                                       fresh="score.", num_labels=1)  # fmt: skip
    if found:
        model, headless = found
        if headless:
            _init_head(model, seed)
        return model
    options: dict[str, Any] = dict(dtype=torch.float32, num_labels=1, output_loading_info=True)
    with random_state("reward model", seed):
        load = AutoModelForSequenceClassification.from_pretrained
        model, info = _load(path, field, load, ignore_mismatched_sizes=True, **options)
    if any(name.split(".")[0] in ("score", "classifier") for name in info["missing_keys"]):
        _init_head(model, seed)
    return model


def head_layer(model: nn.Module) -> nn.Linear:
    """The last layer, hidden state to score."""
    for name in ("score", "classifier"):  # causal models, encoders
        found = getattr(model, name, None)
        if isinstance(found, nn.Module):
            layers = [m for m in found.modules() if isinstance(m, nn.Linear)]
            if layers and layers[-1].out_features == 1:
                return layers[-1]
    raise ConfigError(
        f"reward_model.path must be a sequence-classification model with one label, got {type(model).__name__}; "
        "use a causal model or an encoder"
    )


def is_causal(model: nn.Module) -> bool:
    """Whether the reward model reads left to right, its score at the last token; an encoder reads both ways."""
    return isinstance(getattr(model, "score", None), nn.Linear)


def _init_head(model: nn.Module, seed: int) -> None:
    head = head_layer(model)
    with torch.no_grad():
        std = head.in_features**-0.5
        head.weight.copy_(torch.randn(head.weight.shape, generator=seeding.generator("reward head", seed)) * std)
        if head.bias is not None:
            head.bias.zero_()
