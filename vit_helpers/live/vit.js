/**
 * A Vision Transformer in plain JavaScript, without any library.
 *
 * The functions have the names and the order of the Python modules: patches.py, embeddings.py, attention.py, encoder.py
 * and vit.py. They take one image at a time, so the batch axis B of the Python code is missing here.
 *
 * A matrix (T, D) is an array of T rows, and each row is a Float64Array of D numbers: x[t][d] is number d of token t.
 * JavaScript computes in double precision. torch in single precision differs by less than 1e-5 in attention and logits, and
 * by about that much in tokens, whose numbers are larger. torch in double precision differs by less than 1e-9.
 *
 * Sizes: N patches of P x P pixels, T = N + 1 tokens of width D, L blocks, h heads of width d = D / h, K classes.
 *
 * @typedef {Float64Array[]} Matrix
 * @typedef {{weight: Matrix, bias: Float64Array}} Linear
 */
import { initialize, permutation } from "./init.js";

/** What `forward` can do differently. These are the values of a correct ViT. */
export const SWITCHES = Object.freeze({
  heads: null, // or [L][h] booleans: the output of a head with `false` is replaced by zeros
  positions: true, // false: the position embeddings are not added
  shufflePatches: false, // true: the patches change places, always in the same way
  bareReshape: false, // true: the image is cut by a reshape alone, so each "patch" is a run of pixels
  scaling: true, // false: the scores are not divided by sqrt(d)
  softmaxAxis: "keys", // "queries": every column of the weights sums to 1, instead of every row
  untrained: false, // true: the weights that training would start from
});

// Matrices

/** A matrix of zeros, in one piece of memory. @returns {Matrix} (rows, cols) */
export function zeros(rows, cols) {
  const data = new Float64Array(rows * cols);
  return Array.from({ length: rows }, (_, r) => data.subarray(r * cols, (r + 1) * cols));
}

/** The sum of a[i] * b[i]. Four partial sums, because a processor adds to them at the same time. */
function dot(a, b) {
  const n = a.length, whole = n - (n % 4);
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  for (let i = 0; i < whole; i += 4) {
    s0 += a[i] * b[i];
    s1 += a[i + 1] * b[i + 1];
    s2 += a[i + 2] * b[i + 2];
    s3 += a[i + 3] * b[i + 3];
  }
  for (let i = whole; i < n; i++) s0 += a[i] * b[i];
  return s0 + s1 + (s2 + s3);
}

/** a @ b.T: entry (r, c) is the dot product of row r of a and row c of b. @returns {Matrix} (rows of a, rows of b) */
function matmulTransposed(a, b) {
  const out = zeros(a.length, b.length);
  for (let r = 0; r < a.length; r++) {
    const row = a[r], outRow = out[r];
    for (let c = 0; c < b.length; c++) outRow[c] = dot(row, b[c]);
  }
  return out;
}

/** @returns {Matrix} (cols, rows) */
export function transpose(x) {
  const out = zeros(x[0].length, x.length);
  for (let r = 0; r < x.length; r++) for (let c = 0; c < x[r].length; c++) out[c][r] = x[r][c];
  return out;
}

/** @returns {Matrix} a + b, both (T, D) */
function add(a, b) {
  const out = zeros(a.length, a[0].length);
  for (let t = 0; t < a.length; t++) for (let i = 0; i < a[t].length; i++) out[t][i] = a[t][i] + b[t][i];
  return out;
}

// Layers that torch has ready-made

/** nn.Linear, x @ weight.T + bias, for every row: (T, in) -> (T, out); the weight is (out, in). */
export function linear(x, { weight, bias }) {
  const out = matmulTransposed(x, weight);
  for (const row of out) for (let i = 0; i < row.length; i++) row[i] += bias[i];
  return out;
}

/** nn.LayerNorm: every row gets mean 0 and variance 1, then a scale and a shift per feature.  (T, D) -> (T, D) */
export function layerNorm(x, { weight, bias }, eps) {
  const T = x.length, D = weight.length, out = zeros(T, D);
  for (let t = 0; t < T; t++) {
    const row = x[t], outRow = out[t];
    let mean = 0, variance = 0;
    for (let i = 0; i < D; i++) mean += row[i] / D;
    for (let i = 0; i < D; i++) variance += (row[i] - mean) ** 2 / D;
    const scale = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < D; i++) outRow[i] = (row[i] - mean) * scale * weight[i] + bias[i];
  }
  return out;
}

