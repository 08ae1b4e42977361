"""A Vision Transformer in plain Python: its gradients, its training and its predictions.

`python microvit.py` trains it on the digits in digits.txt in about a minute. Nothing is imported
but math and random; all that notebooks 00 to 05 build with PyTorch is written out.
"""

import math
import random

SIDE, PATCH, CLASSES = 8, 4, 10  # pixels of a digit, of a patch
DIM, HEADS, HIDDEN, DEPTH = 16, 2, 64, 1
HEAD_DIM, TOKENS = DIM // HEADS, 1 + (SIDE // PATCH) ** 2
STEPS, BATCH, RATE = 700, 8, 0.01


class Value:
    """A number that remembers what it was computed from, and its slope in each of these."""

    __slots__ = ("data", "grad", "parents", "slopes")

    def __init__(self, data, parents=(), slopes=()):
        self.data, self.grad, self.parents, self.slopes = data, 0.0, parents, slopes

    def __add__(self, other):
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other):
        return Value(self.data * other.data, (self, other), (other.data, self.data))


def backward(loss):
    """Add to the grad of every Value how much the loss grows with it."""
    order, seen, stack = [], set(), [(loss, False)]
    while stack:  # a Value comes into the order after all that it was computed from
        value, finished = stack.pop()
        if finished:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack += [(parent, False) for parent in value.parents if parent.parents]
    loss.grad = 1.0
    for value in reversed(order):
        for parent, slope in zip(value.parents, value.slopes, strict=True):
            parent.grad += value.grad * slope


def numbers(values):
    return [value.data for value in values]


# What a layer does with vectors, which are lists of Values


def dot(a, b):
    x, y = numbers(a), numbers(b)
    return Value(sum(map(float.__mul__, x, y)), (*a, *b), (*y, *x))


def add(a, b):
    return [x + y for x, y in zip(a, b, strict=True)]


def linear(layer, x):
    """Each row of a layer has the weights of one output, and its bias at the end."""
    return [dot(row, [*x, ONE]) for row in layer]


def gelu(x):
    share = (1 + math.erf(x.data / math.sqrt(2))) / 2
    slope = share + x.data * math.exp(-(x.data**2) / 2) / math.sqrt(2 * math.pi)
    return Value(x.data * share, (x,), (slope,))


def softmax(x):
    powers = [math.exp(score - max(numbers(x))) for score in numbers(x)]
    p = [power / sum(powers) for power in powers]
    slopes = [[p[i] * ((i == j) - p[j]) for j in range(len(p))] for i in range(len(p))]
    return [Value(p[i], x, slopes[i]) for i in range(len(p))]


def layer_norm(norm, x):
    data, n = numbers(x), len(x)
    mean = sum(data) / n
    scale = (sum((a - mean) ** 2 for a in data) / n + 1e-6) ** -0.5
    z = [(a - mean) * scale for a in data]
    slopes = [[scale * ((i == j) - (1 + z[i] * z[j]) / n) for j in range(n)] for i in range(n)]
    gain, bias = norm
    return add([Value(z[i], x, slopes[i]) * gain[i] for i in range(n)], bias)


# The model


def make_weights():
    """{name: rows of Values}, random; the last number of a row is a bias, which starts at 0"""

    def matrix(rows, columns):
        std = columns**-0.5
        return [
            [Value(random.gauss(0, std)) for _ in range(columns)] + [Value(0.0)]
            for _ in range(rows)
        ]

    def row(mean=0.0, std=0.0):
        return [Value(random.gauss(mean, std)) for _ in range(DIM)]

    weights = {"embed": matrix(DIM, PATCH**2), "cls": [row(std=0.02)]}
    weights["positions"] = [row(std=0.02) for _ in range(TOKENS)]
    for block in range(DEPTH):
        shapes = {"q": (DIM, DIM), "k": (DIM, DIM), "v": (DIM, DIM), "proj": (DIM, DIM)}
        shapes |= {"fc1": (HIDDEN, DIM), "fc2": (DIM, HIDDEN)}
        weights |= {f"{name}{block}": matrix(*shape) for name, shape in shapes.items()}
        weights |= {f"norm{i}{block}": [row(1.0), row()] for i in (1, 2)}
    return weights | {"norm": [row(1.0), row()], "head": matrix(CLASSES, DIM)}


