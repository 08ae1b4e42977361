/**
 * What a patch of a photo is similar to, and what it attends to, from stored tokens, queries and keys.
 *
 * `results/photo_features.py` does the same in Python, from the same numbers of 8 bits.
 */

/**
 * @param {{tokens: object, q: object, k: object}} stored each {values: base64 of one byte a number, scale: one a column}
 * @returns {{tokens: Float32Array[], q: Float32Array[], k: Float32Array[]}} tokens of length 1; q and k: class token first
 */
export function readPhoto({ tokens, q, k }) {
  const units = readMatrix(tokens).map((token) => token.map((one) => one / Math.sqrt(multiplied(token, token))));
  return { tokens: units, q: readMatrix(q), k: readMatrix(k) };
}

/** The rows of a matrix that was rounded to 8 bits */
function readMatrix({ values, scale }) {
  const bytes = Int8Array.from(atob(values), (letter) => letter.charCodeAt(0)), d = scale.length;
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

/** The weights that a patch's query gives to all N patches; the rest is on the class token. */
export function attendsTo({ q, k }, patch) {
  const scores = k.map((key) => multiplied(q[patch + 1], key) / Math.sqrt(key.length)), highest = Math.max(...scores);
  const parts = scores.map((score) => Math.exp(score - highest)), sum = parts.reduce((a, b) => a + b);
  return parts.slice(1).map((part) => part / sum);
}
