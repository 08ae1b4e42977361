"""Notebooks 00 to 05 open with this map: the model, a block, a head, one dot product."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle
from matplotlib.typing import ColorType

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, tint, write
from vit_helpers.plots.figure import Picture

WIDTH, HEIGHT = 900, 460  # in hundredths of an inch, the unit of every length below
SIZE = 11  # points
QUIET = "#666666"  # text outside the parts in color: 4.7 to 1 on MUTED, 5.7 to 1 on white
WEDGE = "#F3F3F3"
GRAY_CELL = "#D4D4D4"  # a little darker than MUTED, because cells have white edges
BOX = style.SERIES[0]
TOP_ROW = frozenset({"image", "patches", "embedding", "tokens", "blocks", "output", "model title"})
HEAD = frozenset({"attention", "head", "dot product"})
BLOCK = frozenset({"block", "attention"})
PARTS = {  # what is in color, for each value of `here`
    "model": TOP_ROW | BLOCK | HEAD,
    "patches": frozenset({"image", "patches"}),
    "embeddings": frozenset({"embedding", "tokens"}),
    "attention": HEAD,
    "encoder": BLOCK | {"blocks"},
    "vit": TOP_ROW,
}
TAGS = {  # the middle of "you are here"
    "model": (362, 445),
    "patches": (99, 421),
    "embeddings": (239, 421),
    "attention": (577, 221),
    "encoder": (242, 221),
    "vit": (362, 445),
}
IN_COLOR = "; this notebook's part is in color:"
SUBJECTS = {  # how the description goes on, for each value of `here`
    None: ": the model, one encoder block, one attention head, and one dot product",
    "model": ": from image to classes, one encoder block, one attention head, one dot product",
    "patches": f"{IN_COLOR} an image (C, H, W) is cut into a sequence of patches (N, C·P·P)",
    "embeddings": f"{IN_COLOR} patch embedding, class token, and the positions that are added",
    "attention": f"{IN_COLOR} attention in the encoder block, one head, and one dot product of "
    "a query and a key",
    "encoder": f"{IN_COLOR} the encoder block with its norms, attention, MLP and residual stream",
    "vit": f"{IN_COLOR} the whole model from image through patches, tokens and blocks to classes",
}
TITLES = (  # part, left end, height, title, notebooks that treat it
    ("model title", 12, 445, "the model", "notebooks 00, 01, 02, 05"),
    ("block", 20, 218, "one encoder block", "notebook 04"),
    ("head", 348, 218, "one attention head", "notebook 03"),
    ("dot product", 686, 218, "one dot product", "notebook 03"),
)
INSETS = {  # left, bottom, width, height; then the edge that it enlarges, where its wedge starts
    "block": ((10, 8, 292, 226), ((450, 256), (478, 256))),
    "head": ((338, 8, 302, 226), ((288, 182), (288, 140))),
    "dot product": ((676, 78, 214, 156), ((536, 150), (536, 141))),
}
NAMES = (  # part, middle, height, text: names and shapes
    ("image", 50, 398, "image"),
    ("image", 50, 276, "(C, H, W)"),
    ("patches", 148, 398, "patches"),
    ("patches", 148, 276, "(N, C·P·P)"),
    ("tokens", 323, 412, "class\ntoken"),
    ("tokens", 398, 412, "position\nembeddings"),
    ("tokens", 361, 344, "+"),
    ("tokens", 361, 276, "(T, D)"),
    ("blocks", 511, 412, "L encoder\nblocks"),
    ("blocks", 524, 325, "…"),
    ("output", 604, 276, "(T, D)"),
    ("output", 732, 370, "class\ntoken"),
    ("output", 732, 324, "(D)"),
    ("output", 860, 405, "classes"),
    ("output", 860, 276, "(K)"),
    ("head", 368, 142, "x"),
    ("head", 368, 74, "(T, D)"),
    ("head", 522.5, 170, "q kᵀ"),
    ("head", 562, 95, "÷ √d,\nsoftmax"),
    ("head", 538, 20, "weighted sum of v (T, d)"),
    ("letters", 783, 54, "N patches, T = N + 1 tokens"),
    ("letters", 783, 32, "d = D / number of heads"),
)
BOXES = (  # part, left, bottom, width, height, text
    ("embedding", 190, 294, 98, 80, "patch\nembedding"),
    *(("blocks", x, 256, 28, 138, name) for x, name in ((450, "1"), (484, "2"), (536, "L"))),
    ("output", 642, 294, 50, 100, "norm"),
    ("output", 772, 294, 50, 100, "head"),
    ("block", 72, 138, 94, 40, "LayerNorm"),
    ("block", 72, 60, 94, 40, "LayerNorm"),
    ("block", 188, 60, 94, 40, "MLP"),
)
ARROWS = (  # part, the points of a line that ends in an arrow
    ("patches", (94, 334), (135, 334)),
    ("embedding", (161, 334), (187, 334)),
    ("embedding", (291, 334), (301, 334)),
    ("blocks", (424, 344), (447, 344)),
    *(("output", (x, 344), (x + 14, 344)) for x in (567, 625, 696, 755, 824)),
    ("head", (390, 112), (415, 158)),
    ("head", (390, 108.5), (415, 108.5)),
    ("head", (390, 105), (415, 59)),
    ("head", (468, 163.5), (496, 144)),
    ("head", (468, 108.5), (496, 128)),
    ("head", (522.5, 111), (522.5, 79)),
    ("head", (468, 53.5), (496, 53.5)),
    ("head", (548, 53.5), (596, 53.5)),
)
PICTURE: tuple[
    tuple[tuple[float, Any], ...], ...
] = (  # four patches: (darkness, center and radius, or corners)
    (
        (0.2, "ground"),
        (0.0, (0.35, 0.45, 0.17)),
        (0.0, (0.56, 0.55, 0.2)),
        (0.0, (0.72, 0.43, 0.15)),
    ),
    ((0.2, "ground"), (0.6, (0.55, 0.5, 0.27))),
    (
        (0.2, "ground"),
        (0.55, ((0.15, 0), (0.15, 0.5), (0.85, 0.5), (0.85, 0))),
        (1.0, ((0, 0.42), (0.5, 0.95), (1, 0.42))),
    ),
    (
        (0.2, "ground"),
        (0.55, ((0.42, 0), (0.42, 0.4), (0.58, 0.4), (0.58, 0))),
        (0.9, (0.5, 0.6, 0.31)),
    ),
)
NOTEBOOKS = (
    (148, "notebook 01"),
    (340, "notebook 02"),
    (511, "notebooks 03, 04"),
    (732, "notebook 05"),
)
SCORES = (
    (2, 0, 1, 3, 1),
    (1, 4, 3, 2, 0),
    (0, 3, 4, 0, 1),
    (1, 0, 1, 4, 2),
    (0, 1, 0, 2, 4),
)  # [1][3]: sky and roof, 2
TOKENS = (style.CLASS_TOKEN, *[style.PATCH] * 4)
ROWS = (384, 364, 344, 324, 304)  # the middles of the rows of tokens


@dataclass(frozen=True)
class _Canvas:
    """Axes in hundredths of an inch, and the parts in color; artists carry their part's name."""

    ax: Axes
    lit: frozenset[str]

    def color(self, part: str, color: ColorType, muted: ColorType = style.MUTED) -> ColorType:
        """Return the color of an artist, or its gray where the part is not the subject."""
        return color if part in self.lit else muted

    def line(self, part: str) -> ColorType:
        """Return the color of lines and arrows."""
        return self.color(part, style.TEXT, style.LINE)

    def add(self, part: str, patch: Any) -> None:
        """Add a shape of this part."""
        patch.set_gid(part)
        self.ax.add_patch(patch)

    def text(self, part: str, x: float, y: float, text: str, **options: Any) -> None:
        """Write a text around its middle, unless told otherwise."""
        middle = "center" if "\n" in text else "center_baseline"
        color = self.color(part, style.TEXT, QUIET)
        defaults = {"va": middle, "fontsize": SIZE, "color": color, "linespacing": 1.1, "zorder": 4}
        write(self.ax, x, y, text, gid=part, **defaults | options)

    def path(self, part: str, *points: tuple[float, float], width: float = 1.3) -> None:
        """Draw a line through these points that ends in an arrow."""
        *_, last, end = points
        color = self.line(part)
        self.ax.plot(
            *zip(*points[:-1], strict=True), color=color, linewidth=width, zorder=2, gid=part
        )
        options: dict[str, Any] = {"mutation_scale": 9 + 2 * width, "linewidth": width, "zorder": 2}
        arrow(self.ax, last, end, color=color, gid=part, **options)

    def box(self, part: str, x: float, y: float, width: float, height: float, text: str) -> None:
        """Draw a rounded box with a text: a layer of the network."""
        shape = "round,pad=0,rounding_size=5"
        options = {
            "facecolor": self.color(part, tint(BOX, 0.1)),
            "edgecolor": self.color(part, BOX, style.LINE),
            "zorder": 3,
        }
        self.add(
            part, FancyBboxPatch((x, y), width, height, boxstyle=shape, linewidth=1.6, **options)
        )
        if text:
            self.text(part, x + width / 2, y + height / 2, text)

    def cells(
        self,
        part: str,
        x: float,
        y: float,
        size: tuple[float, float],
        colors: Sequence[Sequence[ColorType]],
    ) -> None:
        """Draw a table of cells from its upper left corner, a color for each cell."""
        for row, of_row in enumerate(colors):
            for column, color in enumerate(of_row):
                corner = (x + column * size[0], y - (row + 1) * size[1])
                options = {"facecolor": color, "edgecolor": "white", "linewidth": 0.7, "zorder": 3}
                self.add(part, Rectangle(corner, *size, **options))

    def tensor(
        self,
        part: str,
        x: float,
        y: float,
        size: tuple[float, float],
        columns: int,
        colors: Sequence[str],
    ) -> None:
        """Draw a table of cells, a color for each row, all gray where the part is muted."""
        self.cells(
            part, x, y, size, [[self.color(part, color, GRAY_CELL)] * columns for color in colors]
        )


