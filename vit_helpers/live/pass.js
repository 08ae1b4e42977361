/**
 * The whole forward pass as one picture: ink, patches, tokens, the heads of every block, and the answer.
 *
 * The pass flows along u, from 0 to `length`, and its tokens lie side by side along v, from 0 to `breadth`. On a wide
 * screen u runs to the right, and on a phone downward. Ribbons into a head are as wide as the attention weights of the
 * token that is looked at. Ribbons out of a head are as wide as what the head adds to this token is long.
 */
/**
 * Sizes in CSS pixels.  gaps: shares of the length that is left, for the ribbons from ink to patches, from patches to
 * tokens, from tokens to heads, from heads to tokens, and from the class token to the answer
 */
export const PASS_SIZES = {
  strip: {
    ink: 64, patches: 92, patchGap: 4, stack: 24, head: 26, bars: 78, gaps: [3, 4, 6, 3.4, 5], above: 0, classRow: 10,
    rowGap: 8, font: 11,
  },
  column: {
    ink: 40, patches: 40, patchGap: 2, stack: 10, head: 12.5, bars: 34, gaps: [1.4, 3, 4, 2, 3], above: 0, classRow: 5,
    rowGap: 3, font: 11, across: true,
  },
  room: {
    ink: 0, patches: 176, patchGap: 7, stack: 52, head: 100, bars: 220, gaps: [3, 5, 6, 4, 7], above: 74, classRow: 30,
    rowGap: 22, font: 24, pictures: true,
  },
};

/** Sizes that leave at least half of the length to the ribbons; the ink goes first, since the drawing area shows it, too */
export function fitted(size, length, { depth }) {
  const { ink, patches, stack, head, bars, font } = size;
  const fixed = patches + (depth + 1) * stack + depth * head + bars, narrow = !size.across && length < fixed * 1.75;
  const times = Math.min(1, length / 2 / (fixed + (narrow ? 0 : ink)));
  return { ...scaled(size, times), ...(narrow && { ink: 0, gaps: [0, ...size.gaps.slice(1)] }), font };
}

/** The same sizes, all of them larger or smaller */
export function scaled(size, times) {
  const grow = (value) => (typeof value === "number" ? value * times : value);
  return Object.fromEntries(Object.entries(size).map(([name, value]) => [name, grow(value)]));
}

/**
 * Where everything is.
 * @param {{length: number, breadth: number, paper: object}} room the size of the picture along u and along v; paper:
 *   {v, size}, the middle and the height of the drawing area, where that lies beside the picture
 * @param {object} size one of PASS_SIZES
 * @param {object} config of the model
 * @returns {object} ink, patches, stacks (u of each row of tokens), rows ({v, size} of each token), heads ({us, vs, size}),
 *   bars, and stages: {name, u, length} of each, in order
 */
