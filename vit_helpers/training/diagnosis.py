"""Why did a model not learn?  The usual symptoms, found in the history of a run."""

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vit_helpers.training.measurements import UNKNOWN, Epoch, Score
from vit_helpers.training.recipe import Recipe

CONSTANT = 0.98  # fraction of the validation images that get one and the same prediction
FEW = 30  # validation images, which may get the same class by chance
RARE = 0.9  # share of a class beside which others are so rare that a healthy training may miss them
STUCK = 0.97  # of the way from the least loss to that of a constant prediction
ROOM = (
    0.1  # nats between these two, without which the loss cannot show whether anything was learned
)
CLOSE = 0.01  # how far, in proportion, a loss that sits at a logarithm may be from it
GAP = 0.1  # between training and validation accuracy
RISEN = 1.1  # times its lowest: a validation loss so high shows that a gap is not chance
POOR = 0.9  # training accuracy
TEXTS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
# {symptom: {"title": text, "seen": text, "advice": [(needless if, text), ...]}}
ADVICE = tomllib.loads(TEXTS)
L2 = ("adam_l2", "adam_coupled")  # optimizers with the decay as a penalty inside Adam


class Diagnosis(NamedTuple):
    """symptom: a name;  advice: what was seen, and what to try"""

    symptom: str
    advice: str

    def __str__(self) -> str:
        title = ADVICE.get(self.symptom, {}).get("title", self.symptom)
        return f"{title}: {self.advice}"


def diagnose(
    history: Sequence[Epoch | Mapping[str, Any]], known: Collection[str] = ()
) -> Diagnosis:
    """Name the symptom of a run from its history, the most serious first.

    history: what `fit` returns, or rows of it (see `Epoch.to_row`)
    known  : names in diagnosis.toml of what need not be asked, see `known_of`
    returns: `Diagnosis`; its symptom is "not finite", "softmax twice", "constant prediction",
             "stuck at ln K", "stuck at ln(COUNT)" for another count that the run knows,
             "no better than guessing", "overfitting", "unclear" (overfitting or chance),
             "underfitting", "not validated" or "healthy"
    raises : ValueError when the history is empty

    Differences that chance alone could produce in a validation split of this size are not reported.
    """
    if not history:
        raise ValueError("an empty history cannot be diagnosed")
    epochs = [row if isinstance(row, Epoch) else Epoch.from_row(row) for row in history]
    last = next((epoch for epoch in epochs if not_finite(epoch)), epochs[-1])
    best = min(epochs, key=lambda epoch: score_of(epoch).loss)
    K = max(last.evidence.num_classes, 1)
    count, value = stuck_count(epochs) or ("", 0)
    guess, ln_k = guess_loss(last), math.log(K)
    words = {
        "last": last,
        "train": last.train,
        "validation": score_of(last),
        "best": best,
        "lowest": score_of(best).loss,
        "K": K,
        "ln_k": ln_k,
        "least": math.log(math.e + K - 1) - 1,  # loss when the right output is 1 and all others 0
        "count": count,
        "value": value,
        "ln": math.log(max(value, 1)),
        "shares": f", or {guess:.2f} by their shares" if 0 < guess < ln_k - 0.01 else "",
        "chance": describe_chance(score_of(last)),
    }
    symptom = find_symptom(last, count, score_of(best).loss)
    answered = {*known}
    if has_learned(last):
        answered.add("labels")
    if score_of(last).loss >= RISEN * score_of(best).loss:
        answered.add("risen")
    if not score_of(last).largest_class > RARE:
        answered.add("even")
    texts = [ADVICE[symptom]["seen"]]
    texts += [text for name, text in ADVICE[symptom]["advice"] if name not in answered]
    advice = " ".join(text if text.endswith("?") else f"{text}." for text in texts)
    return Diagnosis(symptom.format(count=count), advice.removesuffix(".").format(**words))


def known_of(recipe: Recipe) -> set[str]:
    """Name what a recipe tells, so that `diagnose` need not ask for it."""
    known = set() if recipe.optimizer in L2 else {"l2"}
    return known | ({"warm-up"} if recipe.warmup else set())


def describe_chance(score: Score) -> str:
    """Say how much of an accuracy may be chance; nothing if the number of images is unknown."""
    if not score.images:
        return ""
    error = margin(score.accuracy, score.images)
    return f" ({score.images:,} images show the accuracy to within {error:.2f})"


def has_learned(epoch: Epoch) -> bool:
    """Say whether accuracies show that labels belong to images: then a data set is merely hard."""
    score, train = score_of(epoch), epoch.train
    if not score.images:
        return False
    share = score.largest_class
    learned = train.images > 0 and train.accuracy > share + margin(share, train.images, errors=3)
    likely = score.accuracy > share + margin(share, score.images, errors=1)
    return not is_chance(epoch) or (learned and likely)


