/**
 * The parts of the live page that notebooks show: draw a digit, change queries and keys, pick a patch, explore attention.
 *
 * `mount(place, data)` builds one part in an element of a page; `data.part` says which. In a notebook, anywidget calls
 * `render` at the end. The book calls `mount` itself, without a kernel, because all numbers are computed here.
 */
import { attention, forward, makeVit } from "./vit.js";
import { EmptyInkError, reduceInk } from "./ink.js";
import { buttons, make } from "./make.js";
import { makePen } from "./pen.js";
import { attendsTo, mostSimilar, readPhoto, similarTo } from "./photo.js";
import { cosineScale, drawCells, framePatch, framedPhoto, letPick, scaleOf, signedColor } from "./picker.js";

const PARTS = { draw: showDraw, attend: showAttend, pick: showPick, explore: showExplore };
const SIDE = 280; // pixels of the canvas to draw on

/** Build the part that `data.part` names inside of `place`, an empty element. */
export function mount(place, data) {
  place.classList.add("vit-part");
  place.dataset.lmSuppressShortcuts = "true"; // in JupyterLab, keys pressed here do not move the notebook
  PARTS[data.part](place, data);
}

/** The model of a safetensors file that arrived as base64, and what it needs: {config, weights} */
function readModel(base64) {
  return makeVit(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer);
}

/** A number as the figures write it: whole numbers without a point.  digits: after the point, for all others */
function short(number, digits = 2) {
  return Math.abs(number - Math.round(number)) < 5e-4 ? String(Math.round(number) + 0) : number.toFixed(digits);
}

// Draw: a canvas, the pixels that the model gets, and its probabilities

/** data: {weights: base64, strokes: a first drawing, lists of points [x, y] from 0 to 1} */
function showDraw(place, data) {
  const model = readModel(data.weights), { image_size: size, patch_size: P, class_names: names } = model.config;
  const keys = "The arrow keys move the pen, the space bar puts it down or lifts it, Escape clears the drawing.";
  const canvas = make("canvas", { width: SIDE, height: SIDE, tabIndex: 0, role: "application", "aria-label": `Canvas. ${keys}` });
  const cursor = make("span", { className: "vit-pen", "aria-hidden": "true", hidden: true });
  const about = `The drawing as the model gets it: ${size} by ${size} pixels, in patches of ${P} by ${P}`;
  const pixels = make("canvas", { width: SIDE, height: SIDE, role: "img", className: "vit-pixels", "aria-label": about });
  const bars = make("div", { className: "vit-bars" }), said = make("p", { role: "status", className: "vit-said" });
  const pen = makePen(canvas, cursor, read, (sentence) => (said.textContent = sentence));

  function read() {
    const { ink, width, height } = pen.read();
    try {
      const small = reduceInk(ink, width, height, size), seen = forward(model, small);
      drawPixels(pixels, small, size, P);
      drawBars(bars, seen.probabilities, names);
      said.textContent = readAs(seen, names);
    } catch (error) {
      if (!(error instanceof EmptyInkError)) throw error;
      drawPixels(pixels, new Float32Array(size * size), size, P);
      drawBars(bars, names.map(() => 0), names);
      said.textContent = "Nothing drawn yet. Draw a digit with a mouse, a finger or a pen.";
    }
  }

  place.append(
    make("div", { className: "vit-row" },
      panel("Draw a digit here", make("div", { className: "vit-sheet" }, canvas, cursor),
        make("button", { type: "button", onclick: pen.clear }, "Clear")),
      panel(`What the model gets: ${size} x ${size} pixels`, pixels),
      panel("Probabilities", bars)),
    said);
  pen.show(data.strokes, { example: true });
}

/** "The model reads a 3 and gives it 98%." */
function readAs({ probabilities }, names) {
  const best = probabilities.indexOf(Math.max(...probabilities)), share = probabilities[best];
  const doubt = share < 0.5 ? "The model is not sure. Its best answer is" : "The model reads this as";
  return `${doubt} ${names[best]}, with a probability of ${Math.round(100 * share)}%.`;
}

/** A titled part of a row */
function panel(title, ...children) {
  return make("div", { className: "vit-panel" }, make("p", { className: "vit-title" }, title), ...children);
}

