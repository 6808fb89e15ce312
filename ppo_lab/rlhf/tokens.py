"""Text to ids and back, by one set of rules for training, evaluation and PPO.

- Exactly one BOS where the tokenizer uses one, whether it, the chat template or nobody put it there.
- Padding is told from lengths. The pad token may be the EOS token: no mask is ever made from ``id == pad``.
- `join` is the one way to put a prompt and its response together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppo_lab.config import ConfigError
from ppo_lab.records import Responses

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"


def word_tokenizer(words: Iterable[str], *, pad: str | None = PAD) -> PreTrainedTokenizerBase:
    """A Hugging Face tokenizer with one token a word, for tiny models; ``save_pretrained`` writes the usual folder.

    Args:
        words: texts or words; what stands between spaces becomes a token, in sorted order.
        pad: the pad token, or None: EOS pads.

    >>> tokenizer = word_tokenizer(["the cast is lovely ."])
    >>> tokenizer("the cast is lovely .").input_ids, tokenizer.decode([7, 4])
    ([1, 8, 5, 6, 7, 4], 'lovely .')
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = [token for token in (pad, BOS, EOS, UNKNOWN) if token is not None]
    vocabulary = special + sorted({word for text in words for word in text.split()} - set(special))
    ids = {token: i for i, token in enumerate(vocabulary)}
    backend = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, ids[BOS])])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        pad_token=pad or EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """What fills the gaps: the pad token, else the EOS token. Raises `ConfigError` where there is neither."""
    for found in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if found is not None:
            return found
    raise ConfigError(
        f"the tokenizer of {tokenizer.name_or_path or type(tokenizer).__name__} must have a pad or an EOS token, got "
        "neither; set tokenizer.pad_token and save it again"
    )


def uses_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts its BOS before a text by itself."""
    bos = tokenizer.bos_token_id
    return bos is not None and tokenizer("a").input_ids[:1] == [bos]


def starts_with_bos(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> bool:
    """Whether these ids begin with the tokenizer's BOS."""
    return tokenizer.bos_token_id is not None and list(ids[:1]) == [tokenizer.bos_token_id]


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, close: bool = False) -> list[list[int]]:
    """Ids of each text with exactly one BOS at its head, or none where the tokenizer uses none.

    Args:
        texts: B strings; one that begins with the BOS token's own text, as chat templates write it, gets no second.
        close: end each with EOS, once, where the tokenizer has one.
    """
    if not texts:
        return []
    found = tokenizer(list(texts), return_attention_mask=False, return_token_type_ids=False)  # lengths say as much
    rows = [list(row) for row in found.input_ids]
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    for row in rows:
        while bos is not None and row[:2] == [bos, bos]:
            del row[0]
        if close and eos is not None and row[-1:] != [eos]:
            row.append(eos)
    return rows


def pad_rows(rows: Sequence[Sequence[int]], fill: int, *, side: str) -> tuple[Tensor, Tensor]:
    """Rows of ids as ``(B, L)`` tokens and the bool attention that their lengths give; ``side`` is left or right.

    >>> pad_rows([[5, 2], [2]], 2, side="right")[1]
    tensor([[ True,  True],
            [ True, False]])
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be left or right, got {side!r}")
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    gaps = [[fill] * (longest - len(row)) for row in rows]
    full = zip(gaps, rows, strict=True) if side == "left" else zip(rows, gaps, strict=True)
    tokens = torch.tensor([[*first, *second] for first, second in full], dtype=torch.long)
    attention = torch.arange(longest) < lengths[:, None]
    return tokens, attention.flip(-1) if side == "left" else attention


def token_ids(tokenizer: PreTrainedTokenizerBase, names: Sequence[str], *, field: str) -> list[int]:
    """The id of each named token. Raises `ConfigError` naming ``field`` where a name is not exactly one token."""
    vocabulary = tokenizer.get_vocab()
    found = []
    for name in names:
        plain = tokenizer(name, add_special_tokens=False).input_ids
        known = name in vocabulary
        if not known and (len(plain) != 1 or plain == [tokenizer.unk_token_id]):
            near = difflib.get_close_matches(name, vocabulary, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "name a token of its vocabulary"
            raise ConfigError(f"{field} must name single tokens of the tokenizer, got {name!r}; {hint}")
        found.append(vocabulary[name] if known else plain[0])
    return found


def stop_ids(
    tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = (), *, eos: int | Sequence[int] | None = None
) -> frozenset[int]:
    """Ids that end an answer: the tokenizer's EOS, the model's (``generation_config.eos_token_id``), and ``stop``.

    Raises:
        ConfigError: there is none, so no answer could end; or a name in ``stop`` is not one token.
    """
    more = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    found = frozenset([*own, *more, *token_ids(tokenizer, stop, field="sampling.stop")])
    if not found:
        raise ConfigError("sampling.stop must name a token where the tokenizer has no EOS, got none; try ['.']")
    return found


def unknown_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Words that the tokenizer can only read as its unknown token, each once, in order; byte-level ones know all.

    >>> unknown_words(word_tokenizer(["the cast is lovely ."]), ["the CAST is", "the crew is"])
    ['CAST', 'crew']
    """
    unknown, found = tokenizer.unk_token_id, {}
    for word in dict.fromkeys(word for text in texts for word in text.split()):
        if unknown is not None and word != tokenizer.unk_token:
            found[word] = unknown in tokenizer(word, add_special_tokens=False).input_ids
    return [word for word, is_unknown in found.items() if is_unknown]


