"""Predictions of a model for image files and for data sets, in batches, so that large folders fit into memory."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vit_helpers.data.folders import find_files, find_parts, subfolders
from vit_helpers.data.images import as_text, expand_user, open_picture
from vit_helpers.pretrained.files import Pretrained, read_notes
from vit_helpers.pretrained.runs import evaluation_batches, full_name
from vit_helpers.pretrained.sources import find_file
from vit_helpers.training import FlipTTA, predict
from vit_helpers.training.fingerprint import data_fingerprint
from vit_helpers.training.presets import RunSettings, load_data
from vit_helpers.training.testing import confusion

BATCH = 32


def find_pictures(paths: Iterable[Path]) -> list[Path]:
    """The files among these paths, and the image files in the folders among them, at any depth, each of them once.

    raises: ValueError for a folder without image files, or that cannot be read
    """
    from torchvision.datasets.folder import IMG_EXTENSIONS

    found: dict[Path, None] = {}
    for path in paths:
        found |= dict.fromkeys(inside := find_files(path) if path.is_dir() else [path])
        if not inside:
            raise ValueError(f"no images in {path}; image files end with {', '.join(IMG_EXTENSIONS)}")
    return list(found)


@torch.no_grad()
def predict_files(
    pretrained: Pretrained, files: Sequence[Path], model: nn.Module | None = None
) -> tuple[Tensor, list[Path], dict[Path, str]]:
    """Class probabilities of image files, by the model itself or by another one around it.

    returns: (n, K), the n files that could be read, and why each of the others could not
    """
    rows, readable, broken = [], [], {}
    for start in range(0, len(files), BATCH):
        images = []
        for file in files[start : start + BATCH]:
            try:
                images.append(pretrained.preprocess(open_picture(file)))
                readable.append(file)
            except (OSError, ValueError) as error:
                broken[file] = str(error)
        if images:
            rows.append((model or pretrained.model)(torch.stack(images)).softmax(dim=1))
    return torch.cat(rows) if rows else torch.empty(0, len(pretrained.class_names)), readable, broken


def prediction_table(files: Sequence[Path], probabilities: Tensor, class_names: Sequence[str]) -> pd.DataFrame:
    """A row for each file: picture, class and probability, then the probability of each class in a column "p(CLASS)"."""
    best = probabilities.max(dim=1)
    first = {"picture": [as_text(file) for file in files], "class": [class_names[i] for i in best.indices.tolist()]}
    table = pd.DataFrame(first | {"probability": best.values.tolist()})
    return table.join(pd.DataFrame(probabilities.numpy(), columns=[f"p({name})" for name in class_names]))


def count_confusions(name: str, pretrained: Pretrained, data: str) -> tuple[Tensor, str, dict[Path, str]]:
    """Test a model on a data set: all images of a folder of classes, and the test split of anything else.

    Of the data that a run was trained on, only the test split is used, which is drawn again where it has no folder.
    Test-time augmentation is that of the run.
    name   : of the weights, as for `load_pretrained`
    returns: the confusion matrix (K, K) for the model's classes, which images were used, and what could not be read
    raises : ValueError for classes that the model does not know, naming them, and for an exact split that has changed
    warns  : of files that are no images, in a split that is drawn again, and if that has changed since the run
    """
    file, known = find_file(name), pretrained.class_names
    notes = read_notes(file) if file.suffix == ".safetensors" else {}
    model = FlipTTA(pretrained.model) if notes.get("tta") == "yes" else pretrained.model
    kind, _, path = data.partition(":")
    folder, seen = expand_user(path), full_name(data) == notes.get("data")
    parts = find_parts(folder, "test") if (here := kind == "folder" and folder.is_dir()) else {}
    tested = parts.get("test", folder)
    if parts or (here and not seen and subfolders(folder) and find_parts(folder) == {"train": folder}):
        what, classes = "the test split" if parts else "all", {as_text(one.name): one for one in subfolders(tested)}
        check_classes(name, classes, known)
        label = {file: known.index(one) for one, inside in classes.items() for file in find_pictures([inside])}
        probabilities, readable, broken = predict_files(pretrained, list(label), model)
        labels = torch.tensor([label[file] for file in readable], dtype=torch.long)
        return confusion(probabilities.argmax(1), labels, len(known)), f"images, {what} of {data}", broken
    split, reading = notes.get("split", "hash") if seen else "hash", {"skip_broken": True} if kind == "folder" else {}
    own: Any = load_data(RunSettings(data=data, split=split), pretrained.preprocess.crop, **reading)
    check_classes(name, own.class_names, known)
    if seen:
        check_test_split(notes, own, data)
    batches = ((renormalize(x, own, pretrained), y) for x, y in evaluation_batches(own, "test"))
    logits, labels = predict(model, batches)
    place = torch.tensor([known.index(one) for one in own.class_names])
    return confusion(logits.argmax(1), place[labels], len(known)), f"images, the test split of {data}", {}


def check_classes(name: str, classes: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if there are classes that the model of this name does not know."""
    if unknown := set(classes) - set(known):
        raise ValueError(f"{name} does not know the classes {', '.join(sorted(unknown))}; it knows {', '.join(known[:20])}")


def check_test_split(notes: Mapping[str, str], own: Any, data: str) -> None:
    """Raise ValueError if the test split of a run, by its notes, may contain training images now; warn if it has changed"""
    if notes.get("test") in (None, data_fingerprint(own)["pixels or labels of test"]):
        return
    changed = f"the test split of {data} is not the one that the run had"
    if notes.get("split") == "exact":  # drawn again among all images
        raise ValueError(f"{changed}, and may contain training images: test on new images in a folder of their own")
    warnings.warn(changed, stacklevel=2)


def renormalize(images: Tensor, data: Any, pretrained: Pretrained) -> Tensor:
    """Images that were normalized for a data set, as a model needs them; ValueError if they have another size or depth."""
    wanted = (pretrained.preprocess.in_chans, *pretrained.preprocess.crop)
    if images.shape[1:] != wanted:
        raise ValueError(f"the model reads images of {wanted} (channels, height, width), got {tuple(images.shape[1:])}")
    mean, std = (images.new_tensor(x).view(-1, 1, 1) for x in (data.mean, data.std))
    return pretrained.preprocess.normalize(images * std + mean)