/** Gray pixels with the cuts between patches.  pixels: size x size numbers from 0 (paper) to 1 (ink), row by row */
function drawPixels(canvas, pixels, size, P) {
  const pen = canvas.getContext("2d"), side = canvas.width / size;
  for (let i = 0; i < size * size; i++) {
    pen.fillStyle = `rgb(${Array(3).fill(Math.round(255 * (1 - pixels[i])))})`;
    pen.fillRect((i % size) * side, Math.floor(i / size) * side, side + 1, side + 1);
  }
  pen.fillStyle = "#56B4E9"; // patches
  for (let i = P; i < size; i += P) {
    pen.fillRect(i * side - 1, 0, 2, canvas.height);
    pen.fillRect(0, i * side - 1, canvas.width, 2);
  }
}

/** A bar for each class, the longest in bold */
function drawBars(place, probabilities, names) {
  const best = Math.max(...probabilities);
  place.replaceChildren(...Array.from(probabilities, (share, i) => {
    const bar = make("span", { className: "vit-bar" });
    bar.style.width = `${100 * share}%`;
    const row = { className: share === best && best > 0 ? "vit-best" : "" };
    return make("div", row, make("span", {}, names[i]), make("span", { className: "vit-track" }, bar), make("span", {}, share.toFixed(2)));
  }));
}

// Attend: the example of notebook 03, whose queries and keys can be changed

/** data: {tokens: T names, q, k, v: (T, d) each} */
function showAttend(place, { tokens, ...start }) {
  const now = structuredClone(start), d = now.q[0].length, tables = {}, inputs = [];
  const components = Array.from({ length: d }, (_, j) => j + 1), said = make("p", { role: "status", className: "vit-said" });
  let row = 0; // the query that the sentence is about

  /** A table with a row for each token; `fill(t, j)` gives what is in a cell */
  function table(name, title, columns, fill = () => "") {
    tables[name] = tokens.map((_, t) => columns.map((_, j) => make("td", {}, fill(t, j))));
    const heads = make("tr", {}, make("td"), ...columns.map((column) => make("th", { scope: "col" }, String(column))));
    const rows = tokens.map((token, t) => make("tr", {}, make("th", { scope: "row" }, token), ...tables[name][t]));
    return make("table", { className: `vit-${name}` }, make("caption", {}, title), heads, ...rows);
  }

  /** One number of q or k: typed, changed with the arrow keys, or dragged to the left and right */
  function number(role, t, j) {
    const name = `${role === "q" ? "query" : "key"} of ${tokens[t]}, component ${j + 1}`;
    const input = make("input", { type: "number", step: 0.5, min: -9, max: 9, "aria-label": name });
    const show = () => (input.value = now[role][t][j]);
    const set = (value) => {
      now[role][t][j] = Number.isFinite(value) ? Math.min(9, Math.max(-9, value)) : 0;
      if (role === "q") row = t;
      compute();
    };
    input.oninput = () => set(input.valueAsNumber);
    input.onblur = show;
    input.onpointerdown = ({ clientX: from }) => {
      const value = now[role][t][j];
      input.onpointermove = ({ clientX, pointerId }) => {
        if (Math.abs(clientX - from) < 4) return; // a click, to type
        input.setPointerCapture(pointerId);
        set(value + Math.round((clientX - from) / 8) / 2);
        show();
      };
      input.onpointerup = input.onpointercancel = () => (input.onpointermove = null);
    };
    inputs.push(show);
    show();
    return input;
  }

  function compute() {
    const scale = scaled.checked ? Math.sqrt(d) : 1;
    const scores = now.q.map((q) => now.k.map((k) => q.reduce((sum, one, i) => sum + one * k[i], 0) / scale));
    const { weights, values } = attention(now.q, now.k, now.v, { scaling: scaled.checked });
    const write = (name, matrix, digits) => matrix.forEach((line, t) => line.forEach((one, j) => {
      tables[name][t][j].textContent = short(one, digits);
    }));
    write("scores", scores);
    write("weights", weights, 3);
    write("out", values);
    weights.forEach((line, t) => line.forEach((one, j) => {
      const color = [136, 34, 85].map((part) => Math.round(255 - 0.6 * one * (255 - part)));
      tables.weights[t][j].style.background = `rgb(${color})`;
    }));
    const shares = tokens.map((token, s) => `${weights[row][s].toFixed(3)} to ${token}`).join(", ");
    const output = Array.from(values[row], (one) => short(one)).join(", ");
    said.textContent = `The query of ${tokens[row]} gives weights of ${shares}. Its output is (${output}).`;
    place.querySelector(".vit-scores caption").textContent = `scores q kᵀ${scaled.checked ? " / √d" : ""}`;
  }

  function reset() {
    Object.assign(now, structuredClone(start));
    scaled.checked = true;
    inputs.forEach((show) => show());
    compute();
  }

  const scaled = make("input", { type: "checkbox", checked: true, onchange: compute });
  place.append(
    make("p", {}, "Drag a blue or an orange number to the left or to the right, or type another one."),
    make("div", { className: "vit-row" },
      table("q", "queries q", components, (t, j) => number("q", t, j)),
      table("k", "keys k", components, (t, j) => number("k", t, j)),
      table("scores", "", tokens),
      table("weights", "weights A (softmax)", tokens),
      table("v", "values v", components, (t, j) => short(now.v[t][j])),
      table("out", "outputs A v", components)),
    make("div", { className: "vit-tools" },
      make("label", {}, scaled, ` divide the scores by √${d}`), make("button", { type: "button", onclick: reset }, "Reset")),
    said);
  compute();
}

