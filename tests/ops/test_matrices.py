"""What is a weight matrix in the trees of public models, in whatever form they come."""

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from ops.pruning import Pruner, matching, matrices

# By model, in the names of its public code: what is pruned and what is left alone, with shapes of a small version.
MODELS = {
    "ViT, big_vision": (
        {
            "embedding/kernel": (4, 4, 3, 16),
            "Transformer/encoderblock_0/MultiHeadDotProductAttention_0/query/kernel": (16, 2, 8),
            "Transformer/encoderblock_0/MultiHeadDotProductAttention_0/out/kernel": (2, 8, 16),
            "Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel": (16, 64),
            "head/kernel": (16, 10),
        },
        {
            "cls": (1, 1, 16),
            "pos_embedding": (1, 64, 16),
            "Transformer/posembed_input/pos_embedding": (1, 64, 16),
            "Transformer/encoderblock_0/LayerNorm_0/scale": (16,),
            "Transformer/encoderblock_0/MultiHeadDotProductAttention_0/query/bias": (2, 8),
            "MAPHead_0/probe": (1, 1, 16),
        },
    ),
    "BERT, transformers in flax": (
        {
            "embeddings/word_embeddings/embedding": (90, 16),
            "encoder/layer/0/attention/self/query/kernel": (16, 16),
            "encoder/layer/0/output/dense/kernel": (64, 16),
            "pooler/dense/kernel": (16, 16),
            "cls/predictions/transform/dense/kernel": (16, 16),
        },
        {
            "embeddings/position_embeddings/embedding": (64, 16),
            "embeddings/token_type_embeddings/embedding": (2, 16),
            "embeddings/LayerNorm/scale": (16,),
            "encoder/layer/0/output/LayerNorm/bias": (16,),
        },
    ),
    "GPT-2, transformers in PyTorch": (
        {
            "transformer/wte/weight": (90, 16),
            "transformer/h/0/attn/c_attn/weight": (16, 48),
            "transformer/h/0/mlp/c_proj/weight": (64, 16),
        },
        {"transformer/wpe/weight": (64, 16), "transformer/h/0/ln_1/weight": (16,), "transformer/ln_f/bias": (16,)},
    ),
    "T5, transformers in flax": (
        {
            "shared/embedding": (90, 16),
            "encoder/block/0/layer/0/SelfAttention/q/kernel": (16, 16),
            "encoder/block/0/layer/1/DenseReluDense/wi_0/kernel": (16, 64),
            "lm_head/kernel": (16, 90),
        },
        {
            "encoder/block/0/layer/0/SelfAttention/relative_attention_bias/embedding": (32, 4),
            "encoder/block/0/layer/0/layer_norm/weight": (16,),
        },
    ),
    "T5, t5x with scanned layers": (
        {"decoder/layers/self_attention/query/kernel": (16, 4, 16), "token_embedder/embedding": (90, 16)},
        {
            "decoder/layers/pre_self_attention_layer_norm/scale": (16, 4),
            "decoder/layers/relpos_bias/rel_embedding": (4, 4, 32),
        },
    ),
    "ResNet, flax": (
        {"conv_init/kernel": (7, 7, 3, 8), "BottleneckResNetBlock_0/conv_proj/kernel": (1, 1, 8, 32)},
        {
            "bn_init/scale": (8,),
            "BottleneckResNetBlock_0/norm_proj/bias": (32,),
            "BottleneckResNetBlock_0/BatchNorm_0/mean": (8,),
        },
    ),
    "Llama, transformers in PyTorch": (
        {
            "model/embed_tokens/weight": (90, 16),
            "model/layers/0/self_attn/k_proj/weight": (8, 16),
            "model/layers/0/mlp/gate_proj/weight": (64, 16),
            "lm_head/weight": (90, 16),
        },
        {
            "model/layers/0/input_layernorm/weight": (16,),
            "model/layers/0/self_attn/rotary_emb/inv_freq": (4,),
            "model/norm/weight": (16,),
        },
    ),
    "Mamba, transformers in PyTorch": (
        {
            "backbone/embeddings/weight": (90, 16),
            "backbone/layers/0/mixer/in_proj/weight": (64, 16),
            "backbone/layers/0/mixer/conv1d/weight": (32, 1, 4),
            "backbone/layers/0/mixer/x_proj/weight": (9, 32),
        },
        {
            "backbone/layers/0/mixer/A_log": (32, 16),
            "backbone/layers/0/mixer/D": (32,),
            "backbone/layers/0/mixer/dt_proj/bias": (32,),
            "backbone/layers/0/norm/weight": (16,),
            "backbone/norm_f/weight": (16,),
        },
    ),
    "ConvNeXt, timm": (
        {
            "stem/0/weight": (8, 3, 4, 4),
            "stages/0/blocks/0/conv_dw/weight": (8, 1, 7, 7),
            "stages/0/blocks/0/mlp/fc1/weight": (32, 8),
            "head/fc/weight": (10, 8),
        },
        {"stem/1/weight": (8,), "stages/0/blocks/0/gamma": (8,), "stages/0/blocks/0/norm/weight": (8,)},
    ),
    "CLIP, transformers in flax": (
        {
            "text_model/embeddings/token_embedding/embedding": (90, 16),
            "vision_model/embeddings/patch_embedding/kernel": (4, 4, 3, 16),
            "text_projection/kernel": (16, 8),
        },
        {
            "text_model/embeddings/position_embedding/embedding": (64, 16),
            "vision_model/embeddings/position_embedding/embedding": (64, 16),
            "vision_model/embeddings/class_embedding": (16,),
            "vision_model/pre_layrnorm/scale": (16,),
            "logit_scale": (),
        },
    ),
    "Whisper, transformers in PyTorch": (
        {
            "model/encoder/conv1/weight": (16, 8, 3),
            "model/decoder/embed_tokens/weight": (90, 16),
            "model/decoder/layers/0/encoder_attn/q_proj/weight": (16, 16),
        },
        {
            "model/encoder/embed_positions/weight": (64, 16),
            "model/decoder/embed_positions/weight": (64, 16),
            "model/encoder/layers/0/self_attn_layer_norm/weight": (16,),
        },
    ),
    "Swin and SAM, in PyTorch; names that only resemble": (
        {
            "normal_head/kernel": (16, 16),
            "abnormality_classifier/kernel": (16, 16),
            "vae/mean/kernel": (16, 8),
            "pos_proj/kernel": (16, 16),
            "token_embedding": (90, 16),
        },
        {
            "attn/relative_position_bias_table": (9, 4),
            "attn/rel_pos_h": (13, 8),
            "ln/weight": (4, 4),
            "mask_token": (1, 2, 16),
        },
    ),
}
FORMS = {
    "nested": unflatten_dict,
    "tuples": lambda flat: flat,
    "slashes": lambda flat: {"/".join(names): leaf for names, leaf in flat.items()},
    "dots": lambda flat: {".".join(names): leaf for names, leaf in flat.items()},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_public_models_in_any_form(model, form):
    pruned, alone = MODELS[model]
    arrays = {tuple(path.split("/")): np.ones(shape, np.float32) for path, shape in (pruned | alone).items()}
    found = jax.tree_util.tree_map_with_path(matrices, FORMS[form](arrays))
    flat = {path: "/".join(path) in pruned for path in arrays}
    assert found == FORMS[form](flat)


@pytest.mark.parametrize("form", FORMS)
def test_layers_and_patterns_in_any_form(form):
    layers = {
        ("h", "dense", "kernel"): np.arange(32.0, dtype=np.float32).reshape(4, 2, 4),
        ("h", "dense", "bias"): np.ones((4, 4), np.float32),
        ("h", "dense", "head", "kernel"): np.ones((4, 4, 3), np.float32),
    }
    pruner = Pruner(density=0.5, lam=0.0, per_leaf=True, exclude=matching("head.kernel$"))
    expected = dict(layers)
    expected["h", "dense", "kernel"] = layers["h", "dense", "kernel"] * np.array([[0.0], [1.0]], np.float32)
    jax.tree.map(np.testing.assert_array_equal, pruner.harden(FORMS[form](layers)), FORMS[form](expected))
