"""The exercise of notebook 00."""

from vit_helpers.checks.engine.exercise import Exercise, Wording, fixed
from vit_helpers.checks.engine.report import Function

NUM_TOKENS_MISTAKES: dict[str, Function] = {
    "the class token is missing: T = N + 1": lambda H, P: (H // P) ** 2,
    "that is one row of patches, but the image is cut in both directions": lambda H, P: H // P,
    "that is one row of patches and the class token, but the image is cut in both directions":
        lambda H, P: H // P + 1,
    "that counts pixels, not patches, so divide by the patch size": lambda H, P: H * H,
    "that counts the pixels of one patch": lambda H, P: P * P,
    "in Python a square is written with **, while ^ means something else, "
    "and + is computed before it":
        lambda H, P: (H // P) ^ 2 + 1,
    "in Python a square is written with **, while ^ means something else":
        lambda H, P: ((H // P) ^ 2) + 1,
    "a patch covers P x P pixels, so divide by P twice": lambda H, P: H * H // P,
    "a patch covers P x P pixels, so divide by P twice, and then add 1":
        lambda H, P: H * H // P + 1,
    "add 1 after the square is taken, not before": lambda H, P: (H // P + 1) ** 2,
    "** is computed before //, so H // P needs parentheses": lambda H, P: H // P**2 + 1,
    "** is computed before //, so H // P needs parentheses; and the class token is missing":
        lambda H, P: H // P**2,
    "that is twice the number along one side, but a square is needed":
        lambda H, P: 2 * (H // P) + 1,
    "that is twice the number along one side, but a square is needed, and then add 1":
        lambda H, P: 2 * (H // P),
}  # fmt: skip
NUM_TOKENS = Exercise(
    name="num_tokens",
    reference=lambda H, P: (H // P) ** 2 + 1,
    wording=Wording(
        when="for {} pixels and patches of {}".format,
        kind="a whole number",
        depends="both arguments",
        unknown="T = N + 1, where N is the number of all patches",
    ),
    ideas={
        "right for every size, the 197 tokens of ViT-B/16 among them": [
            fixed(*sizes) for sizes in [(8, 2), (8, 4), (224, 16), (224, 32), (96, 8), (14, 14)]
        ],
    },
    mistakes=NUM_TOKENS_MISTAKES,
)
check_num_tokens = NUM_TOKENS.check
