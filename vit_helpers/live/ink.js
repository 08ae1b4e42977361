/**
 * From a drawing to the pixels that the model reads, as the training digits were made: crop, keep the aspect, count the ink.
 *
 * `ink.py` does the same in Python and says more about the rule.
 */

const FAINTEST = Math.fround(0.1); // fainter pixels do not extend the bounding box

/** The error for a drawing without ink, so that a page can tell it from wrong arguments. */
export class EmptyInkError extends RangeError {}

/**
 * Reduce a drawing of any size to size x size cells, each with its fraction of ink.
 * @param {ArrayLike<number>} ink width * height numbers from 0 (paper) to 1 (ink), row by row
 * @param {number} width
 * @param {number} height
 * @param {number} size
 * @returns {Float32Array} size * size numbers from 0 to 1, row by row
 * @throws TypeError or RangeError for other arguments, EmptyInkError if there is no ink
 */
export function reduceInk(ink, width, height, size) {
  for (const [name, value] of Object.entries({ width, height, size })) checkCount(name, value);
  checkInk(ink, width, height);
  const drawing = new Float32Array(ink), { top, bottom, left, right } = boundingBox(drawing, width, height);
  const side = Math.max(bottom - top, right - left); // the square around the box has its longer side and its center
  const rows = coverage((top + bottom - side) / 2, side, size, height);
  const columns = coverage((left + right - side) / 2, side, size, width);
  const narrow = new Float64Array(height * size); // the means along each row of pixels, then along each column of those
  for (let y = 0; y < height; y++) {
    for (let c = 0; c < size; c++) narrow[y * size + c] = weightedSum(drawing, y * width, 1, columns[c]);
  }
  const cells = new Float32Array(size * size);
  for (let r = 0; r < size; r++) {
    for (let c = 0; c < size; c++) cells[r * size + c] = weightedSum(narrow, c, size, rows[r]);
  }
  return cells;
}

/** The sum of part i times the number at position first + i of an axis that starts at `from` and goes on in steps */
function weightedSum(numbers, from, step, { first, parts }) {
  let sum = 0;
  for (let i = 0; i < parts.length; i++) sum += parts[i] * numbers[from + (first + i) * step];
  return sum;
}

/** The rows top .. bottom - 1 and the columns left .. right - 1 contain all pixels that have ink. */
export function boundingBox(drawing, width, height) {
  let top = height, bottom = 0, left = width, right = 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (drawing[y * width + x] <= FAINTEST) continue;
      top = Math.min(top, y);
      bottom = y + 1;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
    }
  }
  if (bottom === 0) throw new EmptyInkError("the drawing is empty: no pixel has more than 0.1 of ink");
  return { top, bottom, left, right };
}

/**
 * Along one axis, which pixels each cell covers, and what fraction of the cell each of them is.
 * @param {number} start where the first cell begins, in pixels, which may be negative
 * @param {number} side the length of all cells together
 * @returns {Array<{first: number, parts: number[]}>} one per cell: its first pixel, and the fractions from that one on
 */
function coverage(start, side, size, pixels) {
  return Array.from({ length: size }, (_, k) => {
    const begin = start + (side / size) * k, end = start + (side / size) * (k + 1);
    const first = Math.max(0, Math.floor(begin)), parts = [];
    for (let p = first; p < Math.min(pixels, end); p++) {
      parts.push(((Math.min(end, p + 1) - Math.max(begin, p)) * size) / side);
    }
    return { first, parts };
  });
}

function checkCount(name, value) {
  if (Number.isInteger(value) && value > 0) return;
  throw new RangeError(`${name} must be a whole number from 1 on, got ${say(value)}`);
}

function checkInk(ink, width, height) {
  if (!Array.isArray(ink) && !(ArrayBuffer.isView(ink) && "length" in ink)) {
    throw new TypeError(`ink must be an array of numbers, got ${say(ink)}`);
  }
  if (ink.length !== width * height) {
    throw new RangeError(`${width} x ${height} pixels are ${width * height} numbers, but ink has ${ink.length}`);
  }
  for (let i = 0; i < ink.length; i++) {
    if (typeof ink[i] !== "number" || Number.isNaN(ink[i])) throw new TypeError(`ink[${i}] is ${say(ink[i])}, not a number`);
    if (ink[i] < 0 || ink[i] > 1) throw new RangeError(`ink[${i}] is ${ink[i]}; it must be from 0 (paper) to 1 (ink)`);
  }
}

/** A value as an error message names it @returns {string} */
export function say(value) {
  if (typeof value === "string") return `"${value}"`;
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
