"""Writes a small data set as TFDS prepares one, in its `array_record` format, without TensorFlow."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

VERSION = "3.0.1"  # of MNIST: TFDS looks for the version that its builder names


def write(
    data_dir: Path,
    name: str,
    examples: dict[str, tuple[np.ndarray, np.ndarray]],
    *,
    coarse: bool = False,
    several: bool = False,
    varied: bool = False,
) -> None:
    """Writes splits of images [N, H, W] in uint8 and labels [N] under `data_dir / name / VERSION`.

    Args:
      data_dir: of TFDS.
      name: of the data set.
      examples: by split.
      coarse: whether there is a feature `coarse_label` too, half the label.
      several: whether there is a feature `labels` too, a sequence: all classes below the label, hence at times none.
      varied: whether the features say that images have three channels and any size, as ImageNet's do; then
        `images` may be a list of images [H, W] (grey) or [H, W, 3].
    """
    from array_record.python.array_record_module import ArrayRecordWriter

    directory = data_dir / name / VERSION
    directory.mkdir(parents=True)
    splits = []
    for split, (images, labels) in examples.items():
        writer = ArrayRecordWriter(str(directory / f"{name}-{split}.array_record-00000-of-00001"), "group_size:1")
        for image, label in zip(images, labels, strict=True):
            writer.write(_serialized(image, int(label), coarse, several))
        writer.close()
        splits.append(
            {
                "name": split,
                "numBytes": "1",
                "shardLengths": [str(len(labels))],
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        )
    shape = [-1, -1, 3] if varied else [*next(iter(examples.values()))[0].shape[1:], 1]
    info = {"fileFormat": "array_record", "name": name, "splits": splits, "version": VERSION}
    (directory / "dataset_info.json").write_text(json.dumps(info))
    (directory / "features.json").write_text(json.dumps(_features(shape, coarse, several)))


def _serialized(image: np.ndarray, label: int, coarse: bool, several: bool) -> bytes:
    from tensorflow_datasets.proto import tf_example_pb2

    png = io.BytesIO()
    Image.fromarray(image).save(png, format="png")
    example = tf_example_pb2.Example()
    example.features.feature["image"].bytes_list.value.append(png.getvalue())
    example.features.feature["label"].int64_list.value.append(label)
    if coarse:
        example.features.feature["coarse_label"].int64_list.value.append(label // 2)
    if several:
        example.features.feature["labels"].int64_list.value.extend(range(label))
    return example.SerializeToString()


def _features(shape: list[int], coarse: bool, several: bool) -> dict:
    package = "tensorflow_datasets.core.features"
    dimensions = {"dimensions": [str(side) for side in shape]}
    image = {"shape": dimensions, "dtype": "uint8", "encodingFormat": "png"}

    def label(num_classes: int) -> dict:
        return {
            "pythonClassName": f"{package}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(num_classes)},
        }

    features = {
        "image": {"pythonClassName": f"{package}.image_feature.Image", "image": image},
        "label": label(10),
    }
    if coarse:
        features["coarse_label"] = label(5)
    if several:
        sequence = {"feature": label(10), "length": "-1"}
        features["labels"] = {"pythonClassName": f"{package}.sequence_feature.Sequence", "sequence": sequence}
    return {"pythonClassName": f"{package}.features_dict.FeaturesDict", "featuresDict": {"features": features}}
