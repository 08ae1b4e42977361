"""How much a page may hold: the limits of core pages and further pages, and what is over them.

They are counted as a reader meets the page, cell by cell. Captions and blank lines do not count.
"""

import ast
import re
from statistics import median

from tools.execute import is_setup
from tools.page_length import count_lines, count_words, sources
from tools.slides import only_draws

WORDS = dict.fromkeys(("07", "09", "11", "12", "13"), 3400) | {"00": 2500}
WORDS_OF_OTHERS, WORDS_OF_FURTHER = 3000, 5000
LONGEST_CELL, MEDIAN_CELL = 12, 6  # lines
PROPS = 0.1  # of all lines of code
WORDS_TO_SECOND, LINES_TO_SECOND = 250, 15  # up to the second picture

# lines that draw, format or build tables; roughly, since docstrings and set_seed are among them
PROP = re.compile(
    r"\b(?:plt|ax|axes|fig|figsize|style|title|legend|colorbar|imshow|subplots)\b"
    r"|\b(?:columns|index|set_\w+)\b"
    r"|^\s*f?[\"']|\bpd\.|\.round\(|\.format\("
)
PICTURE_IN_TEXT = re.compile(r"!\[[^]]*\]\((?!\S*badge)")


def core_faults(book, number):
    """What a core page with this number has too much of, a line each"""
    yield from word_faults(book, WORDS.get(number, WORDS_OF_OTHERS))
    yield from cell_faults(book)
    yield from prop_faults(book)
    yield from picture_faults(book)


def further_faults(book):
    """What a further page has too much of"""
    yield from word_faults(book, WORDS_OF_FURTHER)


def word_faults(book, limit):
    words = sum(map(count_words, sources(book.cells, "markdown")))
    if words > limit:
        yield f"{words} words, at most {limit}"


def code_cells(book):
    """The code cells, but for the setup cell and the one cell of imports after it"""
    cells = [cell for cell in book.cells if cell.cell_type == "code" and not is_setup(cell)]
    imports = next((cell for cell in cells if only_imports(cell.source)), None)
    return [cell for cell in cells if cell is not imports]


def only_imports(code):
    statements = ast.parse(code).body
    return all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in statements)


def cell_faults(book):
    lengths = [count_lines(cell.source) for cell in code_cells(book)]
    for cell, length in zip(code_cells(book), lengths, strict=True):
        if length > LONGEST_CELL:
            first = cell.source.splitlines()[0]
            yield f"a cell of {length} lines, at most {LONGEST_CELL}: {first}"
    if lengths and median(lengths) > MEDIAN_CELL:
        yield f"cells of {median(lengths):g} lines (median), at most {MEDIAN_CELL}"


def prop_faults(book):
    lines = [line for code in sources(book.cells, "code") for line in code.splitlines()]
    lines = [line for line in lines if line.strip()]
    props = [line for line in lines if PROP.search(line)]
    if len(props) > PROPS * len(lines):
        yield (
            f"{len(props)} of {len(lines)} lines draw, format or build tables, at most {PROPS:.0%}"
        )


def count_pictures(cell):
    """Pictures in a cell's text or among its outputs"""
    if cell.cell_type == "markdown":
        return len(PICTURE_IN_TEXT.findall(cell.source))
    data = [output.get("data", {}) for output in cell.outputs]
    return sum(any(kind.startswith("image/") for kind in kinds) for kinds in data)


def picture_faults(book):
    """The first picture before any code but the setup cell; the second soon after

    The cell with the second picture counts too, with all of its words or lines.
    """
    words = lines = pictures = 0
    for cell in book.cells:
        if cell.cell_type == "markdown":
            words += count_words(cell.source)
        else:
            lines += count_lines(cell.source)
            if not pictures and not is_setup(cell) and not draws_alone(cell):
                first = cell.source.splitlines()[0]
                yield f"code before the first picture: {first}"
                return
        pictures += count_pictures(cell)
        if pictures >= 2:
            break
    else:
        yield f"{pictures} pictures, at least 2"
    if words > WORDS_TO_SECOND:
        yield f"{words} words before the second picture, at most {WORDS_TO_SECOND}"
    if lines > LINES_TO_SECOND:
        yield f"{lines} lines before the second picture, at most {LINES_TO_SECOND}"


def draws_alone(cell):
    """Whether a cell is one call that loads what it shows, and draws it"""
    return only_draws(cell.source) and count_pictures(cell) > 0
