/**
 * What a patch of a photo is similar to, and what it attends to, from stored tokens, queries and keys.
 *
 * `results/photo_features.py` does the same in Python, from the same numbers of 8 bits. The page has coarser ones.
 */

/**
 * @param {{tokens: object, q: object, k: object}} stored each {values: base64 of one byte a number, scale: one a column}
 * @returns {{tokens: Float32Array[], q: Float32Array[], k: Float32Array[]}} tokens of length 1; q and k: class token first
 */
export function readPhoto({ tokens, q, k }) {
  return { tokens: unitTokens(readMatrix(tokens)), q: readMatrix(q), k: readMatrix(k) };
}

/**
 * The tokens that `pack_tokens` of photos.py packed.
 * @param {string} packed base64
 * @param {number} step of which the bytes are multiples
 * @returns {Promise<{tokens: Float32Array[], components: Float32Array[]}>} n tokens of length 1; the leading three components
 */
export async function unpackTokens(packed, step, n) {
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = Float32Array.from(new Int8Array(await new Response(stream).arrayBuffer()), (one) => step * one);
  const components = Array.from({ length: values.length / n }, (_, j) => values.subarray(j * n, (j + 1) * n));
  const tokens = Array.from({ length: n }, (_, i) => Float32Array.from(components, (component) => component[i]));
  return { tokens: unitTokens(tokens), components: components.slice(0, 3) };
}

/** The same vectors, scaled to length 1 */
function unitTokens(tokens) {
  return tokens.map((token) => {
    const length = Math.sqrt(multiplied(token, token));
    return token.map((one) => one / length);
  });
}

/** The bytes, from -128 to 127, of a text in base64 */
function bytesOf(base64) {
  return Int8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** The rows of a matrix that was rounded to 8 bits */
function readMatrix({ values, scale }) {
  const bytes = bytesOf(values), d = scale.length;
  return Array.from({ length: bytes.length / d }, (_, i) => Float32Array.from(scale, (one, j) => one * bytes[i * d + j]));
}

/** The dot product of two vectors */
function multiplied(a, b) {
  return a.reduce((sum, one, i) => sum + one * b[i], 0);
}

/** The cosine similarity of a patch's token to all N. patch: its number, row by row, from 0 */
export function similarTo({ tokens }, patch) {
  return tokens.map((token) => multiplied(token, tokens[patch]));
}

/** The patch, other than itself, whose token is most similar. @returns {number} */
export function mostSimilar(cosines, patch) {
  const others = cosines.map((one, n) => (n === patch ? -1 : one));
  return others.indexOf(Math.max(...others));
}

/** The weights that a patch's query gives to all N patches; the rest is on the class token. */
export function attendsTo({ q, k }, patch) {
  const scores = k.map((key) => multiplied(q[patch + 1], key) / Math.sqrt(key.length)), highest = Math.max(...scores);
  const parts = scores.map((score) => Math.exp(score - highest)), sum = parts.reduce((a, b) => a + b);
  return parts.slice(1).map((part) => part / sum);
}