def nearest_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> str:
    """The words in quotes, each with the likeliest one of the vocabulary that was meant."""
    vocabulary = [token for token in tokenizer.get_vocab() if token not in tokenizer.all_special_tokens]
    near = {word: difflib.get_close_matches(word.lower(), vocabulary, n=1, cutoff=0.7) for word in words}
    return ", ".join(repr(word) + (f" (did you mean {near[word][0]!r}?)" if near[word] else "") for word in words)


def chat_text(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    """The prompt as the user's turn of the chat template, up to where the answer begins."""
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"corpus.chat needs a tokenizer with a chat template, got {tokenizer.name_or_path or 'one without'}; set "
            "corpus.chat: false"
        )
    turn = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))


class Continued(str):
    """A response that goes on where the prompt breaks off, inside a word or before a comma: `join` adds no space."""

    __slots__ = ()


def join(prompt: str, response: str) -> str:
    """The text a reward sees: white space at the seam as it is; where there is none, one space or what was sampled.

    >>> join("the cast", "is lovely .") == join("the cast", " is lovely .") == join("the cast ", "is lovely .")
    True
    >>> join("the cast is love", Continued("ly ."))
    'the cast is lovely .'
    """
    seamless = isinstance(response, Continued) or not prompt or not response
    return prompt + ("" if seamless or prompt[-1].isspace() or response[0].isspace() else " ") + response


def decode_rows(tokenizer: PreTrainedTokenizerBase, tokens: Tensor, mask: Tensor) -> list[str]:
    """The words of each row where ``mask`` is True, special tokens left out."""
    pairs = zip(tokens.tolist(), mask.tolist(), strict=True)  # lists: a tensor a row is slower than its words
    return [_plain(tokenizer, list(compress(row, kept))) for row, kept in pairs]


def decode_answers(tokenizer: PreTrainedTokenizerBase, responses: Responses, *, chat: bool = False) -> list[str]:
    """The words of each answer, so that ``join(prompt, answer)`` is the text that was sampled.

    An answer is what follows the prompt in the decoded whole: alone it may lose its leading space, and nothing would
    tell whether it begins a word or finishes one. Behind a chat template it always begins anew.
    """
    start = responses.tokens.shape[-1] - responses.response.shape[-1]
    before = decode_rows(tokenizer, responses.tokens[:, :start], responses.attention[:, :start])
    whole = decode_rows(tokenizer, responses.tokens, responses.attention)
    alone = decode_rows(tokenizer, responses.response, responses.mask)
    answers = []
    for prompt, text, answer in zip(before, whole, alone, strict=True):
        if text.startswith(prompt):
            answer = text[len(prompt) :]
        goes_on = not chat and prompt and answer and not (prompt[-1].isspace() or answer[0].isspace())
        answers.append(Continued(answer) if goes_on else answer)
    return answers


def _plain(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def same_tokenizer(a: PreTrainedTokenizerBase, b: PreTrainedTokenizerBase) -> bool:
    """Whether ids of one mean the same to the other: equal vocabularies and equal BOS, EOS and unknown tokens."""
    same_special = all(getattr(a, n) == getattr(b, n) for n in ("bos_token_id", "eos_token_id", "unk_token_id"))
    return a is b or (same_special and a.get_vocab() == b.get_vocab())


def first_difference(tokenizer: PreTrainedTokenizerBase, tokens: Tensor, attention: Tensor) -> str | None:
    """How ids that were put together in parts (prompt, then response) differ from those of the whole text, if they do.

    A reward model trained on whole texts has never seen the former. The answer is a line for a warning, about the first
    row that differs; None: all rows are the same.
    """
    for i, (row, mask) in enumerate(zip(tokens, attention, strict=True)):
        parts = row[mask].tolist()
        whole = encode_texts(tokenizer, [_plain(tokenizer, parts)])[0]
        special = {tokenizer.eos_token_id, tokenizer.bos_token_id}
        parts, whole = ([t for t in ids if t not in special] for ids in (parts, whole))
        if parts != whole:
            unlike = (k for k, (p, w) in enumerate(zip(parts, whole, strict=False)) if p != w)
            at = next(unlike, min(len(parts), len(whole)))
            shown = [tokenizer.convert_ids_to_tokens(ids[at : at + 3]) for ids in (parts, whole)]
            return f"row {i}, token {at}: in parts {shown[0]}, as one text {shown[1]}"
    return None
