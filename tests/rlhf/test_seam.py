"""Where a prompt ends and its answer begins: together they are the text that was sampled, whatever the tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ppo_lab.config import RLHFConfig, build
from ppo_lab.records import Responses
from ppo_lab.rlhf.gold import vader
from ppo_lab.rlhf.models.build import build_policy
from ppo_lab.rlhf.reward_model import answers_of
from ppo_lab.rlhf.texts import Texts
from ppo_lab.rlhf.tokens import Continued, join, pad_rows, word_tokenizer

TEXT = "the cast is lovely, and I'd see it again."


def byte_pairs() -> Any:
    """Byte-level, as GPT-2's: most letters are tokens, "Ġcast" is one, "lovely" is " love" and "ly"."""
    merges = [("l", "y"), ("Ġ", "l"), ("o", "v"), ("Ġl", "ov"), ("Ġlov", "e"), ("Ġ", "c"), ("a", "s"), ("as", "t"),
              ("Ġc", "ast")]  # fmt: skip
    known = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(known)}, merges))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<end>")


def word_pieces() -> Any:
    """As BERT's: what goes on in a word is marked by ##."""
    known = ["[PAD]", "[UNK]", "[SEP]", *"the cast is love ##ly , and i ' d see it again .".split()]
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(known)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]")


def answered(tokenizer: Any, ids: list[int], cut: int) -> Responses:
    """A record of one answer: ``ids`` from ``cut`` on, stopped, between padding on both sides."""
    stop, fill = [tokenizer.eos_token_id], tokenizer.pad_token_id
    before, seen = pad_rows([ids[:cut], ids], fill, side="left")
    response, mask = pad_rows([ids[cut:] + stop, ids + stop], fill, side="right")
    rows = torch.zeros(1, dtype=torch.long)
    return Responses(
        tokens=torch.cat([before, response], -1)[:1], attention=torch.cat([seen, mask], -1)[:1], response=response[:1],
        mask=mask[:1], stopped=rows.bool(), logp=torch.zeros(response[:1].shape), index=rows, policy_version=rows,
    )  # fmt: skip


@pytest.mark.parametrize("make", [byte_pairs, word_pieces, lambda: word_tokenizer([TEXT])], ids=["bytes", "##", "word"])
def test_prompt_and_answer_are_the_text_wherever_it_is_cut(make: Any) -> None:
    tokenizer = make()
    ids = tokenizer(TEXT).input_ids
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert len(ids) > 5 and "lovely" in whole
    for cut in range(1, len(ids) + 1):
        prompt = tokenizer.decode(ids[:cut], skip_special_tokens=True)
        (answer,) = Texts(tokenizer, [prompt], {}, cap=64).responses_of(answered(tokenizer, ids, cut))
        assert join(prompt, answer) == whole, (prompt, answer)


def test_a_reward_reads_the_word_that_was_finished() -> None:
    tokenizer = byte_pairs()
    ids = tokenizer("the cast is lovely").input_ids
    cut = len(ids) - 1
    texts = Texts(tokenizer, ["the cast is love"], {}, cap=8)
    answers = texts.responses_of(answered(tokenizer, ids, cut))
    assert answers == ["ly"] and isinstance(answers[0], Continued)
    assert vader(texts.prompts, answers) == vader(["the cast is"], ["lovely"]) != vader(["the cast is love"], ["ly"])


def test_behind_a_chat_template_an_answer_begins_anew() -> None:
    tokenizer = byte_pairs()
    ids = tokenizer("is it good?").input_ids
    record = answered(tokenizer, [*ids, *tokenizer("Yes.").input_ids], len(ids))  # a template of special tokens only
    for chat, text in ((True, "is it good? Yes."), (False, "is it good?Yes.")):
        (answer,) = Texts(tokenizer, ["is it good?"], {}, cap=8, chat=chat).responses_of(record)
        assert join("is it good?", answer) == text


def test_the_texts_that_a_reward_model_learns_from_are_put_together_likewise() -> None:
    tokenizer = byte_pairs()
    data = {"policy": {"layers": 1, "width": 8, "heads": 1}, "sampling": {"max_new_tokens": 8}}
    config = build(RLHFConfig, data)
    policy = build_policy(config.policy, tokenizer, 0)
    prompts = ["the cast is love"] * 16
    answers = answers_of(config, policy, tokenizer)(prompts, 0)
    letter = [answer for answer in answers if answer and not answer[0].isspace()]
    assert letter and all(join(prompts[0], answer) == prompts[0] + answer for answer in answers)
