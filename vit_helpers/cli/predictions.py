"""Predictions of a model for image files and for data sets, in batches: folders may be large."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from vit_helpers._files import as_text, expand_user, shown, to_cell
from vit_helpers.cli.channels import warn_of_channels, with_channels
from vit_helpers.cli.fitting import evaluation_batches
from vit_helpers.cli.mistakes import Answers, Mistakes, predict_with_mistakes
from vit_helpers.cli.scores import confusion
from vit_helpers.cli.seen import leave_out_seen, notes_of, warn_of_data_set
from vit_helpers.data.folders import find_parts
from vit_helpers.data.images import (
    GrayRange,
    choose_white,
    is_dark,
    measure_grays,
    open_picture,
    warn_of_half,
)
from vit_helpers.data.listing import find_files, list_classes
from vit_helpers.data.reading import is_said, map_files
from vit_helpers.pretrained.calibration import Familiarity
from vit_helpers.pretrained.descriptions import are_unknown
from vit_helpers.pretrained.files import Pretrained
from vit_helpers.training import FlipTTA
from vit_helpers.training.presets import RunSettings, load_data

BATCH = 32


def find_pictures(paths: Iterable[Path]) -> list[Path]:
    """List the files among these paths, and the image files in the folders, each of them once."""
    files: dict[Path, None] = {}
    for path in paths:
        files |= dict.fromkeys(find_files(path) if path.is_dir() else [path])
    return list(files)


def white_of(pretrained: Pretrained, files: Sequence[Path], given: float | None) -> float | None:
    """Return what white is in gray images of more than 8 bits: as given, or as in training.

    Where that is unknown it is found from the images, all together; warns if they are so dark that
    theirs may be another.
    returns: None if there are none
    raises : ValueError if it cannot be known
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        results = list(map_files(measure_grays, files, "looking"))
    ranges = [result for result in results if isinstance(result, GrayRange)]
    is_said(given, given if ranges else None)
    white = given or pretrained.preprocess.white
    if white is None:
        if not ranges:
            return None
        white = choose_white(ranges)
        warn_of_half(ranges, white)
        return white
    highest = max((grays.high for grays in ranges), default=white)
    if given is None and is_dark(highest, white):
        warnings.warn(
            f"no gray value of these images is above {highest:g}, but white was {white:g} in "
            "training: if it is another here, give it with --white N",
            stacklevel=2,
        )
    return white


@torch.no_grad()
def predict_files(
    pretrained: Pretrained,
    files: Sequence[Path],
    model: nn.Module | None = None,
    familiarity: Familiarity | None = None,
    white: float | None = None,
) -> tuple[Tensor, dict[Path, bool], dict[Path, str]]:
    """Predict class probabilities of image files, by the model or another one around it.

    white  : their value of white, see `white_of`
    returns: (n, K); the n files, each with whether it is unlike all that the model has learned
             from, as far as `familiarity` knows; and why other files could not be read
    """
    vit, preprocess, names = pretrained
    rows, readable, broken = [torch.empty(0, len(names))], dict[Path, bool](), dict[Path, str]()
    for start in range(0, len(files), BATCH):
        images = {}
        for file in files[start : start + BATCH]:
            try:
                images[file] = preprocess(open_picture(file, white))
            except (OSError, ValueError) as error:
                broken[file] = str(error)
        if not images:
            continue
        batch = torch.stack(list(images.values()))
        rows.append((model or vit)(batch).softmax(dim=1))
        readable |= dict.fromkeys(images, False)
        if familiarity:
            distance = familiarity.distance(vit.pool(vit.forward_features(batch)))
            readable |= zip(images, (distance > familiarity.limit).tolist(), strict=True)
    return torch.cat(rows), readable, broken


def prediction_table(
    files: Iterable[Path], probabilities: Tensor, class_names: Sequence[str]
) -> pd.DataFrame:
    """Make a table with a row for each file.

    returns: columns picture, class and probability, and one "p(CLASS)" for each class. Texts that
             a spreadsheet would compute have a ' before them, see `to_cell`
    """
    best = probabilities.max(dim=1)
    first = pd.DataFrame(
        {
            "picture": [to_cell(as_text(file)) for file in files],
            "class": [to_cell(class_names[i]) for i in best.indices.tolist()],
            "probability": best.values.tolist(),
        }
    )
    columns = [f"p({name})" for name in class_names]
    return first.join(pd.DataFrame(probabilities.numpy(), columns=columns))


def is_prediction_table(content: bytes) -> bool:
    """Return whether a file is one that `prediction_table` became."""
    return content.startswith(b"picture,class,probability,")


class Tested(NamedTuple):
    """The test of a model on a folder of images, or on the test split of a data set.

    answers    : in the order of the images; their labels are classes of the model
    pictures   : the file of each image, or "test 0", "test 1", ... where they are no files
    mistakes   : the worst, with images from 0 to 1
    description: which images were used
    broken     : why other files could not be read
    """

    answers: Answers
    pictures: list[str]
    mistakes: Mistakes
    description: str
    broken: dict[Path, str]

    def counts(self, num_classes: int) -> Tensor:
        """Return the confusion matrix: (K, K)"""
        return confusion(self.answers.predictions, self.answers.labels, num_classes)

    def worst_pictures(self) -> list[str]:
        """Name the images of the worst mistakes, without their folders."""
        return [Path(self.pictures[row]).name for row in self.answers.worst().tolist()]

    def to_table(self, class_names: Sequence[str]) -> pd.DataFrame:
        """Make a table with a row for each image.

        returns: columns picture, true class, predicted class and its probability; for texts, see
                 `to_cell`
        """
        labels, predictions, probabilities = (column.tolist() for column in self.answers)
        return pd.DataFrame(
            {
                "picture": [to_cell(picture) for picture in self.pictures],
                "true class": [to_cell(class_names[label]) for label in labels],
                "predicted class": [to_cell(class_names[label]) for label in predictions],
                "probability": probabilities,
            }
        )