/** Positive numbers that sum to 1 in every row, exp(x) / sum(exp(x)).  (T, S) -> (T, S) */
export function softmax(x) {
  const out = zeros(x.length, x[0].length);
  for (let t = 0; t < x.length; t++) {
    const row = x[t], outRow = out[t];
    let max = -Infinity, sum = 0;
    for (let i = 0; i < row.length; i++) max = Math.max(max, row[i]);
    for (let i = 0; i < row.length; i++) sum += outRow[i] = Math.exp(row[i] - max); // without "- max" exp could overflow
    for (let i = 0; i < row.length; i++) outRow[i] /= sum;
  }
  return out;
}

const ODD = Float64Array.from({ length: 100 }, (_, n) => 2 / (2 * n + 1));

/**
 * The error function, to about 1e-15. JavaScript has none, so we use two classical formulas (Abramowitz and Stegun,
 * Handbook of Mathematical Functions, 7.1.6 and 7.1.14): a series near zero and a continued fraction far from it.
 */
export function erf(x) {
  const a = Math.abs(x), z = a * a;
  if (a > 6) return Math.sign(x); // 1 - erf(6) is 2e-17
  if (a < 2.5) { // 2 / sqrt(pi) * exp(-x^2) * (x + 2 x^3 / 3 + 4 x^5 / (3 * 5) + ...)
    let term = x, sum = x;
    for (let n = 1; n < 60 && Math.abs(term) > 1e-17; n++) sum += term *= z * ODD[n];
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-z) * sum;
  }
  let tail = a; // 1 - erf(a) = exp(-a^2) / sqrt(pi) / (a + (1/2) / (a + (2/2) / (a + (3/2) / (a + ...))))
  for (let n = 50; n > 0; n--) tail = a + n / 2 / tail;
  return Math.sign(x) * (1 - Math.exp(-z) / Math.sqrt(Math.PI) / tail);
}

/** nn.GELU, the exact one: x times the probability that a standard normal number is below x.  (T, D) -> (T, D) */
export function gelu(x) {
  const out = zeros(x.length, x[0].length);
  for (let t = 0; t < x.length; t++) {
    const row = x[t], outRow = out[t];
    for (let i = 0; i < row.length; i++) outRow[i] = 0.5 * row[i] * (1 + erf(row[i] * Math.SQRT1_2));
  }
  return out;
}

// patches.py

/** Cut an image into square patches, left to right and top to bottom: (H * W) -> (N, P * P) */
export function patchify(pixels, imageSize, patchSize) {
  const P = patchSize, cols = imageSize / P, patches = zeros(cols * cols, P * P);
  for (let y = 0; y < imageSize; y++) {
    for (let x = 0; x < imageSize; x++) {
      const n = Math.floor(y / P) * cols + Math.floor(x / P); // which patch this pixel belongs to
      patches[n][(y % P) * P + (x % P)] = pixels[y * imageSize + x];
    }
  }
  return patches;
}

/** A bug: the same shape, but patch n is simply the n-th run of P * P pixels, a strip of the image. */
export function bareReshape(pixels, imageSize, patchSize) {
  const size = patchSize ** 2;
  return Array.from({ length: imageSize ** 2 / size }, (_, n) => Float64Array.from(pixels.slice(n * size, (n + 1) * size)));
}

// embeddings.py

/** Project every patch to width D: (N, P * P) -> (N, D) */
export function patchEmbed(patches, { proj }) {
  return linear(patches, proj);
}

/** Put the class token first and add the position embeddings: (N, D) -> (T, D) */
export function tokenEmbed(x, { cls_token, pos_embed }, positions = true) {
  const tokens = [...cls_token, ...x];
  return positions ? add(tokens, pos_embed) : tokens.map((row) => row.slice());
}

// attention.py

/**
 * Scaled dot-product attention, softmax(q k^T / sqrt(d)) v (paper, equations 6 and 7).
 * @param {Matrix} q, k, v: each (T, d)
 * @returns {{values: Matrix, weights: Matrix}} (T, d) and (T, T); row t holds how much query t attends to every key
 */
export function attention(q, k, v, { scaling = true, softmaxAxis = "keys" } = {}) {
  const scores = matmulTransposed(q, k); // (T, T)
  const scale = scaling ? 1 / Math.sqrt(q[0].length) : 1;
  for (const row of scores) for (let i = 0; i < row.length; i++) row[i] *= scale;
  const weights = softmaxAxis === "queries" ? transpose(softmax(transpose(scores))) : softmax(scores);
  return { values: matmulTransposed(weights, transpose(v)), weights }; // weights @ v
}

/**
 * Multi-head self-attention: h heads of width d = D / h, mixed by an output projection (equation 8).
 * @param {Matrix} x (T, D)
 * @param {boolean[]} [on] one per head; a head that is off outputs zeros
 * @returns {{out: Matrix, q: Matrix[], k: Matrix[], v: Matrix[], weights: Matrix[]}} out (T, D); the others per head
 */