// Pick: what a patch of a photo is similar to, and what it attends to

/** data: as `picker_data` of picker.py describes it; a patch is (row, column), from 0 */
function showPick(place, data) {
  const { photos, grid, block, strong, colors } = data, columns = grid[1];
  const read = photos.map(readPhoto), said = make("p", { role: "status", className: "vit-said" });
  const keys = "Click a patch of the photo, or move the frame with the arrow keys.";
  const chosen = framedPhoto(grid, { tabIndex: 0, role: "application", "aria-label": `Photo. ${keys}` });
  const similar = framedPhoto(grid), attends = framedPhoto(grid, { className: "vit-veil" });
  let photo = 0, patch = data.patch;
  const images = buttons(photos.length, photos.length, (i) => [photos[i].name, make("img", { alt: "", src: photos[i].picture })],
    (i) => {
      photo = i;
      compute();
    });
  letPick(chosen, grid, () => patch, (picked) => {
    patch = picked;
    compute();
  });

  function compute() {
    const [row, column] = patch, n = row * columns + column;
    const cosines = similarTo(read[photo], n), weights = attendsTo(read[photo], n);
    drawCells(similar, cosines, signedColor(colors));
    drawCells(attends, weights, (one) => [136, 34, 85, 255 * 0.95 * Math.sqrt(Math.min(1, one / strong))]);
    for (const layers of [chosen, similar, attends]) framePatch(layers, photos[photo].picture, patch, data);
    images.mark(photo);
    said.textContent = `Patch (${row}, ${column}): after block ${block}, ${tellPatch(cosines, weights, row, column, columns)}`;
  }

  images.place.classList.add("vit-photos");
  place.append(
    make("p", { className: "vit-title" }, "Similar to is not the same as attends to"),
    make("p", {}, keys),
    images.place,
    make("div", { className: "vit-pick" },
      panel("the chosen patch", chosen),
      panel("similar to", similar, cosineScale(colors)),
      panel("attends to (one head)", attends,
        scaleOf(["rgb(136 34 85 / 0)", "rgb(136 34 85 / 0.95)"], [0, strong / 4, `\u2265 ${strong}`], "weight"))),
    said);
  compute();
}

/** What both maps of a patch say, with numbers, as in `tell_patch` of picker.py */
function tellPatch(cosines, weights, row, column, columns) {
  const like = mostSimilar(cosines, row * columns + column), most = weights.indexOf(Math.max(...weights));
  const name = (n) => `patch (${Math.floor(n / columns)}, ${n % columns})`;
  const above = weights.slice(0, row * columns).reduce((sum, one) => sum + one, 0);
  return `its token is most similar to that of ${name(like)}, with a cosine of ${cosines[like].toFixed(2)}. ` +
    `The head gives ${Math.round(100 * above)}% of its weight to the rows above, and the most to ${name(most)}.`;
}

// Explore: every head of every block, for images with a known digit

