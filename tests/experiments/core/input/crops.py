"""The crops that padding by four pixels and flips can give."""

import numpy as np


def crops_of(image):
    """Where each crop of an image [32, 32, 3] comes from, by its bytes: top, left, flipped."""
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    return {
        view[top : top + 32, left : left + 32].tobytes(): (top, left, flipped)
        for flipped, view in ((False, padded), (True, padded[:, ::-1]))
        for top in range(9)
        for left in range(9)
    }
