"""The enumerable language of `ppo_lab.exact.language` as a corpus and a reward: RLHF on words whose optimum is known.

There is one prompt, "say", and sentences of the words a, b, c, … Texts to imitate are drawn from the language's
reference; what is then the reference of PPO is the model that imitated them, so the optimum is enumerated from that
model (`ppo_lab.rlhf.known_optimum.compare_run`). ``corpus.path`` names the language: ``4x4`` has 4 tokens and sentences
of 4, 256 in all; in ``5x4-stop`` the last of 5 tokens is the end, so that lengths vary from 1 to 4.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import CorpusConfig, RLHFConfig
from ppo_lab.exact.language import Language, make_language

from ..tokens import token_ids
from .split import Corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT = "say"
DEFAULT = "4x4"


def language_of(cfg: CorpusConfig, seed: int) -> Language:
    """The language that ``corpus.path`` names, drawn by ``seed``.

    >>> len(language_of(CorpusConfig(kind="language"), 0)), len(language_of(CorpusConfig(path="5x4-stop"), 0))
    (256, 341)
    """
    name = cfg.path or DEFAULT
    match = re.fullmatch(r"(\d+)x(\d+)(-stop)?", name)
    if match is None:
        raise ConfigError(f"corpus.path must name a language, as TOKENSxLENGTH or 5x4-stop, got {name!r}; try 4x4")
    tokens, length, stop = int(match[1]), int(match[2]), match[3] is not None
    if tokens - stop > len(string.ascii_lowercase):
        raise ConfigError(f"corpus.path must have at most {len(string.ascii_lowercase)} words, got {name!r}; try 4x4")
    try:
        return make_language(seed, tokens=tokens, length=length, stop=stop)
    except ValueError as error:
        raise ConfigError(f"corpus.path {name!r}: {error}") from None


def words_of(language: Language) -> list[str]:
    """The word of each token; the stop token has none, it is the tokenizer's EOS."""
    return list(string.ascii_lowercase[: language.tokens - (language.stop is not None)])


def sentences_of(language: Language) -> list[str]:
    """Every sequence in words, without prompt and end; no two alike, since only the stop token makes one shorter."""
    words = [*words_of(language), ""]
    rows = zip(language.sequence.tolist(), language.mask.sum(-1).tolist(), strict=True)
    return [" ".join(words[token] for token in row[:n]).strip() for row, n in rows]


def check_language(config: RLHFConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse settings under which the enumerated optimum would be that of another problem.

    Raises:
        ConfigError: answers that are no sentences, a tempered sampler, a discount, or a score that is not R(y).
    """
    language, name = language_of(config.corpus, config.seed), config.corpus.path or DEFAULT
    rules: list[tuple[str, Any, Any, str]] = [
        ("sampling.max_new_tokens", config.sampling.max_new_tokens, language.length, "the length of its sentences"),
        ("sampling.temperature", config.sampling.temperature, 1.0, "the optimum is of the untempered policy"),
        ("sampling.stop", list(config.sampling.stop), [], "only its own end ends a sentence"),
        ("ppo.gamma", config.ppo.gamma, 1.0, "R(y) counts in full at each token"),
        ("reward.normalize", config.reward.normalize, "none", "β is a price in units of R(y)"),
        ("reward.missing_eos", config.reward.missing_eos, "none", "a sentence at the cap is whole"),
    ]
    for field, got, value, why in rules:
        if got != value:
            rule = f"{field} must be {value} for the language {name} ({why})"
            raise ConfigError(f"{rule}, got {got}; set {field}: {value}")
    ids = tokenizer.convert_tokens_to_ids(words_of(language))
    ids += [] if language.stop is None else [tokenizer.eos_token_id]
    never = token_ids(tokenizer, config.sampling.suppress, field="sampling.suppress")
    loose, missed = set(range(len(tokenizer))) - {*ids, *never}, {*ids} & {*never}
    if loose or missed:
        every = [tokenizer.convert_ids_to_tokens(i) for i in sorted(set(range(len(tokenizer))) - {*ids})]
        what = f"{len(loose)} others not named" if loose else f"{tokenizer.convert_ids_to_tokens(min(missed))!r} named"
        shown = ", ".join(every[:12]) + (", …" if len(every) > 12 else "")
        raise ConfigError(
            f"sampling.suppress must name every token that is no word of the language {name}, and no word of it, got "
            f"{list(config.sampling.suppress)} ({what}); set sampling.suppress: [{shown}]"
        )


def from_language(cfg: CorpusConfig, seed: int) -> Corpus:
    """``cfg.size`` texts drawn from π_ref, and the one prompt as often as it is asked for."""
    language = language_of(cfg, seed)
    sentences, share = sentences_of(language), language.ref_logp.exp()
    draw = seeding.generator(seed, "language", "texts")
    drawn = torch.multinomial(share, cfg.size + cfg.held_out, replacement=True, generator=draw).tolist()
    texts = [f"{PROMPT} {sentences[i]}".strip() for i in drawn]
    return Corpus(
        train_texts=texts[: cfg.size],
        train_prompts=[PROMPT] * cfg.size,
        held_out_prompts=[PROMPT] * cfg.held_out,
        held_out_texts=texts[cfg.size :],
    )


def language_reward(cfg: CorpusConfig, seed: int) -> Callable[..., Tensor]:
    """``reward(prompts, responses) -> (B,)``: R(y) of each answer, looked up.

    Raises:
        ValueError: when called, on an answer that is no sentence of the language.
    """
    language = language_of(cfg, seed)
    place = {sentence: i for i, sentence in enumerate(sentences_of(language))}

    def reward(prompts: Sequence[str], responses: Sequence[str], **columns: list) -> Tensor:
        asked = [" ".join(response.split()) for response in responses]
        foreign = [text for text in asked if text not in place]
        if foreign:
            raise ValueError(
                f"an answer must be a sentence of the language {cfg.path or DEFAULT}, got {foreign[0]!r}; set "
                f"sampling.max_new_tokens to {language.length} and suppress every token that is no word of it"
            )
        return language.reward[[place[text] for text in asked]]

    return reward