def draw_overview(here: str | None = None) -> Picture:
    """Draw the model and, each enlarged from the one before, a block, a head and a dot product.

    here  : the parts in color, which get the label "you are here": "model" (everything),
            "patches", "embeddings", "attention", "encoder" or "vit"; None draws everything in
            color, without the label
    raises: ValueError if `here` is another name
    """
    if here is not None and here not in PARTS:
        raise ValueError(f"here is {here!r}; allowed are {', '.join(map(repr, PARTS))} and None")
    fig = style.blank_figure(WIDTH / 100, HEIGHT / 100)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    ax.set_axis_off()
    canvas = _Canvas(ax, PARTS[here or "model"])
    for draw in (
        draw_insets,
        draw_layers,
        draw_image_and_tokens,
        draw_block,
        draw_head,
        draw_dot_product,
    ):
        draw(canvas)
    if here is not None:
        ground = {"boxstyle": "round,pad=0.2", "facecolor": BOX, "edgecolor": BOX}
        canvas.text("tag", *TAGS[here], "you are here", color="white", bbox=ground)
    return Picture(fig, f"A map of the Vision Transformer at four depths{SUBJECTS[here]}.")


def draw_lane() -> Picture:
    """Draw the model alone, from the image to the classes, with the notebook of each part."""
    fig = style.blank_figure(WIDTH / 100, 2.15)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(225, 440))
    ax.set_axis_off()
    canvas = _Canvas(ax, TOP_ROW)
    draw_layers(canvas, TOP_ROW)
    draw_image_and_tokens(canvas)
    for x, text in NOTEBOOKS:
        canvas.text("notebooks", x, 240, text, weight="bold", color=style.TEXT)
    return Picture(
        fig,
        "The stages of a Vision Transformer from image to classes, each with its notebook.",
    )


