"""The calibration error against its definition."""

import numpy as np
import scipy.special

from experiments.cifar100_vit import calibration


def test_the_error_is_that_of_guo_et_al():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(scale=3, size=(500, 10)).astype(np.float32), rng.integers(10, size=500)
    logits[0] = 0
    logits[1, 3] = 100  # confidence 1 is in the last bin
    probabilities = scipy.special.softmax(logits.astype(np.float64), axis=1)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    wanted = 0.0
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            wanted += inside.mean() * abs(confidence[inside].mean() - hit[inside].mean())
    found = np.abs(np.asarray(calibration.gaps(logits, np.float32(100) * hit)).mean(axis=0)).sum()
    np.testing.assert_allclose(found, 100 * wanted, rtol=1e-4)
