"""The vision transformer (Dosovitskiy et al. 2021), with the parameter names of big_vision.

The axes are `B` batch, `S` tokens, `D` width, `H` heads, and `N` patches: all tokens but the class token. The
parameters, all in float32, are

    embedding/kernel                                      [P, P, 3, D]; and bias
    pos_embedding                                         [1, N, D]
    cls                                                   [1, 1, D], with pool="tok"
    Transformer/encoderblock_0/LayerNorm_0                before the attention
    Transformer/encoderblock_0/MultiHeadDotProductAttention_0/{query,key,value,out}
    Transformer/encoderblock_0/LayerNorm_1                before the MLP
    Transformer/encoderblock_0/MlpBlock_0/{Dense_0,Dense_1}
    Transformer/encoder_norm
    pre_logits                                            with rep_size
    head

With `scan=True` all blocks are one, `Transformer/encoderblock`, with the depth as leading axis.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from experiments.core.errors import UsageError
from experiments.core.training.mesh import by_example

MakeMlp = Callable[[int], nn.Module]  # the number of a block to its MLP, [B, S, D] -> [B, S, D]

SIZES = {  # width, depth, width of the MLP, heads
    "mu": (32, 1, 128, 2),
    "Ti": (192, 12, 768, 3),
    "S": (384, 12, 1536, 6),
    "B": (768, 12, 3072, 12),
    "L": (1024, 24, 4096, 16),
}
POOLS = ("tok", "gap")
GELUS = {"tanh": True, "exact": False}  # whether it is approximated
# What the backward pass keeps of a block; without remat that is everything.
REMATS: dict[bool | str, Callable[..., bool] | None] = {
    False: jax.checkpoint_policies.everything_saveable,
    "cheap": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    True: None,
}
REMATS |= {"none": REMATS[False], "all": REMATS[True]}
SCANNED = "encoderblock"  # the name of all blocks as one, if they are scanned


def fields_of(variant: str, sizes: Mapping[str, Sequence[int | None]], network: str, example: str) -> dict[str, Any]:
    """Returns the fields of `VisionTransformer` for a variant such as "B/16": a name in `sizes` and the patch size.

    Raises:
      UsageError: there is no such variant; the message names the `network`, an `example` and the `sizes`.
    """
    size, _, patch = variant.partition("/")
    if size not in sizes or not patch.isdecimal() or int(patch) == 0:
        raise UsageError(
            f"the {network} {variant!r} is not one of SIZE/PATCH, such as {example}, where SIZE is one of "
            f"{', '.join(sizes)} and PATCH is in pixels"
        )
    names = ("width", "depth", "mlp_dim", "num_heads", "rep_size")[: len(sizes[size])]
    return dict(zip(names, sizes[size], strict=True)) | {"patch_size": int(patch)}


def make(variant: str, num_classes: int, **options: Any) -> "VisionTransformer":
    """Returns the network of a size and a patch size, such as "B/16".

    Args:
      variant: a name in SIZES, a slash, and the patch size in pixels.
      num_classes: the number of logits.
      **options: further fields of `VisionTransformer`; they win over those of the size.

    Raises:
      UsageError: there is no such variant.
    """
    return VisionTransformer(num_classes, **fields_of(variant, SIZES, "vision transformer", "B/16") | options)


def forward_flops(model: "VisionTransformer", image_size: int, channels: int = 3) -> float:
    """Returns the operations of the matrix products in one image's forward pass: two for each multiplication.

    MLPs of `make_mlp` are counted as if they were `MlpBlock`.
    """
    patches = (image_size // model.patch_size) ** 2
    tokens, width = patches + (model.pool == "tok"), model.width
    embedding = patches * model.patch_size**2 * channels * width
    attention = 4 * tokens * width**2 + 2 * tokens**2 * width
    head = (model.rep_size or 0) * width + (model.rep_size or width) * model.num_classes
    return 2.0 * (embedding + model.depth * (attention + 2 * tokens * width * model.mlp_dim) + head)


class MlpBlock(nn.Module):
    """Two dense layers with a GELU between them.

    Attributes:
      mlp_dim: the width of the hidden layer.
      dtype: the type of the computation.
      gelu: its form, a name in GELUS.
    """

    mlp_dim: int
    dtype: jax.typing.DTypeLike = jnp.float32
    gelu: str = "tanh"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, S, D] to [B, S, D]."""
        dense = functools.partial(
            nn.Dense,
            dtype=self.dtype,
            kernel_init=nn.initializers.xavier_uniform(),
            bias_init=nn.initializers.normal(1e-6),
        )
        hidden = nn.gelu(dense(self.mlp_dim)(x), approximate=GELUS[self.gelu])
        return dense(x.shape[-1])(hidden)  # a statement of its own, to be the one named Dense_1