export function layoutPass({ length, breadth, paper }, size, config) {
  const { depth, num_heads: heads, num_patches: patches, class_names: names } = config;
  const picture = size.pictures ? size.stack : 0; // beside the first numbers, the patch that they come from
  const fixed = size.ink + size.patches + picture + (depth + 1) * size.stack + depth * size.head + size.bars;
  const [toPatches, toTokens, toHeads, fromHeads, toBars] = size.gaps;
  const shares = toPatches + toTokens + depth * (toHeads + fromHeads) + toBars, share = (length - fixed) / shares;
  const row = (breadth - size.above - size.classRow - size.rowGap) / patches, first = breadth - patches * row;
  const tokens = size.ink + size.patches + (toPatches + toTokens) * share + picture;
  const perBlock = size.stack + size.head + (toHeads + fromHeads) * share;
  const stacks = Array.from({ length: depth + 1 }, (_, l) => tokens + l * perBlock);
  const room = (breadth - first) / heads, thick = Math.min(size.head, room - 2), bar = (breadth - size.above) / names.length;
  const patchesAt = size.ink + toPatches * share, across = Math.min(size.patches, breadth - first);
  const barsAt = length - size.bars, middle = (first + breadth) / 2;
  const ends = [
    ["ink", 0, size.ink], ["patches", patchesAt, patchesAt + size.patches],
    ["tokens", tokens - picture - toTokens * share * 0.75, tokens + size.stack + (size.across ? 0 : toHeads * share * 0.3)],
    ...stacks.slice(1).map((u, l) =>
      [`block ${l + 1}`, u - size.head - (fromHeads + toHeads * 0.5) * share, u + size.stack]),
    ["answer", barsAt - size.font * 0.3, length],
  ].filter(([, begin, end]) => end > begin);
  return {
    length, breadth, size, stacks, across: Boolean(size.across), row,
    ink: { u: 0, v: middle - size.ink / 2, size: size.ink }, paper: paper ?? { v: middle, size: size.ink },
    patches: {
      u: patchesAt, v: middle - across / 2, size: (across + size.patchGap) / Math.sqrt(patches), gap: size.patchGap,
    },
    pictures: picture && tokens - picture,
    rows: Array.from({ length: patches + 1 }, (_, t) => t
      ? { v: first + (t - 1) * row, size: row } : { v: size.above, size: size.classRow }),
    heads: {
      us: stacks.slice(0, -1).map((u) => u + size.stack + toHeads * share + (size.head - thick) / 2),
      vs: Array.from({ length: heads }, (_, h) => first + (h + 0.5) * room - thick / 2), size: thick,
    },
    bars: { u: barsAt, length: size.bars, vs: names.map((_, k) => size.above + k * bar), size: bar },
    stages: ends.map(([name, begin, end]) => ({ name, u: begin, length: end - begin })),
  };
}

/** Which token, patch or head lies at (u, v): {token}, {block, head}, or {} */
export function hitPass(at, { u, v }, count) {
  const inside = (begin, size, value) => value >= begin && value < begin + size;
  const l = at.heads.us.findIndex((begin) => inside(begin, at.heads.size, u));
  const head = at.heads.vs.findIndex((begin) => inside(begin, at.heads.size, v));
  if (l >= 0 && head >= 0) return { block: l, head };
  const { u: left, v: top, size } = at.patches, cols = Math.sqrt(count - 1);
  const [col, row] = [Math.floor((u - left) / size), Math.floor((v - top) / size)];
  if (!at.across && col >= 0 && col < cols && row >= 0 && row < cols) return { token: row * cols + col + 1 };
  const begins = [...at.stacks, ...(at.pictures ? [at.pictures] : [])];
  const token = at.rows.findIndex((one) => inside(one.v, one.size, v));
  return token >= 0 && begins.some((begin) => inside(begin, at.size.stack, u)) ? { token } : {};
}

/**
 * How long the vector is that each head adds to a token: the output of the head, times its part of the projection.
 * @returns {number[][]} [L][h]
 */
export function addedByHeads(seen, token, blocks) {
  return seen.v.map((heads, l) => heads.map((values, h) => {
    const weights = seen.attention[l][h][token], d = values[0].length, out = new Float64Array(d);
    for (let t = 0; t < values.length; t++) for (let i = 0; i < d; i++) out[i] += weights[t] * values[t][i];
    let sum = 0;
    for (const row of blocks[l].attn.proj.weight) {
      let added = 0;
      for (let i = 0; i < d; i++) added += row[h * d + i] * out[i];
      sum += added ** 2;
    }
    return Math.sqrt(sum);
  }));
}

/**
 * Draw the pass.
 * @param {CanvasRenderingContext2D} c
 * @param {object} at from `layoutPass`
 * @param {object} seen what `forward` in vit.js returns
 * @param {object} view {token, pointed, block, head, switches, ink: a canvas, empty, best: the digit that leads, or null,
 *   names, percent}, and what is drawn as wide as it is: {weights [L][h][T] of the token, added [L][h], probabilities [K],
 *   lens [L + 1][K]}
 * @param {object} colors of the page, by name
 */