def draw_insets(canvas: _Canvas) -> None:
    """Draw the frames of the insets, the wedges from what they enlarge, and all titles."""
    for part, ((x, y, width, height), source) in INSETS.items():
        end = (
            x + width if part == "block" else x
        )  # the wedge of the block comes from above, the others from the left
        corners = [*source, (end, y + height if part == "block" else y), (x, y + height)]
        options = {"edgecolor": style.LINE, "linewidth": 0.8, "zorder": 3.5}
        canvas.add("wedge", Polygon(corners, facecolor=WEDGE, **options))
        edge = {
            "edgecolor": canvas.color(part, BOX, style.LINE),
            "linewidth": 1.6 if part in canvas.lit else 0.8,
        }
        canvas.add(part, Rectangle((x, y), width, height, fill=False, zorder=1, **edge))
    for part, x, y, title, notebooks in TITLES:
        canvas.text(part, x, y, title, ha="left", weight="bold")
        corner = (x + 96, y) if part == "model title" else (x, y - 18)
        canvas.text(part, *corner, notebooks, ha="left")


def draw_layers(canvas: _Canvas, parts: frozenset[str] | None = None) -> None:
    """Draw what the tables above list, of these parts or of all: boxes, arrows, names, shapes."""
    for box in BOXES:
        if parts is None or box[0] in parts:
            canvas.box(*box)
    for part, *points in ARROWS:
        if parts is None or part in parts:
            canvas.path(part, *points)
    for name in NAMES:
        if parts is None or name[0] in parts:
            canvas.text(*name)


