/**
 * The weights that training starts from, and a fixed shuffling of the patches.
 *
 * The distributions are those of the Python modules. The random numbers come from a small generator that is easy to
 * write in any language: number i of a tensor is a hash of the tensor's name and of i.
 */

const scramble = (h) => { // the last step of MurmurHash3: every bit of the result depends on every bit of h
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
};

/** The seed of a name: 32 bits (FNV-1a). */
function seedOf(name) {
  let h = 0x811c9dc5;
  for (const letter of name) h = Math.imul(h ^ letter.charCodeAt(0), 0x01000193);
  return h >>> 0;
}

/** Random number i of a seed, uniform between 0 and 1. */
function uniform(seed, i) {
  return (scramble((seed + Math.imul(i, 0x9e3779b9)) >>> 0) + 0.5) / 2 ** 32;
}

/** Random number i of a seed, with mean 0 and standard deviation 1 (the Box-Muller method). */
function normal(seed, i) {
  return Math.sqrt(-2 * Math.log(uniform(seed, 2 * i))) * Math.cos(2 * Math.PI * uniform(seed, 2 * i + 1));
}

/** How our Python modules initialize a tensor: the distribution, and its width. Everything else starts at zero. */
function rule(name, shape) {
  const fanOut = shape[0], fanIn = shape.at(-1);
  if (/norm\d?\.weight$/.test(name)) return () => 1;
  if (name.endsWith("pos_embed")) return (seed, i) => 0.02 * normal(seed, i);
  if (name.endsWith("patch_embed.proj.weight")) return (seed, i) => normal(seed, i) / Math.sqrt(fanIn);
  if (/mlp\.fc\d\.bias$/.test(name)) return (seed, i) => 1e-6 * normal(seed, i);
  const bound = Math.sqrt(6 / (fanIn + fanOut / (name.endsWith("qkv.weight") ? 3 : 1))); // Xavier's; qkv is three matrices
  if (/(attn|mlp)\.\w+\.weight$/.test(name)) return (seed, i) => bound * (2 * uniform(seed, i) - 1);
  return () => 0;
}

/**
 * Initial weights of the given shapes. The head starts at zero, so that every class gets the same probability.
 * @param {Object<string, number[]>} shapes
 * @returns {Object<string, {shape: number[], data: Float32Array}>}
 */
export function initialize(shapes) {
  const tensors = {};
  for (const [name, shape] of Object.entries(shapes)) {
    const seed = seedOf(name), draw = rule(name, shape), length = shape.reduce((a, b) => a * b, 1);
    tensors[name] = { shape, data: Float32Array.from({ length }, (_, i) => draw(seed, i)) };
  }
  return tensors;
}

/** The numbers 0 .. n - 1 in another order, always the same one (the Fisher-Yates shuffle). @returns {number[]} */
export function permutation(n) {
  const order = Array.from({ length: n }, (_, i) => i), seed = seedOf("shuffle");
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(uniform(seed, i) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
