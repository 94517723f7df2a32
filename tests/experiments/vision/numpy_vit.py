"""The vision transformer in NumPy, head by head from the equations, on flat parameters by name."""

import numpy as np


def layer_norm(x, params, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-6) * params[f"{name}/scale"] + params[f"{name}/bias"]


def attention(x, params, name):
    """x [S, D] of one image."""
    num_heads = params[f"{name}/query/kernel"].shape[1]
    out = params[f"{name}/out/bias"]
    for head in range(num_heads):
        query, key, value = (
            x @ params[f"{name}/{part}/kernel"][:, head] + params[f"{name}/{part}/bias"][head]
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.T / np.sqrt(query.shape[-1]))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        out = out + weights @ value @ params[f"{name}/out/kernel"][head]
    return out


def mlp(x, params, name):
    x = x @ params[f"{name}/Dense_0/kernel"] + params[f"{name}/Dense_0/bias"]
    x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x @ params[f"{name}/Dense_1/kernel"] + params[f"{name}/Dense_1/bias"]


def patches(image, size):
    """[height, width, 3] to one flat patch after the other, row by row of the grid."""
    return np.stack(
        [
            image[top : top + size, left : left + size].ravel()
            for top in range(0, image.shape[0], size)
            for left in range(0, image.shape[1], size)
        ]
    )


def forward(params, images):
    """Logits [B, num_classes] of images [B, height, width, 3]; all in float64."""
    params = {name: np.asarray(array, np.float64) for name, array in params.items()}
    depth = sum(name.endswith("LayerNorm_0/scale") for name in params)
    return np.stack([_forward(params, depth, image) for image in np.asarray(images, np.float64)])


def _forward(params, depth, image):
    kernel = params["embedding/kernel"]
    x = patches(image, kernel.shape[0]) @ kernel.reshape(-1, kernel.shape[-1]) + params["embedding/bias"]
    x = x + params["pos_embedding"][0]
    if "cls" in params:
        x = np.concatenate([params["cls"][0], x])
    for number in range(depth):
        name = f"Transformer/encoderblock_{number}"
        x = x + attention(
            layer_norm(x, params, f"{name}/LayerNorm_0"), params, f"{name}/MultiHeadDotProductAttention_0"
        )
        x = x + mlp(layer_norm(x, params, f"{name}/LayerNorm_1"), params, f"{name}/MlpBlock_0")
    x = layer_norm(x, params, "Transformer/encoder_norm")
    x = x[0] if "cls" in params else x.mean(axis=0)
    if "pre_logits/kernel" in params:
        x = np.tanh(x @ params["pre_logits/kernel"] + params["pre_logits/bias"])
    return x @ params["head/kernel"] + params["head/bias"]


def stacked(params: dict[str, np.ndarray], depth: int) -> dict[str, np.ndarray]:
    """The same parameters with scanned blocks."""
    first = [name for name in params if "/encoderblock_0/" in name]
    blocks = {
        name.replace("_0/", "/", 1): np.stack([params[name.replace("_0/", f"_{i}/", 1)] for i in range(depth)])
        for name in first
    }
    return without(params, "/encoderblock_") | blocks


def without(arrays: dict[str, np.ndarray], *parts: str) -> dict[str, np.ndarray]:
    """The arrays whose names have none of the parts."""
    return {name: array for name, array in arrays.items() if not any(part in name for part in parts)}
