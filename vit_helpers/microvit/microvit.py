"""A Vision Transformer in plain Python: its gradients, its training and its predictions.

`python microvit.py` trains it on the digits in digits.txt in about a minute. Nothing is imported
but math and random; all that notebooks 00 to 05 build with PyTorch is written out.
"""

import math
import random

SIDE, PATCH, CLASSES = 8, 4, 10  # pixels of a digit, of a patch
DIM, HEADS, HIDDEN, DEPTH = 24, 3, 48, 1
HEAD_DIM, TOKENS = DIM // HEADS, 1 + (SIDE // PATCH) ** 2
STEPS, BATCH, RATE = 700, 8, 0.006


class Value:
    """A number that remembers what it was computed from, and its slope in each of these"""

    __slots__ = ("data", "grad", "parents", "slopes")

    def __init__(self, data: float, parents: "Values" = (), slopes: tuple[float, ...] = ()):
        self.data, self.grad, self.parents, self.slopes = data, 0.0, parents, slopes
        TAPE.append(self)


Values = tuple[Value, ...]
Vector = list[Value]
Matrix = list[Vector]
Weights = dict[str, Matrix]
Digit = tuple[list[float], int]  # its pixels, and which digit it is

TAPE: Vector = []  # every Value since the last backward, in the order of computation
ONE, SCALE = Value(1.0), Value(HEAD_DIM**-0.5)


def backward(loss: Value) -> None:
    """Add to the grad of every Value how much the loss grows with it."""
    loss.grad = 1.0
    while TAPE:
        value = TAPE.pop()
        for parent, slope in zip(value.parents, value.slopes, strict=True):
            parent.grad += value.grad * slope


def numbers(values: Vector) -> list[float]:
    """The numbers alone, without what they were computed from"""
    return [value.data for value in values]


def dot(a: Vector, b: Vector) -> Value:
    """The sum of products: one Value, however long the vectors are"""
    x, y = numbers(a), numbers(b)
    return Value(sum(map(float.__mul__, x, y)), (*a, *b), (*y, *x))


def add(a: Vector, b: Vector) -> Vector:
    """Vector plus vector"""
    return [Value(x.data + y.data, (x, y), (1.0, 1.0)) for x, y in zip(a, b, strict=True)]


def multiply(a: Vector, b: Vector) -> Vector:
    """Vector times vector, number by number"""
    return [Value(x.data * y.data, (x, y), (y.data, x.data)) for x, y in zip(a, b, strict=True)]


def linear(layer: Matrix, x: Vector) -> Vector:
    """Each row of a layer has the weights of one output, and its bias at the end."""
    return [dot(row, [*x, ONE]) for row in layer]


def gelu(x: Value) -> Value:
    """X times the share of a normal distribution that lies below x"""
    share = (1 + math.erf(x.data / math.sqrt(2))) / 2
    slope = share + x.data * math.exp(-(x.data**2) / 2) / math.sqrt(2 * math.pi)
    return Value(x.data * share, (x,), (slope,))


def softmax(x: Vector) -> Vector:
    """Scores -> positive numbers whose sum is 1"""
    powers = [math.exp(score - max(numbers(x))) for score in numbers(x)]
    p = [power / sum(powers) for power in powers]
    slopes = [[p[i] * ((i == j) - p[j]) for j in range(len(p))] for i in range(len(p))]
    return [Value(p[i], (*x,), (*slopes[i],)) for i in range(len(p))]


def layer_norm(norm: Matrix, x: Vector) -> Vector:
    """Mean 0 and standard deviation 1, then times a learned scale, plus a learned bias"""
    data, n = numbers(x), len(x)
    mean = sum(data) / n
    inverse = (sum((a - mean) ** 2 for a in data) / n + 1e-6) ** -0.5
    z = [(a - mean) * inverse for a in data]
    slopes = [[inverse * ((i == j) - (1 + z[i] * z[j]) / n) for j in range(n)] for i in range(n)]
    scale, bias = norm
    return add(multiply([Value(z[i], (*x,), (*slopes[i],)) for i in range(n)], scale), bias)


def make_weights() -> Weights:
    """All weights by their names, random; biases start at 0, and scales of norms at 1"""

    def matrix(rows: int, columns: int) -> Matrix:
        std = columns**-0.5
        return [[Value(random.gauss(0.0, std)) for _ in range(columns)] for _ in range(rows)]

    def layer(outputs: int, inputs: int) -> Matrix:
        return [[*row, Value(0.0)] for row in matrix(outputs, inputs)]

    def norm() -> Matrix:
        return [[Value(start) for _ in range(DIM)] for start in (1.0, 0.0)]

    weights = {"embed": layer(DIM, PATCH**2), "cls": matrix(1, DIM)}
    weights["positions"] = matrix(TOKENS, DIM)
    for i in range(DEPTH):
        weights |= {f"block{i}.norm1": norm(), f"block{i}.norm2": norm()}
        weights |= {f"block{i}.{name}": layer(DIM, DIM) for name in ("q", "k", "v", "proj")}
        weights |= {f"block{i}.fc1": layer(HIDDEN, DIM), f"block{i}.fc2": layer(DIM, HIDDEN)}
    return weights | {"norm": norm(), "head": layer(CLASSES, DIM)}