def is_test_table(content: bytes) -> bool:
    """Return whether a file is one that `Tested.to_table` became."""
    return content.startswith(b"picture,true class,predicted class,probability")


def run_test(name: str, pretrained: Pretrained, data: str, white: float | None = None) -> Tested:
    """Test a model on a folder of images or a test split, with the augmentation of its run.

    Of a folder that has a test split, only that is used; and of no folder an image that the run was
    trained or validated on.
    name   : of the weights, as for `load_pretrained`
    white  : of the images, if it is given
    raises : ValueError for classes that the model does not know, naming them, and if no image is
             left
    """
    notes = notes_of(name)
    model = FlipTTA(pretrained.model) if notes.get("tta") == "yes" else pretrained.model
    kind, _, path = data.partition(":")
    folder = expand_user(path) if kind == "folder" else Path()
    if kind != "folder" or not folder.is_dir():
        answers, mistakes = run_on_data_set(name, pretrained, model, data)
        warn_of_data_set(data, notes, name)
        pictures = [f"test {number}" for number in range(len(answers.labels))]
        return Tested(answers, pictures, mistakes, f"images of the test split of {data}", {})
    parts = find_parts(folder, "test")
    tested = parts["test" if "test" in parts else "train"]
    labels = label_files(name, pretrained.class_names, tested)
    files = leave_out_seen(list(labels), notes, name)
    white = white_of(pretrained, files, white)
    probabilities, readable, broken = predict_files(pretrained, files, model, white=white)
    truth = torch.tensor([labels[file] for file in readable], dtype=torch.long)
    answers = Answers.from_probabilities(probabilities, truth)
    mistakes = read_mistakes(pretrained, list(readable), answers, white)
    description = "images of the test split of" if "test" in parts else "images of"
    pictures = [as_text(file) for file in readable]
    return Tested(answers, pictures, mistakes, f"{description} {data}", broken)


def read_mistakes(
    pretrained: Pretrained, files: Sequence[Path], answers: Answers, white: float | None
) -> Mistakes:
    """Read the images of the worst mistakes once more, since a whole folder may be large.

    files: those of the answers;  white: see `white_of`
    """
    preprocess, rows = pretrained.preprocess, answers.worst()
    images = torch.zeros(len(rows), preprocess.in_chans, *preprocess.crop)
    for number, row in enumerate(rows.tolist()):
        images[number] = preprocess.frame(open_picture(files[row], white))
    return Mistakes(images, answers.take(rows))


def label_files(name: str, class_names: Sequence[str], folder: Path) -> dict[Path, int]:
    """List the image files in a folder of classes, each with the number of its class.

    raises: ValueError for a class that the model of this name does not know
    """
    classes = list_classes(folder)
    check_classes(name, classes, class_names)
    return {file: class_names.index(own) for own, files in classes.items() for file in files}


def run_on_data_set(
    name: str, pretrained: Pretrained, model: nn.Module, data: str
) -> tuple[Answers, Mistakes]:
    """Test a model on the test split of a data set.

    returns: the answers in the order of the images, and the worst mistakes
    raises : ValueError if it does not know the classes, or reads images of another shape
    """
    known, is_mirrored = pretrained.class_names, isinstance(model, FlipTTA)
    loaded = load_data(RunSettings(data=data), pretrained.preprocess.crop)
    check_classes(name, loaded.class_names, known)
    if loaded.in_chans != pretrained.preprocess.in_chans:
        warn_of_channels(name, pretrained.preprocess.in_chans, loaded.in_chans)
        pretrained = with_channels(pretrained, loaded.in_chans)
        model = FlipTTA(pretrained.model) if is_mirrored else pretrained.model
    preprocess = pretrained.preprocess
    wanted, shape = (preprocess.in_chans, *preprocess.crop), (loaded.in_chans, *loaded.image_size)
    if wanted != shape:
        raise ValueError(
            f"the model reads images of {wanted} (channels, height, width), got {shape}"
        )
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (loaded.mean, loaded.std))
    number_of = torch.tensor([known.index(class_name) for class_name in loaded.class_names])
    batches = (
        (preprocess.normalize(images * std + mean), number_of[labels])
        for images, labels in evaluation_batches(loaded, "test")
    )
    logits, labels, mistakes = predict_with_mistakes(model, batches)
    answers = Answers.from_probabilities(logits.double().softmax(dim=1), labels)
    return answers, mistakes.unnormalize(preprocess.mean, preprocess.std)


def check_classes(name: str, classes: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if there are classes that the model of this name does not know.

    And if it has several of the same name, as of a crane that flies and one that lifts.
    """
    classes = set(classes)
    if twice := sorted(own for own in classes if known.count(own) > 1):
        raise ValueError(
            f"{name} has several classes called {', '.join(map(shown, twice))}, and it cannot be "
            "known which is meant: leave out the folder, or give its classes different names"
        )
    if unknown := classes - set(known):
        if are_unknown(known):
            raise ValueError(
                f"{name} does not say what its {len(known):,} classes are: "
                f"fine-tune it on your classes, or name their folders {known[0]} and so on"
            )
        raise ValueError(
            f"{name} does not know the classes {', '.join(map(shown, sorted(unknown)))}; "
            f"it knows {', '.join(map(shown, known[:20]))}"
        )