export function multiHeadAttention(x, { qkv, proj }, numHeads, on, switches) {
  const D = x[0].length, d = D / numHeads;
  const all = linear(x, qkv); // (T, 3 D): the queries of every head side by side, then the keys, then the values
  const part = (s, h) => all.map((row) => row.subarray(s * D + h * d, s * D + (h + 1) * d)); // (T, d)
  const [q, k, v] = [0, 1, 2].map((s) => Array.from({ length: numHeads }, (_, h) => part(s, h)));
  const weights = [], together = zeros(x.length, D); // the values of all heads side by side
  for (let h = 0; h < numHeads; h++) {
    const head = attention(q[h], k[h], v[h], switches);
    weights.push(head.weights);
    if (!on || on[h]) head.values.forEach((row, t) => together[t].set(row, h * d));
  }
  return { out: linear(together, proj), q, k, v, weights };
}

// encoder.py

/** Two linear layers with a GELU between them, applied to each token: (T, D) -> (T, D) */
export function mlp(x, { fc1, fc2 }) {
  return linear(gelu(linear(x, fc1)), fc2);
}

/**
 * One pre-norm encoder block: (T, D) -> (T, D).
 * @returns {{x: Matrix, q: Matrix[], k: Matrix[], v: Matrix[], weights: Matrix[]}} x and what attention computed
 */
export function block(x, { norm1, attn, norm2, mlp: mlpWeights }, config, on, switches) {
  const { out, ...seen } = multiHeadAttention(layerNorm(x, norm1, config.norm_eps), attn, config.num_heads, on, switches);
  x = add(x, out); // Eq. 2
  x = add(x, mlp(layerNorm(x, norm2, config.norm_eps), mlpWeights)); // Eq. 3
  return { x, ...seen };
}

// vit.py

/**
 * The forward pass of a Vision Transformer, with everything that it computes on the way.
 * @param {{config: object, weights: object}} model from `makeVit`
 * @param {Float32Array} pixels H * W numbers from 0 to 1, row by row
 * @param {object} [switches] any of `SWITCHES`
 * @returns {object} patches [N][P * P] (pixels from 0 to 1, in the order of the tokens), order [N] (which patch of the
 *   image each of them is), tokens [L + 1][T][D] (before block 0, after each block), q, k, v [L][h][T][d],
 *   attention [L][h][T][T], logits [K], probabilities [K], lens [L + 1][K] (the probabilities if the head read the class
 *   token at that point), digit, confidence
 */
export function forward(model, pixels, switches = {}) {
  const { config } = model, settings = { ...SWITCHES, ...switches };
  checkPixels(pixels, config);
  const weights = settings.untrained ? (model.untrained ??= nest(initialize(model.shapes))) : model.weights;
  const cut = (settings.bareReshape ? bareReshape : patchify)(pixels, config.image_size, config.patch_size);
  const order = settings.shufflePatches ? permutation(cut.length) : [...cut.keys()];
  const patches = order.map((n) => cut[n]);
  const embedded = patchEmbed(normalize(patches, config), weights.patch_embed); // (N, D)
  let x = tokenEmbed(embedded, weights.token_embed, settings.positions); // Eq. 1: (T, D)
  const seen = { patches, order, tokens: [x], q: [], k: [], v: [], attention: [] };
  weights.blocks.forEach((one, l) => {
    const { x: out, q, k, v, weights: attended } = block(x, one, config, settings.heads?.[l], settings); // Eq. 2 and 3
    x = out;
    for (const [name, value] of Object.entries({ tokens: x, q, k, v, attention: attended })) seen[name].push(value);
  });
  // The head reads the class token after the last block. The lens lets it read the class token before every block, too.
  const classTokens = seen.tokens.map((tokens) => tokens[0]); // (L + 1, D)
  const logits = linear(layerNorm(classTokens, weights.norm, config.norm_eps), weights.head); // Eq. 4: (L + 1, K)
  const lens = softmax(logits), probabilities = lens[config.depth];
  const digit = probabilities.indexOf(Math.max(...probabilities));
  return { ...seen, logits: logits[config.depth], probabilities, lens, digit, confidence: probabilities[digit] };
}

/** Preprocess.normalize, rounded like torch's pixels, so that both models start from the same numbers */
function normalize(patches, { mean, std }) {
  const { fround } = Math; // to single precision
  return patches.map((patch) => patch.map((value) => fround(fround(fround(value) - fround(mean)) / fround(std))));
}

function checkPixels(pixels, { image_size: side }) {
  if (pixels?.length !== side * side) {
    throw new RangeError(`the model reads ${side} x ${side} = ${side * side} pixels, got ${pixels?.length}`);
  }
  for (let i = 0; i < pixels.length; i++) {
    if (!Number.isFinite(pixels[i])) throw new TypeError(`pixel ${i} is ${pixels[i]}, which is not a finite number`);
  }
}

