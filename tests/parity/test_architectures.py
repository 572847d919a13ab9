"""Compare vectors of architectures that transformers builds from a small text configuration with transformers' own."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import byte_tokenizer, normalised, opened, random_texts, states
from transformers import AutoConfig, AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from beirgrid.core.errors import DataError

# Sizes by the keys of configurations. Windows and chunks are shorter than most of the texts.
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "model_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), 2),
    **dict.fromkeys(("intermediate_size", "n_inner", "hidden_dim", "d_ff", "ffn_dim", "ffn_hidden_size"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "d_inner"), 64),
    **dict.fromkeys(("shared_expert_intermediate_size", "feed_forward_size", "dff"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "rotary_dim", "attention_head_size", "kv_channels"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "n_shared_experts", "n_group", "topk_group"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "max_sequence_length"), 256),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "local_attention", "window_size"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("dropout", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
}
LIMIT = 100
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}


def _build(kind: str, folder: Path) -> None:
    """Save a random model of an architecture and its tokenizer, or skip the test where no text model can be built."""
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **SPECIAL)
    try:
        known = inspect.signature(CONFIG_MAPPING[kind].__init__).parameters
        plain = AutoConfig.for_model(kind)
        own = {key: value for key, value in SIZES.items() if key in known or hasattr(plain, key)}
        special = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "decoder_start")}
        config = AutoConfig.for_model(kind, **own, vocab_size=len(tokenizer), **special)
        with torch.device("meta"):
            empty = AutoModel.from_config(config)
        assert sum(weight.numel() for weight in empty.parameters()) < 2_000_000, "it stays large"
        torch.manual_seed(1)
        model = AutoModel.from_config(config, dtype=torch.float32)
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.2)
        ids = torch.tensor([tokenizer("abc def")["input_ids"]])
        assert model.eval()(input_ids=ids)[0].shape[:2] == ids.shape
    except Exception as error:
        pytest.skip(f"{kind}: no small text model ({type(error).__name__}: {str(error)[:200]})")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(MODEL_MAPPING_NAMES))
def test_vectors_equal_those_of_transformers_one_text_at_a_time(tmp_path, kind):
    _build(kind, tmp_path)
    spec = {"similarity": "cosine", "pooling": "mean", "max_length": LIMIT}
    try:
        encoder = opened("dense", tmp_path, spec, "float32", 100_000)
    except DataError as error:
        pytest.skip(f"{kind} is refused: {error}")
    texts = [text for text in random_texts(9) if text]
    together = encoder.encode_documents(texts)
    alone = np.concatenate([encoder.encode_documents([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=2e-5, rtol=0)
    plain = normalised([tokens.mean(0) for tokens in states(tmp_path, texts, LIMIT)])
    np.testing.assert_allclose(together, plain, atol=2e-5, rtol=0)