export function drawPass(c, at, seen, view, colors) {
  const draw = { c, at, seen, view, colors, flip: at.across ? (u, v) => [v, u] : (u, v) => [u, v] };
  paintPixels(seen.patches, colors);
  c.clearRect(0, 0, ...draw.flip(at.length, at.breadth));
  if (at.ink.size) drawInk(draw);
  drawInkRibbon(draw);
  drawPatchRibbons(draw);
  drawStream(draw);
  view.weights.forEach((_, l) => drawBlockRibbons(draw, l));
  drawAnswerRibbons(draw);
  drawPatchGrid(draw);
  view.weights.forEach((_, l) => drawHeads(draw, l));
  seen.tokens.forEach((_, l) => drawStack(draw, l));
  drawAnswerBars(draw);
  if (at.size.above) drawLens(draw);
  if (!at.across) nameClassToken(draw);
}

function nameClassToken({ c, at, colors }) {
  const { v, size } = at.rows[0];
  Object.assign(c, { textAlign: "right", textBaseline: "middle", fillStyle: colors.text });
  c.font = `500 ${at.size.font}px system-ui, sans-serif`;
  c.fillText("class token", (at.pictures || at.stacks[0]) - at.size.font * 0.6, v + size / 2);
}

/** A band from one place to another: [u, v of its middle, its width] each */
function passRibbon({ c, flip }, [u0, v0, w0], [u1, v1, w1], color, alpha) {
  const half = (u0 + u1) / 2;
  c.globalAlpha = alpha;
  c.fillStyle = color;
  c.beginPath();
  c.moveTo(...flip(u0, v0 - w0 / 2));
  c.bezierCurveTo(...flip(half, v0 - w0 / 2), ...flip(half, v1 - w1 / 2), ...flip(u1, v1 - w1 / 2));
  c.lineTo(...flip(u1, v1 + w1 / 2));
  c.bezierCurveTo(...flip(half, v1 + w1 / 2), ...flip(half, v0 + w0 / 2), ...flip(u0, v0 + w0 / 2));
  c.fill();
  c.globalAlpha = 1;
}

function passBox({ c, flip }, u, v, length, width, color) {
  c.fillStyle = color;
  c.fillRect(...flip(u, v), ...flip(length, width));
}

function passRing({ c, flip }, u, v, length, width, color, line) {
  c.strokeStyle = color;
  c.lineWidth = line;
  c.setLineDash([]);
  const grow = line / 2;
  c.strokeRect(...flip(u - grow, v - grow), ...flip(length + line, width + line));
}

const lineOf = ({ at }) => (at.size.pictures ? 4 : at.across ? 1.5 : 2);
const middleOf = ({ v, size }) => v + size / 2;

/** The role's color of a token */
const roleOf = ({ colors }, t) => (t ? colors.patch : colors.class);

const pixelImage = document.createElement("canvas");

/** The pixels of all patches, one patch beside the other, at one pixel of the image a number */
function paintPixels(patches, { paperEnds: [paper, ink] }) {
  const P = Math.sqrt(patches[0].length), width = patches.length * P, image = new ImageData(width, P);
  patches.forEach((patch, n) => patch.forEach((value, i) => {
    const place = 4 * (Math.floor(i / P) * width + n * P + (i % P));
    for (let k = 0; k < 3; k++) image.data[place + k] = paper[k] + (ink[k] - paper[k]) * value;
    image.data[place + 3] = 255;
  }));
  Object.assign(pixelImage, { width, height: P });
  pixelImage.getContext("2d").putImageData(image, 0, 0);
}

/** Patch n as a square at (x, y).  strength: below 1 for a paler one */
function drawPatch(c, n, x, y, side, strength = 1) {
  const P = pixelImage.height;
  c.imageSmoothingEnabled = false;
  c.globalAlpha = strength;
  c.drawImage(pixelImage, n * P, 0, P, P, x, y, side, side);
  c.globalAlpha = 1;
  c.imageSmoothingEnabled = true;
}

function drawInk({ c, at, view, colors, flip }) {
  const { u, v, size } = at.ink, [x, y] = flip(u, v);
  passBox({ c, flip }, u, v, size, size, colors.paper);
  if (!view.empty) c.drawImage(view.ink, x, y, size, size);
  passRing({ c, flip }, u + 1, v + 1, size - 2, size - 2, colors.line, 1);
}