def draw_image_and_tokens(canvas: _Canvas) -> None:
    """Draw the tensors of the model, from the image through patches and tokens to classes."""
    for i in range(4):
        draw_patch(canvas, "image", i, 10 + 40 * (i % 2), 334 - 40 * (i // 2), 40)
        draw_patch(canvas, "patches", i, 139, ROWS[i + 1] - 9, 18)
    for part, x, rows, colors in (
        ("tokens", 302, ROWS, TOKENS),
        ("tokens", 380, ROWS, [style.POSITION] * 5),
        ("output", 584, ROWS, TOKENS),
        ("output", 712, ROWS[2:3], TOKENS[:1]),
    ):
        for y, color in zip(rows, colors, strict=True):
            canvas.tensor(part, x, y + 7.5, (8, 15), 5, [color])
    for y, length in zip(ROWS, (10, 40, 6, 16, 8), strict=True):
        options = {"facecolor": canvas.color("output", BOX, GRAY_CELL), "zorder": 3}
        canvas.add("output", Rectangle((842, y - 6.5), length, 13, **options))


def draw_patch(canvas: _Canvas, part: str, i: int, x: float, y: float, size: float) -> None:
    """Draw one of four patches, at this lower left corner: sky, sun, roof or tree."""
    base, frame = (
        canvas.color(part, style.PATCH, "#BBBBBB"),
        canvas.color(part, style.PATCH, style.LINE),
    )
    for darkness, form in PICTURE[i]:
        options = {"facecolor": tint(base, darkness), "zorder": 3}
        if form == "ground":
            canvas.add(part, Rectangle((x, y), size, size, **options))
        elif isinstance(form[0], tuple):
            canvas.add(part, Polygon([(x + size * a, y + size * b) for a, b in form], **options))
        else:
            canvas.add(
                part, Circle((x + size * form[0], y + size * form[1]), size * form[2], **options)
            )
    canvas.add(
        part, Rectangle((x, y), size, size, fill=False, edgecolor=frame, linewidth=1.4, zorder=3)
    )


def draw_block(canvas: _Canvas) -> None:
    """Draw the residual stream from top to bottom, and the two branches that are added to it."""
    canvas.path("block", (42, 186), (42, 40), (42, 14), width=4)
    for y in (158, 80):
        canvas.path("block", (42, y), (69, y))
        canvas.path("block", (166, y), (185, y))
        canvas.path("block", (235, y), (235, y - 39), (80, y - 39), (53, y - 39))
        plus = {
            "facecolor": "white",
            "edgecolor": canvas.line("block"),
            "linewidth": 1.5,
            "zorder": 3,
        }
        canvas.add("block", Circle((42, y - 39), 10, **plus))
        canvas.text("block", 42, y - 39, "+", fontsize=SIZE + 2, va="center")
    for shift, text in (
        (6, ""),
        (3, ""),
        (0, "multi-head\nattention"),
    ):  # several heads, one behind the other
        canvas.box("attention", 188 + shift, 138 + shift, 94, 40, text)
    canvas.text("block", 58, 20, "residual stream (T, D)", ha="left")


def draw_head(canvas: _Canvas) -> None:
    """Draw queries, keys and values of all tokens, scores, weights, and weighted sums."""
    canvas.tensor("head", 348, 131, (8, 9), 5, TOKENS)
    for y, letter, color in (
        (186, "q", style.QUERY),
        (131, "k", style.KEY),
        (76, "v", style.VALUE),
    ):
        canvas.text("head", 425, y - 22.5, letter)
        canvas.tensor("head", 434, y, (8, 9), 4, [color] * 5)
    weights = [
        [exp(score / 2) / sum(exp(other / 2) for other in row) for score in row] for row in SCORES
    ]
    base = canvas.color("head", style.SERIES[2], "#999999")  # the color of `style.VEIL`
    for y, table, most in ((159, SCORES, 4.0), (76, weights, 0.5)):
        shades = [[tint(base, 0.08 + 0.8 * value / most) for value in row] for row in table]
        canvas.cells("head", 500, y, (9, 9), shades)
    canvas.tensor("head", 600, 76, (8, 9), 4, [style.VALUE] * 5)
    for corner, width in (
        ((434, 168), 32),
        ((434, 95), 32),
        ((527, 141), 9),
    ):  # a row of q, a row of k, their score
        frame = {
            "fill": False,
            "edgecolor": canvas.color("head", style.TEXT, QUIET),
            "linewidth": 1.5,
            "zorder": 4,
        }
        canvas.add("head", Rectangle(corner, width, 9, **frame))


def draw_dot_product(canvas: _Canvas) -> None:
    """Draw a query, a key, products below their columns, and the sum, as in notebook 03."""
    query, key = (1, 1, 1, 1), (1, 1, 0, 0)
    for y, name, numbers, color in (
        (168, "query", query, style.QUERY),
        (138, "key", key, style.KEY),
    ):
        ground = canvas.color("dot product", color)
        ink = canvas.color("dot product", style.ink_on(ground), QUIET)
        canvas.text("dot product", 686, y, name, ha="left")
        canvas.cells("dot product", 738, y + 13, (28, 26), [[ground] * 4])
        for i, number in enumerate(numbers):
            canvas.text("dot product", 752 + 28 * i, y, str(number), color=ink)
    products = [a * b for a, b in zip(query, key, strict=True)]
    for i, product in enumerate(products):
        canvas.text("dot product", 752 + 28 * i, 103, str(product))
    for i in range(3):
        canvas.text("dot product", 766 + 28 * i, 103, "+")
    canvas.text("dot product", 869, 103, f"= {sum(products)}", weight="bold")
