"""A depthwise convolution with XLA's SAME padding, in NumPy, one output at a time."""

import numpy as np


def depthwise(x, kernel, stride):
    """[B, H, W, C] with [k, k, 1, C]."""
    size = kernel.shape[0]
    sides = [-(-side // stride) for side in x.shape[1:3]]
    result = np.zeros((len(x), *sides, x.shape[3]), x.dtype)
    needed = [max((side - 1) * stride + size - whole, 0) for side, whole in zip(sides, x.shape[1:3], strict=True)]
    padded = np.pad(x, ((0, 0), *((pad // 2, pad - pad // 2) for pad in needed), (0, 0)))
    for row in range(sides[0]):
        for column in range(sides[1]):
            seen = padded[:, row * stride : row * stride + size, column * stride : column * stride + size]
            result[:, row, column] = (seen * kernel[:, :, 0]).sum(axis=(1, 2))
    return result