/** From the ink, or from where the picture begins, to the patches */
function drawInkRibbon(draw) {
  const { at, colors } = draw, { u, v, size, gap } = at.patches, wide = 4 * size - gap;
  passRibbon(draw, [at.ink.size, at.paper.v, at.paper.size], [u, v + wide / 2, wide], colors.soft, 0.14);
}

/** Place of patch n along u and v; a picture keeps its left and right, whichever way the pass flows */
function patchAt({ at }, n, cols) {
  const { u, v, size, gap } = at.patches, [right, down] = [(n % cols) * size, Math.floor(n / cols) * size];
  return at.across ? { u: u + down, v: v + right, side: size - gap } : { u: u + right, v: v + down, side: size - gap };
}

function drawPatchGrid(draw) {
  const { c, seen, view, colors, flip } = draw, cols = Math.sqrt(seen.patches.length), line = lineOf(draw);
  seen.patches.forEach((_, n) => {
    const { u, v, side } = patchAt(draw, n, cols);
    drawPatch(c, n, ...flip(u, v), side);
    passRing(draw, u + 0.5, v + 0.5, side - 1, side - 1, colors.line, 1);
    if (view.token === n + 1) passRing(draw, u, v, side, side, colors.query, line);
    if (view.pointed === n + 1) passRing(draw, u, v, side, side, colors.text, line);
  });
}

function drawPatchRibbons(draw) {
  const { at, seen, view, colors } = draw, cols = Math.sqrt(seen.patches.length);
  const end = at.pictures || at.stacks[0], begin = at.patches.u + cols * at.patches.size - at.patches.gap;
  seen.patches.forEach((_, n) => {
    const { v, side } = patchAt(draw, n, cols), part = side / cols, chosen = view.token === n + 1 || view.pointed === n + 1;
    const from = at.across ? v + (Math.floor(n / cols) + 0.5) * part : v + ((n % cols) + 0.5) * part;
    const { v: row, size } = at.rows[n + 1];
    passRibbon(draw, [begin, from, part * 0.8], [end, row + size / 2, size * 0.8], colors.patch, chosen ? 0.95 : 0.4);
  });
}

/** The residual stream: every token goes on to the next block, and what the heads find is added to it. */
function drawStream(draw) {
  const { at, view, colors } = draw;
  at.rows.forEach((row, t) => {
    const looked = t === view.token, thick = looked ? 0.62 : t ? 0.16 : 0.4, alpha = looked ? 0.9 : t ? 0.35 : 0.45;
    const place = (u) => [u, middleOf(row), Math.min(row.size, at.size.classRow) * thick];
    passRibbon(draw, place(at.stacks[0]), place(at.stacks.at(-1)), roleOf(draw, t), alpha);
  });
}

function drawBlockRibbons(draw, l) {
  const { at, view, colors } = draw, { us, vs, size } = at.heads, row = at.rows[view.token];
  const most = Math.max(...view.added.flat(), 1e-9), from = at.stacks[l] + at.size.stack;
  vs.forEach((v, h) => {
    const weights = view.weights[l][h], chosen = l === view.block && h === view.head;
    let total = 0;
    for (const weight of weights) total += weight;
    let used = v + (size - size * total) / 2; // a wrong softmax may give more than all, or less
    weights.forEach((weight, t) => {
      const wide = weight * size, key = at.rows[t], pointed = view.pointed === t;
      const alpha = isOff(view, l, h) ? 0.12 : pointed ? 0.95 : view.pointed !== null ? 0.16 : chosen ? 0.85 : 0.42;
      passRibbon(draw, [from, middleOf(key), Math.min(1, weight) * key.size], [us[l], used + wide / 2, wide], colors.attention,
        alpha);
      used += wide;
    });
    if (isOff(view, l, h)) return;
    const share = view.added[l][h] / most, to = at.stacks[l + 1];
    const into = [to, middleOf(row), Math.min(row.size, at.size.classRow) * 0.8];
    passRibbon(draw, [us[l] + size, v + size / 2, size * share], into, colors.value, chosen ? 0.85 : 0.5);
  });
}

