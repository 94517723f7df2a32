"""The layer that replaces an MLP: a router, a dispatcher and experts, on any mesh of devices.

Images and their groups are divided along all axes of the mesh; each group is routed and dispatched on its device
(`exchange.py`). The experts are divided along the axis `expert`; only slots travel to them and back.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from experiments.core.training.mesh import EXPERTS
from experiments.vision.vit import MlpBlock
from experiments.vmoe.dispatch import DISPATCHERS, SOFT
from experiments.vmoe.exchange import by_group, gather_over_fsdp, to_experts, to_groups
from experiments.vmoe.measures import assigned, measure
from experiments.vmoe.routers import Dense, Logits, Mixtures, Router, RouterOrDense, unbounded

ROUTING = "routing"  # the collection of metrics, each [G]
ASSIGNED = "assigned"  # the collection of the experts of each token, bool [G, S, E]
AUXILIARY = "auxiliary"  # the collection of the losses of routers, [G]
NOISE = "router"  # the name of the random numbers


class MoeLayer(nn.Module):
    """A router and `num_experts` MLPs, each with its own parameters.

    The parameters are `router` [D, E] and, below `experts`, those of `vit.MlpBlock` with a leading axis E. The layer
    sows the metrics of `measures.py` in the collection `routing`, the loss of the router in `auxiliary`, and the
    experts of each token in `assigned`. With `routers.Dense` it is a single MLP, or nothing.

    Attributes:
      num_experts: E.
      mlp_dim: the width of the hidden layer of an expert.
      router: a router of `routers/`.
      group_images: the number of images whose tokens make a group, a divisor of the number of images.
      dispatcher: a name in `dispatch.DISPATCHERS`; Soft MoE has its own.
      noise: the standard deviation of the noise in the logits, in units of 1 / E; above 0, `apply` needs
        `rngs={"router": key}`.
      dtype: the type in which experts compute; routers compute in float32.
    """

    num_experts: int
    mlp_dim: int
    router: RouterOrDense
    group_images: int
    dispatcher: str = "gather"
    noise: float = 0.0
    dtype: jax.typing.DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Tokens [B, S, D] to outputs [B, S, D] in `dtype`.

        Raises:
          ValueError: B is not a multiple of `group_images`.
        """
        if isinstance(self.router, Dense):
            mlp_dim = self.router.mlp_dim(self.num_experts, self.mlp_dim)
            return MlpBlock(mlp_dim, self.dtype)(x) if mlp_dim else jnp.zeros_like(x)
        images, per_image, width = x.shape
        if images % self.group_images:
            raise ValueError(f"the images must be a multiple of group_images={self.group_images}, got {images}")
        groups = x.reshape(-1, self.group_images * per_image, width)
        routed = by_group(self.router)(self.router_logits(groups.astype(jnp.float32), self.router))
        dispatcher = SOFT if isinstance(routed, Mixtures) else DISPATCHERS[self.dispatcher]
        slots = by_group(dispatcher.take)(groups.astype(self.dtype), routed)
        outputs = to_groups(self._experts(to_experts(slots)))
        y = by_group(dispatcher.put)(outputs, routed)
        if not isinstance(routed, Mixtures):
            # The dense dispatcher has no buffers and drops nothing.
            counted = by_group(unbounded)(routed) if self.dispatcher == "dense" else routed
            for name, value in by_group(measure)(counted).items():
                self._keep(ROUTING, name, value)
            self._keep(AUXILIARY, "loss", routed.auxiliary)
            self._keep(ASSIGNED, "of_tokens", by_group(assigned)(counted))
        return y.reshape(images, per_image, width)

    def _keep(self, collection: str, name: str, value: Array) -> None:
        """Sows the last value of a name, without those before it."""
        self.sow(collection, name, value, reduce_fn=lambda previous, new: new, init_fn=lambda: None)

    def router_logits(self, groups: Array, router: Router) -> Logits:
        """Tokens [G, S, D] to logits [G, S, E]."""
        shape = (groups.shape[-1], router.num_logits(self.num_experts))
        kernel = self.param("router", nn.initializers.lecun_normal(), shape)
        if router.cosine:
            scale = self.param("scale", nn.initializers.ones, ())
            groups, kernel = scale * _normalised(groups, axis=-1), _normalised(kernel, axis=0)
        # Full precision: accelerators would round the factors, and a mask with slope 1 / lam would move.
        clean = jnp.matmul(groups, kernel, precision=jax.lax.Precision.HIGHEST)
        if self.noise == 0.0:
            return Logits(clean, clean)
        deviation = self.noise / self.num_experts
        noise = jax.random.normal(self.make_rng(NOISE), clean.shape, clean.dtype)
        return Logits(clean + np.float32(deviation) * noise, clean, deviation)

    def _experts(self, slots: Array) -> Array:
        """Slots [G, E, C, D] to the outputs of the experts [G, E, C, D]."""
        groups, num_experts, capacity, width = slots.shape
        of_experts = nn.vmap(MlpBlock, variable_axes={"params": 0}, split_rngs={"params": True})
        of_experts = nn.map_variables(of_experts, "params", trans_in_fn=gather_over_fsdp, init=self.is_initializing())
        experts = of_experts(self.mlp_dim, self.dtype, name=EXPERTS)
        outputs = experts(slots.swapaxes(0, 1).reshape(num_experts, groups * capacity, width))
        return outputs.reshape(num_experts, groups, capacity, width).swapaxes(0, 1)


def _normalised(x: Array, axis: int) -> Array:
    return x * jax.lax.rsqrt(jnp.square(x).sum(axis=axis, keepdims=True) + 1e-6)
