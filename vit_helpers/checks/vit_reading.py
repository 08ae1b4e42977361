"""The exercise of notebook 05 that finds the paper's four equations in timm's file."""

from typing import Any, NamedTuple

from vit_helpers.checks.engine.choices import blank, check_choices
from vit_helpers.checks.engine.report import report, short

VERSION = "1.0.31"  # of timm, Apache License 2.0; the file is timm/models/vision_transformer.py
LATER = "later"
EQUATIONS = {  # what each answer would mean
    "1": "makes the tokens of the first block from patches, class token and positions",
    "2": "adds to each token what attention returns",
    "3": "adds to each token what the MLP returns",
    "4": "normalizes after the last block, and keeps the class token",
    LATER: "is in none of the four equations",
}


class Line(NamedTuple):
    """One line of timm's file: where it is, what it does, and in which equation that is."""

    method: str
    code: str
    does: str
    equation: str


ATTENTION = (
    "x = x + self.drop_path1(self.ls1(self.attn("
    "self.norm1(x), attn_mask=attn_mask, is_causal=is_causal)))"
)
LINES = {
    "A": Line("Block.forward", ATTENTION, "adds what attn returns for the normalized x", "2"),
    "B": Line(
        "Block.forward",
        "x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))",
        "adds what mlp returns for the normalized x",
        "3",
    ),
    "C": Line(
        "VisionTransformer._pos_embed",
        "to_cat.append(self.cls_token.expand(x.shape[0], -1, -1))",
        "repeats the class token for each image of the batch",
        "1",
    ),
    "D": Line(
        "VisionTransformer._pos_embed",
        "to_cat.append(self.reg_token.expand(x.shape[0], -1, -1))",
        "adds registers, which were proposed in 2023",
        LATER,
    ),
    "E": Line(
        "VisionTransformer._pos_embed",
        "x = torch.cat(to_cat + [x], dim=1)",
        "puts the class token in front of the projected patches",
        "1",
    ),
    "F": Line(
        "VisionTransformer._pos_embed", "x = x + pos_embed", "adds the position embeddings", "1"
    ),
    "G": Line(
        "VisionTransformer.forward_features",
        "x = self.patch_embed(x)",
        "cuts the image into patches and projects them",
        "1",
    ),
    "H": Line(
        "VisionTransformer.forward_features",
        "x = self.norm_pre(x)",
        "normalizes before the first block, as CLIP does, while the paper's norms are in the "
        "blocks and after the last one",
        LATER,
    ),
    "I": Line(
        "VisionTransformer.forward_features",
        "x = self.norm(x)",
        "normalizes once more, after all blocks",
        "4",
    ),
    "J": Line(
        "VisionTransformer.forward_head",
        "x = self.pool(x)",
        "picks the class token, the superscript 0 of the paper",
        "4",
    ),
}


def quote_timm() -> str:
    """The lines of timm's file with their letters, under the names of their methods."""
    text = [f"timm {VERSION}, timm/models/vision_transformer.py"]
    for letter, line in LINES.items():
        if f"in {line.method}:" not in text:
            text.append(f"in {line.method}:")
        text.append(f"  {letter}  {line.code}")
    return "\n".join(text)


def check_equations(answer: Any) -> bool:
    """Check which equation each line belongs to, {"A": 1, 2, 3, 4 or "later", ...}.

    It prints a line for each.

    returns: True when all are right
    """
    example = '{"A": 1, "B": ...}'
    return check_choices("equations", answer, LINES, check_line, "line", example)


def check_line(letter: str, entry: Any) -> bool:
    """Print one line for one line of code; True when it is right."""
    line = LINES[letter]
    if blank(entry):
        return report(" ", "equations", f"{letter}: no equation is named yet")
    named = str(entry).strip().lower()
    if named not in EQUATIONS:
        message = f'{letter}: {short(entry)} is none of 1, 2, 3, 4 and "{LATER}"'
        return report("x", "equations", message)
    if named == line.equation:
        return report("v", "equations", f"{letter}: {line.does}")
    name = f'"{LATER}"' if named == LATER else f"equation {named}"
    message = f"{letter}: {name} {EQUATIONS[named]}, while this line {line.does}"
    return report("x", "equations", message)
