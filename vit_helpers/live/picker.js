/** A photo of which a patch is picked, and maps over it: drawn by the widget and by the page's second part. A patch is [row, column]. */
import { make } from "./make.js";

/** A photo, a cell for each patch over it, and over both a frame around the chosen patch */
export function framedPhoto([rows, columns], properties = {}) {
  const cells = make("canvas", { width: columns, height: rows }), frame = make("div", { className: "vit-frame" });
  const layers = make("div", properties, make("img", { alt: "" }), cells, frame);
  layers.classList.add("vit-photo");
  return layers;
}

/** Show a picture in the layers of a photo, and put the frame around a patch. */
export function framePatch({ firstChild, lastChild }, picture, [row, column], { grid: [rows, columns], patchSize }) {
  if (firstChild.src !== picture) firstChild.src = picture;
  const sides = { left: [column, columns], top: [row, rows], width: [1, columns], height: [1, rows] };
  for (const [side, [patches, all]] of Object.entries(sides)) {
    const more = side === "left" || side === "top" ? -6 : 12; // pixels of the photo, as in `frame_patch`
    lastChild.style[side] = `${100 * (patches + more / patchSize) / all}%`;
  }
}

/**
 * Let a patch be picked: with a click, by dragging, or with the arrow keys.
 * @param {() => number[]} picked the patch from which the arrow keys move
 * @param {function} look what a mouse that only points calls, with a patch, or with null when it leaves
 */
export function letPick(layers, [rows, columns], picked, pick, look = () => {}) {
  const inside = (row, column) => [Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column))];
  const patchAt = ({ clientX, clientY }) => {
    const { left, top, width, height } = layers.getBoundingClientRect();
    return inside(Math.floor((clientY - top) / height * rows), Math.floor((clientX - left) / width * columns));
  };
  layers.onclick = (event) => pick(patchAt(event));
  layers.onpointermove = (event) => (event.buttons ? pick : look)(patchAt(event));
  layers.onpointerleave = () => look(null);
  layers.onkeydown = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = picked();
    pick(inside(row + step[0], column + step[1]));
  };
}

/** A color for each of the cells of a grid: (number, i) => [red, green, blue, alpha], from 0 to 255 */
export function drawCells(map, numbers, color) {
  const canvas = map.querySelector("canvas"), { width, height } = canvas;
  const colors = Uint8ClampedArray.from(Array.from(numbers).flatMap(color));
  canvas.getContext("2d").putImageData(new ImageData(colors, width, height), 0, 0);
}

/** The color of a number from -1 to 1.  colors: 256 of [red, green, blue] */
export function signedColor(colors) {
  return (one) => [...colors[Math.max(0, Math.min(255, Math.floor(128 * (one + 1))))], 255];
}

/** What the colors mean: a strip from the first color to the last, three ticks, and a name */
export function scaleOf(colors, ticks, name) {
  const strip = make("div", { className: "vit-strip" });
  strip.style.background = `linear-gradient(to right, ${colors})`;
  return make("div", { className: "vit-scale" }, strip,
    make("div", { className: "vit-ticks" }, ...ticks.map((tick) => make("span", {}, String(tick)))), name);
}

/** The scale of cosines, with the colors of `signedColor` */
export function cosineScale(colors) {
  return scaleOf(colors.map((color) => `rgb(${color})`), ["\u22121", 0, 1], "cosine similarity");
}
