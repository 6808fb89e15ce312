"""The models of the language benchmarks, made offline: a Llama of 4.7 M parameters, a scalar one, a word tokenizer.

    python benchmarks/peers/tiny_model.py FOLDER

Four layers of width 256, vocabulary 1024. Both sides load the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path


def make(folder: Path) -> None:
    """``policy/`` and ``reward/`` below ``folder``, random weights of seeds 0 and 1."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

    config = dict(vocab_size=1024, hidden_size=256, intermediate_size=1024, num_hidden_layers=4,
                  num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256, pad_token_id=0,
                  bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)  # fmt: skip
    words = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3} | {f"w{i}": i for i in range(4, 1024)}
    inner = Tokenizer(WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<bos>",
                                        eos_token="<eos>", unk_token="<unk>", padding_side="left")  # fmt: skip
    torch.manual_seed(0)
    models = {"policy": LlamaForCausalLM(LlamaConfig(**config))}
    torch.manual_seed(1)
    models["reward"] = LlamaForSequenceClassification(LlamaConfig(**config, num_labels=1))
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