class EncoderBlock(nn.Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`.

    Attributes:
      num_heads: H, a divisor of D.
      make_mlp: makes the module behind the second norm.
      dtype: the type of the computation.
      attention: how attention is computed, a name in ATTENTIONS.
    """

    num_heads: int
    make_mlp: Callable[[], nn.Module]
    dtype: jax.typing.DTypeLike = jnp.float32
    attention: str = "xla"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, S, D] to [B, S, D], both in `dtype`."""
        attention = nn.MultiHeadDotProductAttention(
            num_heads=self.num_heads,
            dtype=self.dtype,
            kernel_init=nn.initializers.xavier_uniform(),
            attention_fn=ATTENTIONS[self.attention],
        )
        x = by_example(x + attention(_layer_norm(x, "LayerNorm_0")))
        return by_example(x + self.make_mlp()(_layer_norm(x, "LayerNorm_1")).astype(self.dtype))


class Encoder(nn.Module):
    """The blocks, and a norm behind them; fields as in `VisionTransformer`."""

    depth: int
    num_heads: int
    make_mlp: MakeMlp
    dtype: jax.typing.DTypeLike = jnp.float32
    attention: str = "xla"
    scan: bool = False
    remat: bool | str = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, S, D] in `dtype` to [B, S, D] in float32 at least."""
        # Within a scan XLA cannot merge the recomputation with the first computation anyway.
        block = EncoderBlock
        if self.remat not in (False, "none"):
            block = nn.remat(block, prevent_cse=not self.scan, policy=REMATS[self.remat])

        def make_block(number: int, name: str) -> nn.Module:
            make_mlp = functools.partial(self.make_mlp, number)
            return block(self.num_heads, make_mlp, self.dtype, self.attention, name=name)

        if self.scan:
            blocks = nn.scan(
                lambda block, x, _: (block(x), None),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.depth,
            )
            x, _ = blocks(make_block(0, SCANNED), x, None)
        else:
            for number in range(self.depth):
                x = make_block(number, f"{SCANNED}_{number}")(x)
        return _layer_norm(x, "encoder_norm")


class VisionTransformer(nn.Module):
    """Images to logits; `make` fills in the fields of a size by name.

    Layer norms, the softmax of the attention and the logits are computed in float32 at least, whatever `dtype`.

    Attributes:
      num_classes: the number of logits.
      patch_size: the side of a square patch in pixels.
      width: D, a multiple of `num_heads`.
      depth: the number of blocks.
      mlp_dim: the width of the hidden layer of MLPs.
      num_heads: H.
      pool: the input of the head: "tok", the class token, or "gap", the mean over tokens.
      rep_size: the width of a dense layer with a tanh in front of the head; None: there is none.
      head_init: initialises the kernel of the head.
      head_bias: the initial value of its bias.
      make_mlp: `make_mlp(block)` makes the MLP of a block, numbered from 0: a module from [B, S, D] in float32 to
        [B, S, D]. It is called inside the block, so a module without a name is named after its class (`MlpBlock_0`).
        The module may `sow` metrics and losses, which `apply(..., mutable=[...])` returns, and take random numbers from
        `apply(..., rngs={...})`. None: each is `MlpBlock(mlp_dim, dtype, gelu)`.
      dtype: the type of matrix products and of activations between blocks, for example bfloat16.
      gelu: the form of the GELU in the MLPs, unless `make_mlp` makes them: "tanh", Flax's, or "exact", PyTorch's.
      attention: "xla", or "cudnn": the fused kernels of NVIDIA's GPUs, for bfloat16 and float16 alone.
      scan: whether the blocks are one loop, compiled once, rather than unrolled.
      remat: what the backward pass computes again of a block, rather than keeping it: nothing (False or "none"), all
        of it (True or "all"), or all but the products with weights ("cheap").
    """

    num_classes: int
    patch_size: int
    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    pool: str = "tok"
    rep_size: int | None = None
    head_init: nn.initializers.Initializer = nn.initializers.zeros
    head_bias: float = 0.0
    make_mlp: MakeMlp | None = None
    dtype: jax.typing.DTypeLike = jnp.float32
    gelu: str = "tanh"
    attention: str = "xla"
    scan: bool = False
    remat: bool | str = False

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Images [B, height, width, 3] to logits [B, num_classes], in float32 at least.

        Raises:
          ValueError: the sides of the images are not multiples of `patch_size`, `pool` is not in POOLS, or both `scan`
            and `make_mlp` are set.
        """
        self._check(images.shape)
        patches = (self.patch_size, self.patch_size)
        x = nn.Conv(self.width, patches, patches, padding="VALID", dtype=self.dtype, name="embedding")(images)
        x = x.reshape(x.shape[0], -1, self.width)  # [B, N, D]
        pos_embedding = self.param("pos_embedding", nn.initializers.normal(1 / np.sqrt(self.width)), (1, *x.shape[1:]))
        x = x + pos_embedding.astype(self.dtype)
        if self.pool == "tok":
            cls = self.param("cls", nn.initializers.zeros, (1, 1, self.width))
            cls = jnp.broadcast_to(cls.astype(self.dtype), (x.shape[0], 1, self.width))
            x = jnp.concatenate([cls, x], axis=1)  # [B, S, D]

        make_mlp = self.make_mlp or (lambda block: MlpBlock(self.mlp_dim, self.dtype, self.gelu))
        encoder = Encoder(
            self.depth,
            self.num_heads,
            make_mlp,
            dtype=self.dtype,
            attention=self.attention,
            scan=self.scan,
            remat=self.remat,
            name="Transformer",
        )
        x = encoder(x)
        x = x[:, 0] if self.pool == "tok" else x.mean(axis=1)  # [B, D]
        if self.rep_size is not None:
            x = nn.tanh(nn.Dense(self.rep_size, dtype=x.dtype, name="pre_logits")(x))
        return nn.Dense(
            self.num_classes,
            dtype=x.dtype,
            kernel_init=self.head_init,
            bias_init=nn.initializers.constant(self.head_bias),
            name="head",
        )(x)

    def _check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 4 or any(side % self.patch_size for side in shape[1:3]):
            raise ValueError(
                "images must have the shape [B, height, width, 3] with sides that are multiples of "
                f"the patch size {self.patch_size}, got {shape}"
            )
        if self.pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(POOLS)}, got {self.pool!r}")
        if self.scan and self.make_mlp is not None:
            raise ValueError("scan needs blocks that are alike: it cannot be used with make_mlp")


def _layer_norm(x: jax.Array, name: str) -> jax.Array:
    """Applies a layer norm in float32 at least, as its variance is a difference of nearly equal numbers."""
    return nn.LayerNorm(epsilon=1e-6, name=name)(_at_least_float32(x))


def _attention(query: jax.Array, key: jax.Array, value: jax.Array, **unused: Any) -> jax.Array:
    """Attention of [B, S, H, D / H]; unlike Flax's it computes the softmax in float32 at least."""
    del unused  # no mask, no dropout
    scores = jnp.einsum("bqhd,bkhd->bhqk", query / np.sqrt(query.shape[-1]).item(), key)
    weights = jax.nn.softmax(_at_least_float32(scores)).astype(value.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def _fused_attention(query: jax.Array, key: jax.Array, value: jax.Array, **unused: Any) -> jax.Array:
    """The same by cuDNN, which keeps no weights [B, H, S, S]; its softmax is in float32."""
    del unused
    batch, length = query.shape[:2]
    # It wants an even number of tokens: one more, which none attends to.
    query, key, value = (jnp.pad(x, ((0, 0), (0, length % 2), (0, 0), (0, 0))) for x in (query, key, value))
    lengths = jnp.full(batch, length, jnp.int32)
    attended = jax.nn.dot_product_attention(
        query, key, value, query_seq_lengths=lengths, key_value_seq_lengths=lengths, implementation="cudnn"
    )
    return attended[:, :length]


ATTENTIONS = {"xla": _attention, "cudnn": _fused_attention}


def _at_least_float32(x: jax.Array) -> jax.Array:
    return x.astype(np.promote_types(x.dtype, np.float32))
