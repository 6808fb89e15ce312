"""Ids: exactly one BOS, masks from lengths, prompts that fit, tokenizers that differ."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.config import ConfigError
from ppo_lab.rlhf.corpus import encode_prompts
from ppo_lab.rlhf.tokens import (
    chat_text,
    decode_rows,
    encode_texts,
    first_difference,
    join,
    pad_id,
    pad_rows,
    same_tokenizer,
    stop_ids,
    token_ids,
    uses_bos,
    word_tokenizer,
)

WORDS = [f"w{i}" for i in range(30)]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %} {{ m.role }} {{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %} assistant{% endif %}"
)


def tokenizer(*, pad: str | None = "<pad>", template: str | None = None):
    made = word_tokenizer([*WORDS, "user", "assistant"], pad=pad)
    made.chat_template = template
    return made


def without_bos():
    """Like GPT-NeoX or Qwen: no BOS is put before a text."""
    from tokenizers import processors

    made = tokenizer()
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    return made


def prompts(made, texts, **options):
    settings = dict(max_tokens=16, overlong="error", context=64, max_new_tokens=8)
    return encode_prompts(made, texts, **(settings | options))


def words(n: int) -> str:
    return " ".join(WORDS[i % 30] for i in range(n))


def test_a_saved_tokenizer_is_the_same(tmp_path):
    from ppo_lab.rlhf.models.build import load_tokenizer

    made = tokenizer(template=TEMPLATE)
    made.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert same_tokenizer(made, again) and again.padding_side == "left" and again.pad_token == "<pad>"
    assert again("w1 w2 nonsense").input_ids == made("w1 w2 nonsense").input_ids
    assert again.decode(again("w3 w4").input_ids, skip_special_tokens=True) == "w3 w4"
    assert chat_text(again, "w1") == "<bos> user w1 assistant"


@pytest.mark.parametrize("pad", ["<pad>", None])
def test_b03_masks_come_from_lengths_whatever_pads(pad):
    made = tokenizer(pad=pad)
    rows = encode_texts(made, ["w1 w2", "w3 w4 w5 w6"], close=True)
    tokens, attention = pad_rows(rows, pad_id(made), side="right")
    assert (made.pad_token_id == made.eos_token_id) is (pad is None)
    assert attention.tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    assert [row[mask][-1].item() for row, mask in zip(tokens, attention, strict=True)] == [made.eos_token_id] * 2
    asked = prompts(made, ["w1", "w2 w3 <eos> w4"])  # the pad id inside a prompt is a token like any other
    assert asked.attention.tolist() == [[False] * 3 + [True] * 2, [True] * 5]


def test_b30_one_bos_and_the_same_ids_everywhere():
    for made in (tokenizer(template=TEMPLATE), tokenizer(template=TEMPLATE.replace("{{ bos_token }}", ""))):
        chats = [f"{words(i + 1)} w{i}" for i in range(20)]
        asked = prompts(made, chats, chat=True, max_tokens=40)
        for text, tokens, attention in zip(chats, asked.tokens, asked.attention, strict=True):
            ids = tokens[attention].tolist()
            assert ids.count(made.bos_token_id) == 1 and ids[0] == made.bos_token_id
            assert ids == encode_texts(made, [chat_text(made, text)])[0]
            answer = "w7 w8"
            trained = encode_texts(made, [join(chat_text(made, text), answer)], close=True)[0]
            sampled = [*ids, *made(answer, add_special_tokens=False).input_ids, made.eos_token_id]
            assert trained == sampled and trained.count(made.bos_token_id) == 1
    twice = encode_texts(tokenizer(), ["<bos> <bos> w1", "<bos> w1", "w1"])
    assert twice[0] == twice[1] == twice[2] and twice[0].count(tokenizer().bos_token_id) == 1
    assert encode_texts(without_bos(), ["w1"])[0] == [without_bos().get_vocab()["w1"]], "none where none is used"


def test_b30_difference_between_parts_and_whole_is_shown():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<eos>": 0, "Ġ": 1, "f": 2, "i": 3, "l": 4, "m": 5, "s": 6, "fi": 7, "lm": 8, "lms": 9}
    backend = Tokenizer(models.BPE(vocabulary, [("f", "i"), ("l", "m"), ("lm", "s")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    whole, parts = torch.tensor([[7, 9, 0]]), torch.tensor([[7, 8, 6]])  # fi+lms, and the prompt "film" answered by "s"
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert first_difference(made, whole, everything) is None
    assert first_difference(made, parts, everything) == "row 0, token 1: in parts ['lm', 's'], as one text ['lms']"


def test_b31_empty_prompt_starts_from_bos_or_is_named():
    made = tokenizer()
    mixed, plain = prompts(made, ["w1 w2", "", "w3"]), prompts(made, ["w1 w2", "w3"])
    assert mixed.tokens[1][mixed.attention[1]].tolist() == [made.bos_token_id]
    assert torch.equal(mixed.tokens[[0, 2]], plain.tokens) and torch.equal(mixed.attention[[0, 2]], plain.attention)
    silent = without_bos()
    assert prompts(silent, ["w1", ""]).tokens[1].tolist() == [silent.bos_token_id], "not automatic, but there"
    silent.bos_token = None
    with pytest.raises(ConfigError, match="empty prompt in row 1; remove it, or give the tokenizer a bos_token"):
        prompts(silent, ["w1", "", "w2"])


def test_b31_empty_row_leaves_its_neighbours_answers_alone():
    from tiny import tiny

    from ppo_lab import seeding
    from ppo_lab.records import take
    from ppo_lab.rlhf.generate import generate

    made = tokenizer()
    model = tiny(vocabulary=len(made))
    noise = seeding.uniforms(0, 0, range(3), 6)
    options = dict(max_new_tokens=6, stop_ids=stop_ids(made), pad_id=pad_id(made))
    mixed = generate(model, prompts(made, ["w1 w2", "", "w3"]), noise=noise, **options)
    plain = generate(model, prompts(made, ["w1 w2", "w3"]), noise=noise[[0, 2]], **options)
    assert torch.equal(take(mixed, torch.tensor([0, 2])).response, plain.response)


@pytest.mark.parametrize("context", [64, 20])
def test_b33_overlong_prompts(context):
    made, limit = tokenizer(), 16 if context == 64 else 12  # BOS counts; 20 positions less 8 new tokens leave 12
    texts = [words(n) for n in (14, 15, 16)]  # 15, 16 and 17 tokens
    long = 1 if context == 64 else 3
    bound = "corpus.max_prompt_tokens 16" if context == 64 else "context 20 less sampling.max_new_tokens 8"
    first = 17 if context == 64 else 15
    with pytest.raises(
        ConfigError, match=rf"allows {limit} tokens \({bound}\), got {first} in prompt .* \({long} of 3"
    ):
        prompts(made, texts, context=context)
    with pytest.warns(UserWarning, match=f"{long} of 3 prompts longer than {limit} tokens .* cut to their end"):
        cut = prompts(made, texts, context=context, overlong="truncate")
    assert cut.tokens.shape[-1] == limit and cut.tokens.shape[-1] + 8 <= context
    for text, tokens, attention in zip(texts, cut.tokens, cut.attention, strict=True):
        whole, kept = made(text).input_ids, tokens[attention].tolist()
        assert kept == whole if len(whole) <= limit else kept == [made.bos_token_id] + whole[-(limit - 1) :]
    if context == 64:
        with pytest.warns(UserWarning, match="1 of 3 prompts longer than 16 tokens .* dropped"):
            dropped = prompts(made, texts, context=context, overlong="drop", index=torch.tensor([7, 8, 9]))
        assert dropped.index.tolist() == [7, 8] and len(dropped) == 2
    else:
        with pytest.warns(UserWarning, match="3 of 3"), pytest.raises(ConfigError, match="leave at least one prompt"):
            prompts(made, texts, context=context, overlong="drop")


def test_b33_no_room_for_any_prompt():
    with pytest.raises(ConfigError, match="sampling.max_new_tokens must leave room .* 8 tokens, got 8; use at most 7"):
        prompts(tokenizer(), ["w1"], context=8)


def test_b28_tokenizers_with_permuted_ids_are_not_the_same():
    a, b = word_tokenizer(["a b c"]), word_tokenizer(["a b c"])
    other = word_tokenizer(["a b d"])
    assert same_tokenizer(a, b) and not same_tokenizer(a, other)
    assert not same_tokenizer(a, word_tokenizer(["a b c"], pad=None)), "the same words under other ids"


def test_stop_tokens_are_single_and_known():
    made = tokenizer()
    vocabulary = made.get_vocab()
    assert stop_ids(made, ["w3"]) == {made.eos_token_id, vocabulary["w3"]}
    assert stop_ids(made, eos=[7, 9]) == {made.eos_token_id, 7, 9} and stop_ids(made, eos=7) == {made.eos_token_id, 7}
    with pytest.raises(ConfigError, match="sampling.stop must name single tokens .* got 'w33'; did you mean 'w3'"):
        stop_ids(made, ["w33"])
    with pytest.raises(ConfigError, match="sampling.suppress must name single tokens .* got 'w1 w2'"):
        token_ids(made, ["w1 w2"], field="sampling.suppress")
    made.eos_token = None
    with pytest.raises(ConfigError, match="sampling.stop must name a token where the tokenizer has no EOS"):
        stop_ids(made)


def test_no_pad_token_takes_eos_and_neither_is_an_error():
    made = tokenizer()
    made.pad_token = None
    assert pad_id(made) == made.eos_token_id
    made.eos_token = None
    with pytest.raises(ConfigError, match="must have a pad or an EOS token"):
        pad_id(made)


def test_chat_without_a_template_is_named():
    with pytest.raises(ConfigError, match="corpus.chat needs a tokenizer with a chat template"):
        prompts(tokenizer(), ["w1"], chat=True)


def test_decoding_and_joining_give_the_text_back():
    made = tokenizer()
    text = "w1 w2 w3 w4"
    ids = torch.tensor([made(text).input_ids + [made.eos_token_id]])
    response = torch.tensor([[False] * 3 + [True] * 3])
    assert decode_rows(made, ids, ~response) == ["w1 w2"] and decode_rows(made, ids, response) == ["w3 w4"]
    assert join("w1 w2", "w3 w4") == text and join("", text) == join(text, "") == text
    assert join("a\n", "b") == "a\nb" and join("a", "\nb") == "a\nb"
    assert uses_bos(made) and not uses_bos(without_bos())


def test_padding_side_is_checked():
    with pytest.raises(ValueError, match="side must be left or right"):
        pad_rows([[1]], 0, side="both")
