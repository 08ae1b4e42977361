"""Store what the ViT in plain Python computes for one digit, step by step, to compare ports with.

The weights are not random: the i-th of all, counted from 1, is 0.5 sin(i * i).
"""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from tools import main
from vit_helpers.microvit import microvit
from vit_helpers.microvit.microvit import Digit, Weights

HEADER = """\
# What microvit.py computes for the first training digit, if its weights are 0.5 sin(i * i).
# Each line has a name and numbers, which README.md explains.
"""


def add_arguments(parser: ArgumentParser) -> None:
    default = Path(microvit.__file__).with_name("reference.txt")
    parser.add_argument("--out", type=Path, default=default, help="(default: beside microvit.py)")


def run(args: Namespace) -> None:
    lines = [f"{name}: {' '.join(map(digits, row))}\n" for name, row in reference()]
    args.out.write_text(HEADER + "".join(lines), encoding="ascii")
    print(f"{len(lines)} lines: {args.out}")


def digits(number: float) -> str:
    """Nine digits; rounding errors, which another language would not repeat, are 0

    >>> digits(-1 / 300), digits(-3e-18), digits(2.0)
    ('-0.00333333333', '0', '2')
    """
    return f"{round(number, 14) + 0.0:.9g}"


def reference() -> Iterator[tuple[str, list[float]]]:
    """The names and numbers of all lines, in the order in which a port can compute them"""
    digit = microvit.read_digits()["train"][0]
    weights = fixed_weights()
    yield from inputs(digit, weights)
    yield from forward(digit, weights)
    yield from gradients(digit, weights)
    for steps, words in ((1, "1 step"), (3, "3 steps")):
        weights = fixed_weights()
        microvit.train(weights, [digit], steps)
        yield (
            f"logits after a training of {words}",
            microvit.numbers(microvit.vit(weights, digit[0])),
        )
        microvit.TAPE.clear()


def fixed_weights() -> Weights:
    """Weights that are the same in any language, in the order in which they are made"""
    weights = microvit.make_weights()
    values = (value for rows in weights.values() for row in rows for value in row)
    for i, value in enumerate(values, 1):
        value.data = 0.5 * math.sin(i * i)
    return weights


def inputs(digit: Digit, weights: Weights) -> Iterator[tuple[str, list[float]]]:
    """The digit, and of each matrix its rows, its columns, its first and its last number"""
    yield "pixels", digit[0]
    yield "label", [digit[1]]
    for name, rows in weights.items():
        size = [float(len(rows)), float(len(rows[0]))]
        yield f"weights {name}", [*size, rows[0][0].data, rows[-1][-1].data]


def forward(digit: Digit, weights: Weights) -> Iterator[tuple[str, list[float]]]:
    """The class token's way through the first block, and the keys and values that it sees"""
    w = {name.removeprefix("block0."): rows for name, rows in weights.items()}
    tokens = microvit.embed(weights, digit[0])
    normed = [microvit.layer_norm(w["norm1"], x) for x in tokens]
    k, v = ([microvit.linear(w[name], x) for x in normed] for name in "kv")
    q = microvit.linear(w["q"], normed[0])
    heads = microvit.attention(q, k, v)
    after = microvit.add(tokens[0], microvit.linear(w["proj"], heads))
    hidden = microvit.linear(w["fc1"], microvit.layer_norm(w["norm2"], after))
    output = microvit.block(weights, "block0.", tokens, range(1))[0]
    logits = microvit.vit(weights, digit[0])
    lines = {"class token": tokens[0], "first patch's token": tokens[1]}
    lines |= {"class token, norm1": normed[0], "class token, query": q}
    lines |= {"first patch, key": k[1], "first patch, value": v[1]}
    for head in range(microvit.HEADS):
        part = slice(head * microvit.HEAD_DIM, (head + 1) * microvit.HEAD_DIM)
        products = [microvit.dot(q[part], key[part]) for key in k]
        scores = microvit.multiply(products, [microvit.SCALE] * len(k))
        lines[f"head {head}, scores"] = scores
        lines[f"head {head}, weights"] = microvit.softmax(scores)
    lines |= {"heads' outputs": heads, "class token after attention": after}
    lines |= {"hidden, before GELU": hidden, "hidden, after GELU": [*map(microvit.gelu, hidden)]}
    lines |= {"class token after the block": output, "logits": logits}
    lines |= {"probabilities": microvit.softmax(logits)}
    for name, vector in lines.items():
        yield name, microvit.numbers(vector)
    yield "loss", [microvit.cross_entropy(logits, digit[1]).data]
    microvit.TAPE.clear()


def gradients(digit: Digit, weights: Weights) -> Iterator[tuple[str, list[float]]]:
    """Of each matrix: the gradients' first and last number, and the root of their sum of squares"""
    microvit.backward(microvit.cross_entropy(microvit.vit(weights, digit[0]), digit[1]))
    for name, rows in weights.items():
        slopes = [value.grad for row in rows for value in row]
        yield f"gradient {name}", [slopes[0], slopes[-1], math.hypot(*slopes)]


if __name__ == "__main__":
    raise SystemExit(main())
