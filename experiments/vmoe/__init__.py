"""V-MoE: a mixture of experts with a router that is sparse and differentiable, against the hard one.

The layer takes the place of an MLP in any Flax network whose tokens come as [images, tokens, width]:

    from experiments.vmoe.layer import MoeLayer
    from experiments.vmoe.routers import RelaxedExpertChoice

    router = RelaxedExpertChoice(k=28, capacity=28, lam=0.1)
    layer = MoeLayer(num_experts=32, mlp_dim=2048, router=router, group_images=8)
"""
