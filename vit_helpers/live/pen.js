/** The drawing area: mouse, finger, pen and keyboard make strokes, and the strokes make ink. */

// The pen, as fractions of the drawing area's side: as wide as a part of the drawing, as the training digits' pens are
const THINNEST = 0.025, WIDEST = 0.08, PART = 0.105;
const STEP = 1 / 24; // how far an arrow key moves the cursor; with Shift a quarter of it
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** A digit each, as strokes of points from 0 to 100, and something that is no digit. */
export const SAMPLES = [
  "50,14 32,22 24,46 28,74 48,88 68,78 76,52 68,24 50,14", "38,30 54,13 54,13 54,88",
  "28,34 34,17 52,12 68,22 67,40 50,60 28,86 28,86 76,86", "30,22 48,12 66,20 66,36 46,47 46,47 68,55 72,74 52,89 28,80",
  "58,12 24,60 24,60 80,60|62,36 60,90", "70,14 36,14 36,14 32,46 32,46 50,40 70,50 70,74 50,89 28,80",
  "62,12 42,28 29,56 34,80 52,89 68,78 66,58 48,53 32,66", "26,15 76,15 76,15 46,89",
  "66,24 50,12 34,22 38,40 60,54 70,72 52,89 32,76 40,56 60,42 66,24",
  "68,30 52,13 34,22 33,42 50,50 68,34 68,30 66,60 60,89",
  "18,70 26,24 36,74 44,20 54,78 62,26 70,72 80,30|20,48 50,34 84,52 40,86 22,58",
].map((digit) => digit.split("|").map((stroke) => stroke.split(" ").map((point) => point.split(",").map((z) => z / 100))));

/**
 * Let people draw on a canvas.
 * @param {HTMLCanvasElement} canvas square; what is drawn on it is ink, what is transparent is paper
 * @param {HTMLElement} cursor an element over the canvas that shows where the keyboard's cursor is
 * @param {function(string): void} changed called after every change, with who made it: "hand", "sample" or "clear"
 * @param {function(string): void} announce says a sentence to readers with a screen reader
 */
export function makePen(canvas, cursor, changed, announce) {
  const context = canvas.getContext("2d", { willReadFrequently: true }), side = canvas.width;
  const spot = { x: 0.5, y: 0.5, down: false };
  let strokes = [], ghost = false, animation = 0; // ghost: the drawing is an example, which the first stroke replaces

  function paint() {
    context.clearRect(0, 0, side, side);
    Object.assign(context, { lineWidth: penWidth(strokes) * side, lineCap: "round", lineJoin: "round", strokeStyle: "#222" });
    for (const stroke of strokes) {
      context.beginPath();
      stroke.forEach(([x, y], i) => { // through the middles between points, which rounds the corners
        const [nextX, nextY] = stroke[i + 1] ?? [x, y];
        if (i === 0) context.moveTo(x * side, y * side);
        context.quadraticCurveTo(x * side, y * side, ((x + nextX) / 2) * side, ((y + nextY) / 2) * side);
      });
      const [x, y] = stroke.at(-1);
      context.lineTo(x * side + 0.01, y * side); // a click alone is a dot
      context.stroke();
    }
  }

  function update(source) {
    paint();
    changed(source);
  }

  /** Begin a stroke or make the last one longer. */
  function draw(point, isNew) {
    cancelAnimationFrame(animation);
    if (ghost) strokes = [];
    ghost = false;
    if (isNew || !strokes.length) strokes.push([]);
    strokes.at(-1).push(point);
  }

  function clear() {
    cancelAnimationFrame(animation);
    strokes = [];
    ghost = spot.down = false;
    showCursor();
    update("clear");
  }

  /** Draw ready-made strokes, at once or as if somebody were drawing them. */
  function show(ready, { example = false, slowly = false } = {}) {
    clear();
    ghost = example;
    const begin = performance.now(), points = ready.flatMap((stroke, s) => stroke.map((point) => ({ s, point })));
    const next = (now) => {
      const count = slowly ? Math.ceil(Math.min(1, (now - begin) / 700) * points.length) : points.length;
      strokes = [];
      for (const { s, point } of points.slice(0, count)) (strokes[s] ??= []).push(point);
      update("sample");
      if (count < points.length) animation = requestAnimationFrame(next);
    };
    if (slowly) animation = requestAnimationFrame(next);
    else next(begin);
  }

  /** @returns {{strokes: number[][][], ghost: boolean}} the drawing, for `load` */
  function save() {
    return structuredClone({ strokes, ghost });
  }

  /** Put a drawing back that was saved, without a word to anyone. */
  function load(saved) {
    cancelAnimationFrame(animation);
    ({ strokes, ghost } = structuredClone(saved));
    pressed = null; // a pointer that is down draws no longer
    spot.down = false;
    showCursor();
    paint();
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  let pressed = null; // the pointer that draws; a second finger does not
  canvas.addEventListener("pointerdown", (event) => {
    if (pressed !== null || event.button !== 0) return;
    pressed = event.pointerId;
    canvas.setPointerCapture(pressed);
    cursor.hidden = true;
    draw(place(event), true);
    update("hand");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerId !== pressed) return;
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const one of passed.length ? passed : [event]) draw(place(one), false);
    update("hand");
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      if (event.pointerId === pressed) pressed = null;
    });
  }

  function showCursor() {
    cursor.style.left = `${spot.x * 100}%`;
    cursor.style.top = `${spot.y * 100}%`;
    cursor.classList.toggle("down", spot.down);
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      clear();
      announce("The drawing is empty.");
    } else if (event.key === " ") {
      spot.down = !spot.down;
      if (spot.down) {
        draw([spot.x, spot.y], true);
        update("hand");
      }
      announce(`Pen ${spot.down ? "down" : "up"}, ${whereIs(spot)}.`);
    } else if (event.key in ARROWS) {
      const [right, down] = ARROWS[event.key], step = event.shiftKey ? STEP / 4 : STEP;
      spot.x = Math.min(1, Math.max(0, spot.x + right * step));
      spot.y = Math.min(1, Math.max(0, spot.y + down * step));
      if (spot.down) {
        draw([spot.x, spot.y], false);
        update("hand");
      } else announce(`Cursor ${whereIs(spot)}.`);
    } else return;
    event.preventDefault();
    event.stopPropagation();
    cursor.hidden = false;
    showCursor();
  });
  canvas.addEventListener("blur", () => {
    cursor.hidden = true;
    spot.down = false;
  });

  /** @returns {{ink: Float32Array, width: number, height: number}} the drawing, from 0 for paper to 1 for ink */
  function read() {
    const { data } = context.getImageData(0, 0, side, side), ink = new Float32Array(side * side);
    for (let i = 0; i < ink.length; i++) ink[i] = data[4 * i + 3] / 255;
    return { ink, width: side, height: side };
  }

  return { clear, show, save, load, read, isExample: () => ghost };
}

/** How wide the pen is for these strokes: a small drawing has thin lines, so that its pixels look like a large one's. */
export function penWidth(strokes) {
  const points = strokes.flat(), extents = [0, 1].map((axis) => {
    const places = points.map((point) => point[axis]);
    return Math.max(...places) - Math.min(...places);
  });
  return Math.min(WIDEST, Math.max(THINNEST, PART * Math.max(...extents)));
}

/** A place in words, in percent of the drawing area */
function whereIs({ x, y }) {
  return `${Math.round(x * 100)} percent from the left, ${Math.round(y * 100)} percent from the top`;
}
