"""Ways to prune that the literature calls strong, each true to its paper but for what its function says.

The well-kept library of them for JAX, jaxpruner, is not used and not compared with: it is on no package index, and as
published in 2024 it calls `jax.tree_map`, which JAX has no more. Its RigL drops and grows as that of `rigl.py`.
"""
