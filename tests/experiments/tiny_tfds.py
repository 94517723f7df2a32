"""Writes a small data set as TFDS prepares one, in its `array_record` format, without TensorFlow."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

VERSION = "3.0.1"  # of MNIST: TFDS looks for the version that its builder names


def write(data_dir: Path, name: str, examples: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Writes splits of images [N, H, W] in uint8 and labels [N] under `data_dir / name / VERSION`."""
    from array_record.python.array_record_module import ArrayRecordWriter

    directory = data_dir / name / VERSION
    directory.mkdir(parents=True)
    splits = []
    for split, (images, labels) in examples.items():
        writer = ArrayRecordWriter(str(directory / f"{name}-{split}.array_record-00000-of-00001"), "group_size:1")
        for image, label in zip(images, labels, strict=True):
            writer.write(_serialized(image, int(label)))
        writer.close()
        splits.append(
            {
                "name": split,
                "numBytes": "1",
                "shardLengths": [str(len(labels))],
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        )
    height, width = examples["train"][0].shape[1:]
    info = {"fileFormat": "array_record", "name": name, "splits": splits, "version": VERSION}
    (directory / "dataset_info.json").write_text(json.dumps(info))
    (directory / "features.json").write_text(json.dumps(_features(height, width)))


def _serialized(image: np.ndarray, label: int) -> bytes:
    from tensorflow_datasets.proto import tf_example_pb2

    png = io.BytesIO()
    Image.fromarray(image).save(png, format="png")
    example = tf_example_pb2.Example()
    example.features.feature["image"].bytes_list.value.append(png.getvalue())
    example.features.feature["label"].int64_list.value.append(label)
    return example.SerializeToString()


def _features(height: int, width: int) -> dict:
    package = "tensorflow_datasets.core.features"
    image = {"shape": {"dimensions": [str(height), str(width), "1"]}, "dtype": "uint8", "encodingFormat": "png"}
    return {
        "pythonClassName": f"{package}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "image": {"pythonClassName": f"{package}.image_feature.Image", "image": image},
                "label": {
                    "pythonClassName": f"{package}.class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": "10"},
                },
            }
        },
    }