const isOff = ({ switches }, l, h) => Boolean(switches.heads && !switches.heads[l][h]);

function drawHeads(draw, l) {
  const { c, at, seen, view, colors, flip } = draw, { us, vs, size } = at.heads, cols = Math.sqrt(seen.patches.length);
  vs.forEach((v, h) => {
    const [x, y] = flip(us[l], v), weights = view.weights[l][h], cell = size / cols;
    c.fillStyle = colors.paper;
    c.fillRect(x, y, size, size);
    seen.patches.forEach((_, n) => {
      const left = x + (n % cols) * cell, top = y + Math.floor(n / cols) * cell, weight = Math.min(1, weights[n + 1]);
      drawPatch(c, n, left, top, cell, 0.34);
      const side = Math.sqrt(weight) * cell;
      c.fillStyle = colors.wine;
      c.fillRect(left + (cell - side) / 2, top + (cell - side) / 2, side, side);
      const marked = view.pointed === n + 1 ? colors.ink : view.token === n + 1 ? colors.query : null;
      if (!marked) return;
      passRing({ c, flip: (u, w) => [u, w] }, left + 1, top + 1, cell - 2, cell - 2, marked, at.size.pictures ? 3 : 1);
    });
    if (isOff(view, l, h)) hatchHead(c, x, y, size, colors);
    const chosen = l === view.block && h === view.head, away = chosen ? (at.size.pictures ? 3 : 1) : 0; // pale on pale, at night
    passRing(draw, us[l] - away, v - away, size + 2 * away, size + 2 * away, chosen ? colors.text : colors.line,
      chosen ? lineOf(draw) : 1);
  });
}

/** Stripes over a head that is switched off */
function hatchHead(c, x, y, size, colors) {
  c.save();
  c.beginPath();
  c.rect(x, y, size, size);
  c.clip();
  c.globalAlpha = 0.8;
  c.strokeStyle = colors.soft;
  c.lineWidth = Math.max(1, size / 14);
  for (let d = -size; d < size; d += size / 4) {
    c.beginPath();
    c.moveTo(x + d, y + size);
    c.lineTo(x + d + size, y);
    c.stroke();
  }
  c.restore();
}

const rowImage = document.createElement("canvas");

/** The numbers of all tokens at one point of the stream, one stripe per number: pale for the lowest, full for the highest */
function drawStack(draw, l) {
  const { c, at, seen, view, colors, flip } = draw, tokens = seen.tokens[l], width = tokens[0].length, u = at.stacks[l];
  let sum = 0;
  for (const row of tokens) for (const number of row) sum += number * number;
  const limit = 2 * Math.sqrt(sum / tokens.length / width) + 1e-9;
  Object.assign(rowImage, at.across ? { width: tokens.length, height: width } : { width, height: tokens.length });
  const image = new ImageData(rowImage.width, rowImage.height), ends = [colors.classEnds, colors.patchEnds];
  tokens.forEach((row, t) => {
    const [low, high] = ends[t ? 1 : 0];
    for (let i = 0; i < width; i++) {
      const part = Math.max(0, Math.min(1, 0.5 + row[i] / limit / 2));
      const place = 4 * (at.across ? i * tokens.length + t : t * width + i);
      for (let k = 0; k < 3; k++) image.data[place + k] = low[k] + (high[k] - low[k]) * part;
      image.data[place + 3] = 255;
    }
  });
  rowImage.getContext("2d").putImageData(image, 0, 0);
  at.rows.forEach(({ v, size }, t) => {
    const [x, y] = flip(u, v), [w, h] = flip(at.size.stack, size - (size > 4 ? 1 : 0.5));
    const source = at.across ? [t, 0, 1, width] : [0, t, width, 1];
    c.imageSmoothingEnabled = !at.pictures; // small, several numbers share a pixel
    c.drawImage(rowImage, ...source, x, y, w, h);
    c.imageSmoothingEnabled = true;
    if (l === 0 && at.pictures) drawPicture(draw, t);
    const marked = view.pointed === t ? colors.text : view.token === t ? colors.query : null;
    const begin = l === 0 && at.pictures ? at.pictures : u;
    if (marked) passRing(draw, begin, v, u + at.size.stack - begin, size - 1, marked, lineOf(draw));
  });
}

