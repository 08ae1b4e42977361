/** One selection everywhere: what is selected or pointed at in one part of the page is marked in all others, too. */
import { cellOf, frame, patchPlace } from "./panels.js";
import { PATCH_GAP } from "./stages.js";

const part = (id) => document.getElementById(id);

/**
 * Let the pointer mark a token over the pixels and the maps of the heads; the score table does so itself.
 * @param {object} config of the model
 * @param {object} does point(token or null), pick(token), seen(): the latest forward pass, switches()
 */
export function makeMarks({ num_tokens: count, image_size: side, patch_size: P }, { point, pick, seen, switches }) {
  const over = (element, tokenOf) => {
    element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(tokenOf(event)));
    element.addEventListener("pointerleave", () => point(null));
  };
  const pixelAt = (event) => {
    const box = part("grid").getBoundingClientRect();
    const at = (z) => Math.max(0, Math.min(side - 1, Math.floor(z * side)));
    return [at((event.clientX - box.left) / box.width), at((event.clientY - box.top) / box.height)];
  };
  const tokenAt = (event) => {
    const [x, y] = pixelAt(event);
    return Array.from({ length: count - 1 }, (_, n) => n + 1).find((t) => {
      const { left, top, width, height } = regionOf(t, seen(), switches(), side, P);
      return x >= left && x < left + width && y >= top && y < top + height;
    }) ?? null;
  };
  over(part("grid"), tokenAt);
  part("grid").addEventListener("click", (event) => pick(tokenAt(event)));
  document.querySelectorAll(".head").forEach((button) => over(button, (event) => {
    const map = button.querySelector("canvas"), box = map.getBoundingClientRect(), scale = map.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const found = Array.from({ length: count }, (_, t) => t).find((t) => {
      const cell = cellOf(map, t, Math.sqrt(count - 1));
      return x >= cell.x && x < cell.x + cell.size && y >= cell.y && y < cell.y + cell.size;
    });
    return found ?? null;
  }));
}

/** Which pixels of the image the patch of token t was cut from */
export function regionOf(t, { order }, { bareReshape }, side, P) {
  const n = order[t - 1];
  if (bareReshape) return { left: 0, top: n * P * P / side, width: side, height: P * P / side };
  return { left: (n % (side / P)) * P, top: Math.floor(n / (side / P)) * P, width: P, height: P };
}

/** Mark the token that is looked at, the one that is pointed at, and the chosen head. Everything else has been drawn. */
export function showMarks(seen, view, { image_size: side, patch_size: P }) {
  const { token, pointed, block, head, switches } = view, cols = side / P;
  const context = part("grid").getContext("2d"), cell = part("grid").width / side;
  const around = (t, draw) => {
    const { left, top, width, height } = regionOf(t, seen, switches, side, P);
    draw(context, left * cell, top * cell, width * cell, height * cell, 4);
  };
  if (token) around(token, frame);
  if (pointed) around(pointed, dashes);
  if (pointed) {
    const { x, y, size } = patchPlace(part("cut"), pointed - 1, cols, PATCH_GAP);
    dashes(part("cut").getContext("2d"), x, y, size, size, 4);
  }
  [...part("token-list").children].forEach((button, t) => button.classList.toggle("pointed", t === pointed));
  [...part("scores").tBodies[0].rows].forEach((row, t) => row.classList.toggle("pointed", t === pointed));
  document.querySelectorAll(".head").forEach((button) => {
    const map = button.querySelector("canvas");
    button.classList.toggle("chosen", button.dataset.head === `${block},${head}`);
    if (pointed === null) return;
    const { x, y, size } = cellOf(map, pointed, cols);
    dashes(map.getContext("2d"), x, y, size, size, 4);
  });
}

/** A dashed frame in black and white, which is seen on ink and on paper */
function dashes(context, x, y, width, height, line) {
  context.save();
  context.lineWidth = line;
  for (const [color, pattern] of [["#fff", []], ["#222", [line * 1.5, line]]]) {
    context.strokeStyle = color;
    context.setLineDash(pattern);
    context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
  }
  context.restore();
}
