"""Marks for the exercise of notebook 00."""

from vit_helpers.checks import marks

EXAMPLES = [(8, 2), (8, 4), (224, 16), (224, 32), (96, 8), (14, 14)]
SLIPS = {  # what a wrong answer equals, and the idea that slipped
    "the class token is missing: T = N + 1": lambda H, P: (H // P) ** 2,
    "that is one row of patches; the image is cut in both directions": lambda H, P: H // P,
    "that is one row of patches and the class token; the image is cut in both directions": lambda H, P: H // P + 1,
    "that counts pixels, not patches: divide by the patch side": lambda H, P: H * H,
    "that counts the pixels of one patch": lambda H, P: P * P,
    "in Python a square is written **; ^ means something else, and + comes before it": lambda H, P: (H // P) ^ 2 + 1,
    "in Python a square is written **; ^ means something else": lambda H, P: ((H // P) ^ 2) + 1,
    "a patch covers P x P pixels: divide by P twice": lambda H, P: H * H // P,
    "a patch covers P x P pixels: divide by P twice, then add 1": lambda H, P: H * H // P + 1,
}


def check_num_tokens(answer):
    """Mark a function (image_size, patch_size) -> T, for square images with a class token.  Prints one line."""
    if not callable(answer):
        return marks.mark(
            "x", "num_tokens", f"got {marks.short(answer)}; hand over the function itself, without brackets behind its name"
        )
    wrong = []
    for H, P in EXAMPLES:
        try:
            got = answer(H, P)
        except NotImplementedError:
            return marks.mark(" ", "num_tokens", "not written yet")
        except Exception as error:
            return marks.mark("x", "num_tokens", f"raises {type(error).__name__}: {marks.first_line(error)}")
        if got is None:
            return marks.mark("x", "num_tokens", "gives nothing back: does it end with return?")
        if not is_number(got):
            return marks.mark(
                "x", "num_tokens", f"gives {got!r} for {H} pixels and patches of {P}; it should give a whole number"
            )
        if got != (H // P) ** 2 + 1:
            wrong.append((H, P, got))
    if not wrong:
        return marks.mark("v", "num_tokens", "right for every size, the 197 tokens of ViT-B/16 among them")
    H, P, got = wrong[0]
    reason = "count the patches along one side first"
    if len({got for _, _, got in wrong}) == 1 < len(wrong):
        reason = "the same for every size; it should depend on both arguments"
    reason = next((why for why, rule in SLIPS.items() if all(rule(h, p) == g for h, p, g in wrong)), reason)
    return marks.mark(
        "x", "num_tokens", f"gives {got} for {H} pixels and patches of {P}, wanted {(H // P) ** 2 + 1}: {reason}"
    )


def is_number(value):
    try:
        return not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False