/** The patch that a token comes from, beside its numbers; the class token has none */
function drawPicture({ c, at, colors }, t) {
  const { v, size } = at.rows[t], side = size - 1, x = at.pictures + (at.size.stack - side) / 2;
  c.fillStyle = colors.class;
  if (t) drawPatch(c, t - 1, x, v, side);
  else c.fillRect(x, v, side, side);
}

function drawAnswerRibbons(draw) {
  const { at, view, colors } = draw, begin = at.stacks.at(-1) + at.size.stack, { v, size } = at.rows[0];
  if (view.empty) return;
  let used = v;
  view.probabilities.forEach((part, k) => {
    const bar = at.bars.vs[k] + at.bars.size / 2, best = k === view.best;
    passRibbon(draw, [begin, used + (part * size) / 2, part * size], [at.bars.u, bar, part * at.bars.size * 0.7],
      colors.class, best ? 0.9 : 0.6);
    used += part * size;
  });
}

function drawAnswerBars(draw) {
  const { c, at, view, colors, flip } = draw, { u, length, vs, size } = at.bars, { font } = at.size;
  const name = at.across ? 0 : font * 1.1, percents = at.size.pictures ? font * 3 : 0, room = length - name - percents;
  Object.assign(c, { textBaseline: "middle", textAlign: "center" });
  vs.forEach((v, k) => {
    const part = view.empty ? 0 : view.probabilities[k], best = part > 0 && k === view.best;
    const thick = Math.min(size * 0.62, font * 1.2);
    const full = at.across ? room - font * 1.2 : room;
    passBox(draw, u + name, v + (size - thick) / 2, full, thick, colors.track);
    passBox(draw, u + name, v + (size - thick) / 2, full * part, thick, best ? colors.text : colors.soft);
    c.font = `${best ? 700 : 400} ${font}px system-ui, sans-serif`;
    c.fillStyle = best ? colors.text : colors.soft;
    if (at.across && best) c.fillText(view.names[k], ...flip(u + length - font * 0.5, v + size / 2));
    if (!at.across) c.fillText(view.names[k], u + name * 0.45, v + size / 2 + 1);
    if (percents && part >= 0.05) {
      c.textAlign = "right";
      c.fillText(view.percent(part), u + length, v + size / 2 + 1);
      c.textAlign = "center";
    }
  });
}

/** What the classification head would read at each point of the stream: ten columns and the highest one's digit */
function drawLens(draw) {
  const { c, at, view, colors } = draw, { font } = at.size, high = at.size.above - font - 14;
  if (view.empty) return;
  c.textAlign = "center";
  c.textBaseline = "alphabetic";
  view.lens.forEach((parts, l) => {
    const wide = font * 0.375, left = at.stacks[l] + at.size.stack / 2 - (wide * parts.length) / 2;
    const best = parts.indexOf(Math.max(...parts));
    const even = parts[best] - Math.min(...parts) < 1e-6;
    parts.forEach((part, k) => {
      const tall = Math.max(1.5, part * high);
      c.fillStyle = k === best && !even ? colors.class : colors.soft;
      c.fillRect(left + k * wide, at.size.above - 8 - tall, wide - 2, tall);
    });
    c.font = `700 ${font}px system-ui, sans-serif`;
    c.fillStyle = colors.text;
    const middle = even ? left + (wide * parts.length) / 2 : left + (best + 0.5) * wide - 1;
    if (l === 0) nameLens(draw, left);
    c.fillText(even ? "?" : view.names[best], middle, at.size.above - 14 - (even ? 4 : parts[best] * high));
  });
}

function nameLens({ c, at, colors }, left) {
  Object.assign(c, { textAlign: "right", fillStyle: colors.text });
  c.font = `500 ${at.size.font}px system-ui, sans-serif`;
  c.fillText("answer so far", left - at.size.font * 0.5, at.size.above - 8);
  c.textAlign = "center";
  c.font = `700 ${at.size.font}px system-ui, sans-serif`;
}