def embed(weights, image):
    """64 numbers from 0 to 1 -> a token for the class, and one for each patch"""
    corners = [(r, c) for r in range(0, SIDE, PATCH) for c in range(0, SIDE, PATCH)]
    inside = [SIDE * i + j for i in range(PATCH) for j in range(PATCH)]
    patches = [[Value(image[SIDE * r + c + k]) for k in inside] for r, c in corners]
    tokens = weights["cls"] + [linear(weights["embed"], patch) for patch in patches]
    return [add(x, place) for x, place in zip(tokens, weights["positions"], strict=True)]


def attention(q, k, v):
    """One query, and the keys and values of all tokens -> the heads' outputs, one after another"""
    outputs = []
    for start in range(0, DIM, HEAD_DIM):
        head = slice(start, start + HEAD_DIM)
        scores = [dot(q[head], key[head]) * SCALE for key in k]
        a = softmax(scores)
        outputs += [dot(a, column) for column in zip(*(x[head] for x in v), strict=True)]
    return outputs


def block(weights, number, tokens, queries):
    """A pre-norm block; only the tokens with these numbers are computed"""
    normed = [layer_norm(weights[f"norm1{number}"], x) for x in tokens]
    k, v = ([linear(weights[f"{name}{number}"], x) for x in normed] for name in "kv")
    after = []
    for i in queries:
        q = linear(weights[f"q{number}"], normed[i])
        x = add(tokens[i], linear(weights[f"proj{number}"], attention(q, k, v)))
        hidden = linear(weights[f"fc1{number}"], layer_norm(weights[f"norm2{number}"], x))
        after.append(add(x, linear(weights[f"fc2{number}"], [gelu(h) for h in hidden])))
    return after


def vit(weights, image):
    """64 numbers from 0 to 1 -> 10 logits"""
    tokens = embed(weights, image)
    for number in range(DEPTH):  # after the last block, only the class token is read
        queries = range(TOKENS) if number < DEPTH - 1 else [0]
        tokens = block(weights, number, tokens, queries)
    return linear(weights["head"], layer_norm(weights["norm"], tokens[0]))


def cross_entropy(logits, label):
    p = softmax(logits)[label]
    return Value(-math.log(p.data), (p,), (-1 / p.data,))


ONE, SCALE = Value(1.0), Value(HEAD_DIM**-0.5)


# Training


def read_digits():
    """{split: [(64 numbers from 0 to 1, the digit)]}"""
    splits = {"train": [], "validation": [], "test": []}
    with open(__file__.replace("microvit.py", "digits.txt"), encoding="ascii") as file:  # noqa: PTH123
        for line in file.readlines()[1:]:
            split, label, pixels = line.split()
            splits[split].append(([int(pixel, 17) / 16 for pixel in pixels], int(label)))
    return splits


def train(weights, examples, steps=STEPS):
    """Adam, with a rate that falls linearly to 0"""
    values = [value for rows in weights.values() for row in rows for value in row]
    mean, square, waiting = [0.0] * len(values), [0.0] * len(values), []
    for step in range(1, steps + 1):
        total = 0.0
        for _ in range(BATCH):
            waiting = waiting or random.sample(examples, len(examples))
            image, label = waiting.pop()
            loss = cross_entropy(vit(weights, image), label)
            backward(loss)
            total += loss.data / BATCH
        rate = RATE * (1 - step / (steps + 1)) / (1 - 0.9**step)
        for i, value in enumerate(values):
            gradient, value.grad = value.grad / BATCH, 0.0
            mean[i] += 0.1 * (gradient - mean[i])
            square[i] += 0.05 * (gradient**2 - square[i])
            value.data -= rate * mean[i] / (math.sqrt(square[i] / (1 - 0.95**step)) + 1e-8)
        if step % 100 == 0:
            print(f"step {step} of {steps}: loss {total:.2f}", flush=True)


def predict(weights, image):
    logits = numbers(vit(weights, image))
    return logits.index(max(logits))


def draw(image):
    """As text: two letters for a pixel, the darker the more ink"""
    letters = [" .:-=+*#%@"[int(9.99 * ink)] * 2 for ink in image]
    return "\n".join("".join(letters[i : i + SIDE]) for i in range(0, len(image), SIDE))


if __name__ == "__main__":
    random.seed(0)
    digits, weights = read_digits(), make_weights()
    train(weights, digits["train"])
    answers = [predict(weights, image) == label for image, label in digits["test"]]
    print(f"It reads {sum(answers)} of {len(answers)} digits correctly that it has never seen.")
    image, label = digits["test"][0]
    print(f"{draw(image)}\nThis is a {label}, and it reads a {predict(weights, image)}.")
