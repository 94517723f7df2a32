"""V-MoE: a mixture of experts with a router that is sparse and differentiable, against the hard one."""