// Files of weights

/**
 * Read a safetensors file: 8 bytes with the length of a JSON header, the header, and the numbers.
 * @param {ArrayBuffer} buffer
 * @returns {{tensors: Object<string, {shape: number[], data: Float32Array}>, metadata: Object<string, string>}}
 */
export function readSafetensors(buffer) {
  const length = buffer.byteLength < 8 ? Infinity : Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + length > buffer.byteLength) throw new RangeError("the file is cut short, or it is no safetensors file");
  const { __metadata__: metadata = {}, ...entries } = JSON.parse(new TextDecoder().decode(buffer.slice(8, 8 + length)));
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(entries)) {
    if (8 + length + end > buffer.byteLength) throw new RangeError(`the file is cut short: ${name} is incomplete`);
    if (!(dtype in READ)) throw new TypeError(`${name} has the type ${dtype}; known are ${Object.keys(READ).join(" and ")}`);
    tensors[name] = { shape, data: READ[dtype](buffer.slice(8 + length + begin, 8 + length + end)) };
  }
  return { tensors, metadata };
}

const READ = { // the numbers in a file are little-endian, like those of all current processors
  F32: (bytes) => new Float32Array(bytes),
  F16: (bytes) => halvesToNumbers(new Uint16Array(bytes)),
};

const POWERS = Float64Array.from({ length: 31 }, (_, exponent) => 2 ** (exponent - 25));

/** Half precision: 16 bits a number, 1 for the sign, 5 for the exponent, 10 for the fraction. @returns {Float32Array} */
function halvesToNumbers(halves) {
  const numbers = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    const sign = halves[i] & 0x8000 ? -1 : 1, exponent = (halves[i] >> 10) & 31, fraction = halves[i] & 1023;
    if (exponent === 31) numbers[i] = fraction ? NaN : sign * Infinity;
    else numbers[i] = sign * (exponent ? (1024 + fraction) * POWERS[exponent] : fraction * POWERS[1]);
  }
  return numbers;
}

/**
 * A model from a file of `vit_helpers.pretrained.save_weights`.
 * @param {ArrayBuffer} buffer
 * @returns {{config: object, weights: object, shapes: object}} the weights as weights.blocks[0].attn.qkv.weight
 */
export function makeVit(buffer) {
  const { tensors, metadata } = readSafetensors(buffer);
  const [fields, preprocess, classNames] = ["config", "preprocess", "class_names"].map((name) => {
    if (!(name in metadata)) throw new TypeError(`the file was not made by save_weights: it has no ${name}`);
    return JSON.parse(metadata[name]);
  });
  const [height, width] = [fields.image_size].flat(), { in_chans, pool, positions, representation_size } = fields;
  if (in_chans !== 1 || (width ?? height) !== height || pool !== "cls" || positions !== "learned" || representation_size) {
    throw new TypeError("this page reads ViTs for square gray images with a class token, learned positions, a linear head");
  }
  const paper = { reg_tokens: 0, init_values: null, mlp_layer: "gelu", norm_layer: "layernorm", qk_norm: false };
  const later = Object.keys(paper).filter((name) => (fields[name] ?? paper[name]) !== paper[name]);
  if (later.length) throw new TypeError(`this page reads the paper's ViT, and not one with ${later.join(", ")}`);
  const num_patches = (height / fields.patch_size) ** 2, head_dim = fields.embed_dim / fields.num_heads;
  const sizes = { image_size: height, num_patches, num_tokens: num_patches + 1, head_dim };
  const config = { ...fields, ...sizes, mean: preprocess.mean[0], std: preprocess.std[0], class_names: classNames };
  const shapes = Object.fromEntries(Object.entries(tensors).map(([name, { shape }]) => [name, shape]));
  return { config: Object.freeze(config), weights: nest(tensors), shapes };
}

/** {"blocks.0.norm1.weight": {shape, data}} -> {blocks: [{norm1: {weight}}]}; what has more axes than one becomes rows. */
function nest(tensors) {
  const weights = {};
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    const path = name.split("."), last = path.pop(), cols = shape.at(-1);
    const parent = path.reduce((inside, key) => (inside[key] ??= {}), weights);
    const numbers = Float64Array.from(data), row = (_, r) => numbers.subarray(r * cols, (r + 1) * cols);
    parent[last] = shape.length === 1 ? numbers : Array.from({ length: data.length / cols }, row);
  }
  weights.blocks = Object.keys(weights.blocks).sort((a, b) => a - b).map((l) => weights.blocks[l]);
  return weights;
}