def find_symptom(epoch: Epoch, count: str, lowest: float) -> str:
    """Find the most serious symptom, a key of diagnosis.toml.

    count: see `stuck_count`;  lowest: the lowest validation loss

    Loss and accuracy cannot show a softmax before the loss for few classes: with 2 of them the loss
    stays above 0.31, where label smoothing alone can keep that of a healthy training. The outputs
    always show it.
    """
    train, score = epoch.train, score_of(epoch)
    chance, largest = is_chance(epoch), score.largest_class
    if not_finite(epoch):
        return "not finite"
    if epoch.evidence.probabilities:
        return "softmax twice"
    if count not in ("", "classes"):
        return "stuck at ln({count})"
    unlearned = not score.images or (chance and (largest <= RARE or is_stuck(epoch)))
    # what fits its training images is not constant
    few = 0 < score.images < FEW and train.accuracy >= POOR
    if unlearned and score.majority_share >= CONSTANT > score.accuracy and not few:
        return "constant prediction"
    if is_stuck(epoch) or count == "classes":
        return "stuck at ln K"
    if score.images and chance and largest <= RARE and not train.accuracy >= POOR:
        return "no better than guessing"
    ahead, risen = train.accuracy - score.accuracy, score.loss >= RISEN * lowest
    error = margin(score.accuracy, score.images, errors=1)
    if ahead >= GAP + (0 if risen else 2 * error):
        return "overfitting"
    poor = train.accuracy < POOR and not score.accuracy + 3 * error >= POOR
    if ahead >= GAP + error or (poor and (ahead >= GAP or risen)):
        return "unclear"
    if poor:
        return "underfitting"
    return "healthy" if epoch.validation else "not validated"


def score_of(epoch: Epoch) -> Score:
    """Return the validation score of an epoch, all NaN if there is none: no comparison holds."""
    return epoch.validation or UNKNOWN


def not_finite(epoch: Epoch) -> bool:
    """Say whether a loss of training or validation is not finite."""
    losses = [epoch.train.loss, *([epoch.validation.loss] if epoch.validation else [])]
    return not all(map(math.isfinite, losses))


def guess_loss(epoch: Epoch) -> float:
    """Return the lowest loss of a constant prediction.

    It is ln K if the class frequencies are unknown, 0 if the loss is not cross-entropy.
    """
    evidence = epoch.evidence
    return evidence.guess_loss if evidence.batch_size else math.log(max(evidence.num_classes, 1))


def margin(share: float, images: int, errors: float = 2) -> float:
    """Return standard errors of a fraction of so many images; 0 if their number is unknown."""
    return errors * math.sqrt(share * (1 - share) / images) if images else 0.0


def is_chance(epoch: Epoch) -> bool:
    """Say whether always predicting the most frequent class is as accurate in validation.

    That holds within the error of so many images.
    """
    score, K = score_of(epoch), max(epoch.evidence.num_classes, 1)
    share = score.largest_class if score.images else 1 / K
    above = score.accuracy > share + margin(share, score.images)
    return not (above or math.isnan(score.accuracy) or score.accuracy == 1 > share)


def is_stuck(epoch: Epoch) -> bool:
    """Say whether the loss is that of a constant prediction, although lower is possible.

    It is not stuck where validation is accurate, unless its loss is that of a constant prediction,
    too: then classes are told apart by tiny margins, as when a trained model hardly moves.
    """
    train, evidence = epoch.train, epoch.evidence
    guess, least = guess_loss(epoch), evidence.least_loss
    score = score_of(epoch)
    learned = score.accuracy >= POOR and not is_chance(epoch) and not score.loss >= STUCK * guess
    # the loss of the first step is measured before it
    untrained = epoch.number == 1 and 0 < train.images <= evidence.batch_size
    has_room = guess - least >= ROOM
    return has_room and train.loss >= least + STUCK * (guess - least) and not (untrained or learned)


def stuck_count(epochs: Sequence[Epoch]) -> tuple[str, int] | None:
    """Find the count at whose logarithm a loss has been in the last epochs, with its name.

    Two epochs are enough, and the last three are looked at. That is a loss other than
    cross-entropy; None if there is no such count.
    """
    last = epochs[-1]
    images, size, score = last.train.images, last.evidence.batch_size, score_of(last)
    learned = score.accuracy > 0 and not is_chance(last)
    if len(epochs) < 2 or not (images and size) or last.evidence.guess_loss or learned:
        return None
    full = images // size
    rest = images - full * size  # of the images, in a last batch that is smaller
    counts = {
        "classes": last.evidence.num_classes,
        "batch size": size,
        "tokens": last.evidence.tokens,
        "patches": last.evidence.tokens - 1,
        "training images": images,
        "validation images": score.images,
    }
    for name, count in counts.items():
        log = math.log(max(count, 1))
        if name == "batch size":
            log = (full * size * log + rest * math.log(max(rest, 1))) / images
        recent = [epoch.train.loss for epoch in epochs[-3:]]
        if log > 0 and all(abs(loss - log) <= CLOSE * log for loss in recent):
            return name, count
    return None