def embed(weights: Weights, image: list[float]) -> Matrix:
    """64 numbers from 0 to 1 -> a token for the class, and one for each patch"""
    corners = [SIDE * r + c for r in range(0, SIDE, PATCH) for c in range(0, SIDE, PATCH)]
    inside = [SIDE * r + c for r in range(PATCH) for c in range(PATCH)]
    patches = [[Value(image[corner + k]) for k in inside] for corner in corners]
    tokens = weights["cls"] + [linear(weights["embed"], patch) for patch in patches]
    return [add(x, position) for x, position in zip(tokens, weights["positions"], strict=True)]


def attention(q: Vector, k: Matrix, v: Matrix) -> Vector:
    """The query of one token, keys and values of all -> the heads' outputs, one after another"""
    outputs = []
    for start in range(0, DIM, HEAD_DIM):
        head = slice(start, start + HEAD_DIM)
        scores = multiply([dot(q[head], key[head]) for key in k], [SCALE] * len(k))
        a = softmax(scores)
        outputs += [dot(a, [value[i] for value in v]) for i in range(DIM)[head]]
    return outputs


def block(weights: Weights, name: str, tokens: Matrix, wanted: range) -> Matrix:
    """A pre-norm block, whose output is computed only for the tokens that are wanted"""
    w = {key.removeprefix(name): rows for key, rows in weights.items()}
    normed = [layer_norm(w["norm1"], x) for x in tokens]
    k, v = [linear(w["k"], x) for x in normed], [linear(w["v"], x) for x in normed]
    outputs = []
    for i in wanted:
        x = add(tokens[i], linear(w["proj"], attention(linear(w["q"], normed[i]), k, v)))
        hidden = [gelu(h) for h in linear(w["fc1"], layer_norm(w["norm2"], x))]
        outputs.append(add(x, linear(w["fc2"], hidden)))
    return outputs


def vit(weights: Weights, image: list[float]) -> Vector:
    """64 numbers from 0 to 1 -> 10 logits"""
    tokens = embed(weights, image)
    for i in range(DEPTH):  # after the last block, only the class token is read
        tokens = block(weights, f"block{i}.", tokens, range(TOKENS if i < DEPTH - 1 else 1))
    return linear(weights["head"], layer_norm(weights["norm"], tokens[0]))


def cross_entropy(logits: Vector, label: int) -> Value:
    """Minus the logarithm of the label's probability"""
    p = softmax(logits)[label]
    return Value(-math.log(p.data), (p,), (-1 / p.data,))


def read_digits() -> dict[str, list[Digit]]:
    """The digits of train, validation and test: 64 numbers from 0 to 1, and the digit"""
    splits: dict[str, list[Digit]] = {"train": [], "validation": [], "test": []}
    path = __file__.rpartition("microvit.py")[0] + "digits.txt"
    with open(path, encoding="ascii") as file:  # noqa: PTH123, a Path would be one import more
        for line in file.readlines()[1:]:
            split, label, pixels = line.split()
            splits[split].append(([int(pixel, 17) / 16 for pixel in pixels], int(label)))
    return splits


def train(weights: Weights, digits: list[Digit], steps: int = STEPS) -> None:
    """Adam, with a learning rate that falls in a straight line to 0"""
    values = [value for rows in weights.values() for row in rows for value in row]
    mean, square, queue = [0.0] * len(values), [0.0] * len(values), list[Digit]()
    for step in range(1, steps + 1):
        total = 0.0
        for _ in range(BATCH):
            queue = queue or random.sample(digits, len(digits))
            image, label = queue.pop()
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


def predict(weights: Weights, image: list[float]) -> int:
    """The digit with the largest logit"""
    logits = numbers(vit(weights, image))
    TAPE.clear()  # nothing is to be learned from it
    return logits.index(max(logits))


def main() -> None:
    """Train, read the test digits, and draw the first with its answer."""
    random.seed(0)
    digits, weights = read_digits(), make_weights()
    train(weights, digits["train"])
    test = digits["test"]
    right = sum(predict(weights, image) == label for image, label in test)
    print(f"It reads {right} of {len(test)} new digits correctly ({right / len(test):.3f}).")
    image, label = test[0]
    for start in range(0, len(image), SIDE):
        print("".join(" .:-=+*#%@"[int(9.99 * x)] * 2 for x in image[start : start + SIDE]))
    print(f"This is a {label}, and it reads a {predict(weights, image)}.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
