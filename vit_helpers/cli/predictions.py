"""Predictions of a model for image files and for data sets, in batches, so that large folders fit into memory."""

import warnings
from base64 import b64decode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vit_helpers._files import as_text, expand_user
from vit_helpers.cli.runs import evaluation_batches
from vit_helpers.cli.scores import confusion
from vit_helpers.data.folders import find_files, find_parts, subfolders
from vit_helpers.data.images import IMAGE_ENDINGS, open_picture
from vit_helpers.data.reading import SHORT, find_sha256, map_files
from vit_helpers.pretrained.calibration import Familiarity
from vit_helpers.pretrained.files import Pretrained, read_notes
from vit_helpers.pretrained.sources import find_file
from vit_helpers.training import FlipTTA, predict
from vit_helpers.training.presets import RunSettings, load_data

BATCH = 32


def find_pictures(paths: Iterable[Path]) -> list[Path]:
    """The files among these paths, and the image files in the folders among them, at any depth, each of them once."""
    found: dict[Path, None] = {}
    for path in paths:
        found |= dict.fromkeys(inside := find_files(path) if path.is_dir() else [path])
        if not inside:
            raise ValueError(
                f"no images in {path}; image files end with {', '.join(IMAGE_ENDINGS)}"
            )
    return list(found)


@torch.no_grad()
def predict_files(
    pretrained: Pretrained,
    files: Sequence[Path],
    model: nn.Module | None = None,
    familiarity: Familiarity | None = None,
) -> tuple[Tensor, dict[Path, bool], dict[Path, str]]:
    """Class probabilities of image files, by the model or another one around it, in batches.

    returns: (n, K); the n files, each with whether it is unlike all that the model has learned from, as far as
             `familiarity` knows; and why other files could not be read
    """
    vit, preprocess, names = pretrained
    rows, readable, broken = [torch.empty(0, len(names))], dict[Path, bool](), dict[Path, str]()
    for start in range(0, len(files), BATCH):
        images = {}
        for file in files[start : start + BATCH]:
            try:
                images[file] = preprocess(open_picture(file))
            except (OSError, ValueError) as error:
                broken[file] = str(error)
        if images:
            batch = torch.stack(list(images.values()))
            rows.append((model or vit)(batch).softmax(dim=1))
            readable |= dict.fromkeys(images, False)
            if familiarity:
                far = (
                    familiarity.distance(vit.pool(vit.forward_features(batch))) > familiarity.limit
                )
                readable |= zip(images, far.tolist(), strict=True)
    return torch.cat(rows), readable, broken


def prediction_table(
    files: Iterable[Path], probabilities: Tensor, class_names: Sequence[str]
) -> pd.DataFrame:
    """A row for each file: picture, class and probability, then the probability of each class in a column "p(CLASS)"."""
    best = probabilities.max(dim=1)
    first = {
        "picture": [as_text(file) for file in files],
        "class": [class_names[i] for i in best.indices.tolist()],
    }
    table = pd.DataFrame(first | {"probability": best.values.tolist()})
    return table.join(
        pd.DataFrame(probabilities.numpy(), columns=[f"p({name})" for name in class_names])
    )


def is_prediction_table(content: bytes) -> bool:
    """Whether a file is one that `prediction_table` became."""
    return content.startswith(b"picture,class,probability,")


def count_confusions(
    name: str, pretrained: Pretrained, data: str
) -> tuple[Tensor, str, dict[Path, str]]:
    """Test a model on a folder of images or on the test split of a data set, with the test-time augmentation of its run.

    Of a folder that has a test split, only that is used; and of no folder an image that the run was trained or validated on.
    name   : of the weights, as for `load_pretrained`
    returns: the confusion matrix (K, K) for the model's classes, which images were used, and what could not be read
    raises : ValueError for classes that the model does not know, naming them, and if no image is left
    """
    file, known = find_file(name), pretrained.class_names
    notes = read_notes(file) if file.suffix == ".safetensors" else {}
    model = FlipTTA(pretrained.model) if notes.get("tta") == "yes" else pretrained.model
    kind, _, path = data.partition(":")
    if kind == "folder" and (folder := expand_user(path)).is_dir():
        parts = find_parts(folder, "test")
        tested = parts.get("test") or parts["train"]
        classes, what = (
            {as_text(one.name): one for one in subfolders(tested)},
            "of the test split of" if "test" in parts else "of",
        )
        check_classes(name, classes, known)
        label = {
            file: known.index(one)
            for one, inside in classes.items()
            for file in find_pictures([inside])
        }
        files = leave_out(list(label), notes.get("seen"), name)
        probabilities, readable, broken = predict_files(pretrained, files, model)
        labels = torch.tensor([label[file] for file in readable], dtype=torch.long)
        return (
            confusion(probabilities.argmax(1), labels, len(known)),
            f"images {what} {data}",
            broken,
        )
    own: Any = load_data(RunSettings(data=data), pretrained.preprocess.crop)
    check_classes(name, own.class_names, known)
    wanted, found = (
        (pretrained.preprocess.in_chans, *pretrained.preprocess.crop),
        (own.in_chans, *own.image_size),
    )
    if wanted != found:
        raise ValueError(
            f"the model reads images of {wanted} (channels, height, width), got {found}"
        )
    mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (own.mean, own.std))
    batches = (
        (pretrained.preprocess.normalize(x * std + mean), y)
        for x, y in evaluation_batches(own, "test")
    )
    logits, labels = predict(model, batches)
    place = torch.tensor([known.index(one) for one in own.class_names])
    return (
        confusion(logits.argmax(1), place[labels], len(known)),
        f"images of the test split of {data}",
        {},
    )


def leave_out(files: list[Path], note: str | None, name: str) -> list[Path]:
    """The files whose content was not seen in training; ValueError if there are none.  note: of `save_run` about these"""
    if note is None:
        warnings.warn(
            f"it is unknown which images {name} was trained on: these may be among them",
            stacklevel=2,
        )
        return files
    seen = b64decode(note)
    known = {seen[start : start + SHORT] for start in range(0, len(seen), SHORT)}
    sums = map_files(find_sha256, files, "comparing")
    new = [
        file
        for file, one in zip(files, sums, strict=True)
        if isinstance(one, Exception) or one[:SHORT] not in known
    ]
    if not new:
        raise ValueError(
            f"{name} was trained or validated on all of these {len(files):,} images: test it on other images"
        )
    if left := len(files) - len(new):
        what = f"{left:,} of {len(files):,} images are left out"
        warnings.warn(f"{what}: {name} was trained or validated on them", stacklevel=2)
    return new


def check_classes(name: str, classes: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if there are classes that the model of this name does not know."""
    if unknown := set(classes) - set(known):
        raise ValueError(
            f"{name} does not know the classes {', '.join(sorted(unknown))}; it knows {', '.join(known[:20])}"
        )
