"""Masks of the pointwise convolutions of a trained network with frozen weights: by magnitude, by Wanda, or learned."""