/** data: {weights: base64, images: n lists of H * W numbers from 0 to 1} */
function showExplore(place, data) {
  const model = readModel(data.weights), { image_size: size, depth, num_heads: h, class_names: names } = model.config;
  const side = size / model.config.patch_size, all = Array.from({ length: depth }, () => new Array(h).fill(true));
  const chosen = { image: 0, block: depth - 1, head: 0, query: 0 }; // query 0 is the class token, query 1 the first patch
  let seen = null;
  const said = make("p", { role: "status", className: "vit-said" }), bars = make("div", { className: "vit-bars" });

  const choose = (changes) => (Object.assign(chosen, changes), compute());
  const picture = (i) => {
    const canvas = make("canvas", { width: size, height: size });
    drawGray(canvas, data.images[i], size);
    return canvas;
  };
  const images = buttons(data.images.length, data.images.length, (i) => [`image ${i + 1}`, picture(i)], (i) => choose({ image: i }));
  const maps = buttons(depth * h, h, (i) => [headName(i), make("canvas", { width: 3 * size, height: 3 * size })],
    (i) => choose({ block: Math.floor(i / h), head: i % h }));
  const patches = buttons(side * side, side, (i) => [patchName(i), ""], (i) => choose({ query: i + 1 }));
  const classToken = make("button", { type: "button", onclick: () => choose({ query: 0 }) }, "class token");
  const on = make("input", { type: "checkbox", checked: true, onchange: () => {
    all[chosen.block][chosen.head] = on.checked;
    compute();
  } });
  const large = make("canvas", { width: 12 * size, height: 12 * size, "aria-hidden": "true" });
  const top = make("span");

  function headName(i) {
    return `block ${Math.floor(i / h) + 1}, head ${(i % h) + 1}`;
  }
  function patchName(i) {
    return `row ${Math.floor(i / side) + 1}, column ${(i % side) + 1}`;
  }

  function compute() {
    const pixels = data.images[chosen.image], { block, head, query } = chosen;
    seen = forward(model, Float32Array.from(pixels), { heads: all });
    const row = (l, n) => Array.from(seen.attention[l][n][query]).slice(1); // what the query gives to each patch
    const highest = seen.attention.map((heads, l) => Math.max(...heads.flatMap((_, n) => row(l, n))));
    maps.each((button, i) => {
      const [l, n] = [Math.floor(i / h), i % h];
      drawLook(button.firstChild, pixels, size, row(l, n), highest[l], query);
      button.classList.toggle("vit-off", !all[l][n]);
    });
    drawLook(large, pixels, size, row(block, head), highest[block], query);
    images.mark(chosen.image);
    maps.mark(block * h + head);
    patches.mark(query - 1);
    classToken.setAttribute("aria-pressed", query === 0);
    on.checked = all[block][head];
    top.textContent = `largest weight of the block: ${highest[block].toFixed(2)}`;
    drawBars(bars, seen.probabilities, names);
    const weights = row(block, head), most = weights.indexOf(Math.max(...weights));
    const who = query ? `the patch in ${patchName(query - 1)}` : "the class token";
    const off = all.flat().filter((one) => !one).length;
    said.textContent = `${capital(headName(block * h + head))}: ${who} gives ${Math.round(100 * weights[most])}% of its weight ` +
      `to the patch in ${patchName(most)}. ${readAs(seen, names)}${off ? ` Heads switched off: ${off}.` : ""}`;
  }

  images.place.classList.add("vit-images");
  maps.place.classList.add("vit-maps");
  const over = make("div", { className: "vit-over" }, large, patches.place);
  patches.place.setAttribute("aria-label", "the patch that asks");
  place.append(
    make("div", { className: "vit-row" }, panel("Image", images.place)),
    make("div", { className: "vit-row" },
      panel("Who asks? Click a patch, or", classToken, over, top),
      panel("Every head: one row for each block", maps.place, make("label", {}, on, " this head is on")),
      panel("Probabilities", bars)),
    said);
  compute();
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Gray pixels, white on black as in the notebook.  pixels: size * size numbers from 0 to 1 */
function drawGray(canvas, pixels, size) {
  const pen = canvas.getContext("2d"), side = canvas.width / size;
  for (let i = 0; i < size * size; i++) {
    pen.fillStyle = `rgb(${Array(3).fill(Math.round(255 * pixels[i]))})`;
    pen.fillRect((i % size) * side, Math.floor(i / size) * side, side, side);
  }
}

/**
 * The weights of one query as a veil over a pale image, and a frame around the patch that asks.
 * weights: one per patch; highest: the weight that is drawn darkest; query: 0 for the class token, 1 for the first patch
 */
function drawLook(canvas, pixels, size, weights, highest, query) {
  drawGray(canvas, pixels.map((one) => 0.5 + one / 2), size);
  const pen = canvas.getContext("2d"), cols = Math.sqrt(weights.length), side = canvas.width / cols;
  const corner = (n) => [(n % cols) * side, Math.floor(n / cols) * side];
  weights.forEach((weight, n) => {
    pen.fillStyle = `rgba(136, 34, 85, ${0.95 * Math.sqrt(weight / highest)})`; // the root shows small weights, too
    pen.fillRect(...corner(n), side, side);
  });
  for (const [strokeStyle, lineWidth] of query ? [["white", side / 5], ["#0072B2", side / 10]] : []) {
    Object.assign(pen, { strokeStyle, lineWidth });
    pen.strokeRect(...corner(query - 1), side, side);
  }
}

/** What anywidget calls for a cell that shows an `Explorer` */
export function render({ model, el }) {
  mount(el, model.get("data"));
}
