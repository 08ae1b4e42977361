/** Pictures of numbers: bars, gray squares and maps of attention. Each function draws into an element that it is given. */

const PAPER_COLOR = [255, 253, 247], INK_COLOR = [34, 34, 34]; // the same by day and by night, like a photograph
const WINE = "136, 34, 85"; // attention over an image, as in the figures of the notebooks
const CLASS_COLOR = "#D55E00", QUERY_COLOR = "#0072B2";
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children: el("p", {class: "note"}, "text") */
export function el(tag, attributes = {}, ...children) {
  const element = ["svg", "path", "line"].includes(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** An empty svg for `drawBars`.  kind: whose color the bars have */
export function makeBars(kind) {
  return el("svg", { class: `bars ${kind}`, "aria-hidden": "true" });
}

/** One bar per number, up for positive and down for negative ones.  limit: the number that the tallest bar stands for */
export function drawBars(svg, numbers, limit) {
  const n = numbers.length;
  if (!svg.firstChild) {
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(el("line", { x1: 0, y1: 1, x2: n, y2: 1, "vector-effect": "non-scaling-stroke" }), el("path"));
  }
  let path = "";
  for (let i = 0; i < n; i++) {
    const height = Math.max(-1, Math.min(1, numbers[i] / limit));
    path += `M${i + 0.12} 1V${(1 - height).toFixed(3)}H${i + 0.88}V1Z`;
  }
  svg.setAttribute("viewBox", `0 0 ${n} 2`);
  svg.lastChild.setAttribute("d", path);
}

/**
 * One bar per span [from, to], each in its own column: red (`up`) if it goes up, blue (`down`) if it goes down.
 * @param {number[][]} spans
 * @param {number} low, high: the numbers at the bottom and at the top
 * @param {number} lead if above 0, a line leads from the end of each bar to the next one, which begins there, so that they are
 *   seen to add up, and goes on for so many columns after the last one
 */
export function drawSteps(svg, spans, low, high, lead = 0) {
  const n = spans.length, y = (number) => ((high - number) / (high - low || 1)).toFixed(5);
  if (!svg.firstChild) {
    svg.append(...["up", "down", "links", "zero"].map((name) => el("path", { class: name, "vector-effect": "non-scaling-stroke" })));
    for (const [name, value] of Object.entries({ preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(name, value);
  }
  const paths = { up: "", down: "", links: "", zero: `M0 ${y(0)}H${n}` };
  spans.forEach(([from, to], i) => {
    paths[to < from ? "down" : "up"] += `M${i + 0.12} ${y(from)}V${y(to)}H${i + 0.88}V${y(from)}Z`;
    if (lead) paths.links += `M${i + 0.88} ${y(to)}H${i + 1 < n ? i + 1.12 : n + lead}`;
  });
  svg.setAttribute("viewBox", `0 0 ${n} 1`);
  for (const path of svg.children) path.setAttribute("d", paths[path.classList[0]]);
}

/** The smallest of 1, 1.5, 2, 3, 4, 5, 6, 8, and these times 10, 100 ... or a tenth, that is not below any number's size */
export function niceLimit(...lists) {
  let most = 1e-9;
  for (const list of lists) for (const number of list) most = Math.max(most, Math.abs(number));
  const power = 10 ** Math.floor(Math.log10(most));
  return Number(([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= most * (1 - 1e-9)) * power).toPrecision(2));
}

/** The gray of a pixel from 0 (paper) to 1 (ink).  strength: below 1 for a paler picture */
function gray(value, strength = 1) {
  const part = Math.max(0, Math.min(1, value)) * strength;
  return `rgb(${PAPER_COLOR.map((paper, i) => Math.round(paper + (INK_COLOR[i] - paper) * part)).join()})`;
}

/** Draw numbers from 0 to 1 as gray squares, `cols` in a row, from (x, y) on. */
export function drawGray(context, numbers, cols, x, y, size, strength = 1) {
  for (let i = 0; i < numbers.length; i++) {
    context.fillStyle = gray(numbers[i], strength);
    context.fillRect(x + (i % cols) * size, y + Math.floor(i / cols) * size, size, size);
  }
}

/** The whole image as a grid of gray squares, with thin lines between them if `lines`. */
export function drawGrid(canvas, pixels, side, lines = true) {
  const context = canvas.getContext("2d"), size = canvas.width / side;
  drawGray(context, pixels, side, 0, 0, size);
  context.fillStyle = "rgba(128, 120, 105, 0.28)";
  for (let i = 1; lines && i < side; i++) {
    context.fillRect(i * size - 0.5, 0, 1, canvas.width);
    context.fillRect(0, i * size - 0.5, canvas.width, 1);
  }
}

/** The drawing as it is, with the square around its ink that becomes the pixels. */
export function drawCropped(canvas, source, box) {
  const context = canvas.getContext("2d"), scale = canvas.width / source.width;
  context.fillStyle = gray(0);
  context.fillRect(0, 0, canvas.width, canvas.width);
  context.drawImage(source, 0, 0, canvas.width, canvas.width);
  if (!box) return;
  const side = Math.max(box.bottom - box.top, box.right - box.left) * scale;
  const left = ((box.left + box.right) / 2) * scale - side / 2, top = ((box.top + box.bottom) / 2) * scale - side / 2;
  context.setLineDash([5, 4]);
  context.lineWidth = 2;
  context.strokeStyle = QUERY_COLOR;
  context.strokeRect(left, top, side, side);
}

// matplotlib's RdBu_r in eleven steps, the colors of numbers with a sign in the notebooks
const SIGNED_COLORS = [
  "#053061", "#2065ab", "#4393c3", "#90c4dd", "#d1e5f0", "#f7f6f6", "#fddbc7", "#f3a481", "#d6604d", "#b1182b", "#67001f",
].map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));

/** The color of a number from -1 (blue) to 1 (red) */
function redOrBlue(number) {
  const at = (Math.max(-1, Math.min(1, number)) + 1) * 5, first = Math.min(9, Math.floor(at)), part = at - first;
  return `rgb(${SIGNED_COLORS[first].map((from, i) => Math.round(from + (SIGNED_COLORS[first + 1][i] - from) * part)).join()})`;
}

/**
 * Vectors as rows of colors above each other, each as high as its weight.
 * @param {Float64Array[]} vectors [T][d]
 * @param {Float64Array} weights [T]
 * @param {number} limit the number with the strongest red
 * @param {number} whole the sum of weights that fills the canvas
 * @param {number} chosen the row with a frame
 */
export function drawLanes(canvas, vectors, weights, limit, whole, chosen) {
  const context = canvas.getContext("2d"), height = canvas.height / whole, width = canvas.width / vectors[0].length;
  context.clearRect(0, 0, canvas.width, canvas.height);
  let y = 0;
  const tops = vectors.map((vector, t) => {
    vector.forEach((number, i) => {
      context.fillStyle = redOrBlue(number / limit);
      context.fillRect(i * width, y, width, weights[t] * height);
    });
    return (y += weights[t] * height) - weights[t] * height;
  });
  Object.assign(context, { lineWidth: 2, strokeStyle: `rgb(${WINE})` });
  context.strokeRect(1, tops[chosen] + 1, canvas.width - 2, Math.max(1, weights[chosen] * height - 2));
}

export const NUMBER_HEIGHT = 22; // of the number above each patch

/** Where patch n is in a picture of patches with gaps. @returns {{x: number, y: number, size: number}} */
export function patchPlace(canvas, n, cols, gap) {
  const size = (canvas.width - gap * (cols - 1)) / cols;
  return { x: (n % cols) * (size + gap), y: Math.floor(n / cols) * (canvas.height / cols) + NUMBER_HEIGHT, size };
}

/** The patches, cut apart, each below its number.  patches: [N][P * P]; chosen: the one in a frame, or -1 */
export function drawPatches(canvas, patches, chosen, gap) {
  const context = canvas.getContext("2d"), cols = Math.sqrt(patches.length), P = Math.sqrt(patches[0].length);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.font = "500 15px system-ui, sans-serif";
  patches.forEach((patch, n) => {
    const { x, y, size } = patchPlace(canvas, n, cols, gap);
    drawGray(context, patch, P, x, y, size / P);
    outline(context, x, y, size);
    context.fillStyle = getComputedStyle(canvas).color; // the page's, by day or by night
    context.fillText(String(n + 1), x + 1, y - 6);
    if (n === chosen) frame(context, x, y, size, size, 5);
  });
}

/** The picture of one token: its patch, or for the class token a square of its color with a C. */
export function drawToken(canvas, patch) {
  const context = canvas.getContext("2d"), size = canvas.width;
  if (patch) return drawGray(context, patch, Math.sqrt(patch.length), 0, 0, size / Math.sqrt(patch.length));
  context.fillStyle = CLASS_COLOR;
  context.fillRect(0, 0, size, size);
  Object.assign(context, { fillStyle: "#fff", textAlign: "center", textBaseline: "middle" });
  context.font = `700 ${size * 0.62}px system-ui, sans-serif`;
  context.fillText("C", size / 2, size * 0.54);
}

const MAP_GAP = 8; // between the class token's cell and the image

/**
 * One row of attention over the image: in each cell a square whose area is the weight.
 * @param {HTMLCanvasElement} canvas cols cells wide, cols + 1 cells and a gap high
 * @param {Float32Array[]} patches [N][P * P], drawn pale behind the squares
 * @param {Float32Array} weights [T]: the class token, then the patches
 * @param {number} query which token attends; it gets a frame
 */
export function drawAttention(canvas, patches, weights, query) {
  const context = canvas.getContext("2d"), cols = Math.sqrt(patches.length), P = Math.sqrt(patches[0].length);
  context.clearRect(0, 0, canvas.width, canvas.height);
  weights.forEach((weight, t) => {
    const { x, y, size } = cellOf(canvas, t, cols);
    context.fillStyle = gray(0);
    context.fillRect(x, y, size, size);
    if (t) drawGray(context, patches[t - 1], P, x, y, size / P, 0.36);
    outline(context, x, y, size);
    const side = Math.sqrt(Math.min(1, weight)) * size;
    context.fillStyle = `rgba(${WINE}, 0.88)`;
    context.fillRect(x + (size - side) / 2, y + (size - side) / 2, side, side);
  });
  context.strokeStyle = CLASS_COLOR;
  context.lineWidth = 3;
  context.strokeRect(1.5, 1.5, cellOf(canvas, 0, cols).size - 3, cellOf(canvas, 0, cols).size - 3);
  const { x, y, size } = cellOf(canvas, query, cols);
  if (query) frame(context, x, y, size, size, 4);
}

export function cellOf(canvas, t, cols) {
  const size = canvas.width / cols, n = t - 1;
  return t ? { x: (n % cols) * size, y: size + MAP_GAP + Math.floor(n / cols) * size, size } : { x: 0, y: 0, size };
}

/** How many pixels a canvas for `drawAttention` needs. */
export function mapSize(cols, cell = 48) {
  return { width: cols * cell, height: (cols + 1) * cell + MAP_GAP };
}

/** A pale line around a patch, so that one without ink is seen too */
function outline(context, x, y, size) {
  Object.assign(context, { lineWidth: 1, strokeStyle: "rgba(128, 120, 105, 0.35)" });
  context.setLineDash([]);
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}

export function frame(context, x, y, width, height, line) {
  context.lineWidth = line + 3;
  context.strokeStyle = "#fff";
  context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
  context.lineWidth = line;
  context.strokeStyle = QUERY_COLOR;
  context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
}
