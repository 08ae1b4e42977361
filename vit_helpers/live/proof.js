/** Small pictures of a stage, before and after what a step of the tour changes, for when the stage itself is off screen. */
import { drawAttention, drawGray, drawGrid, el, mapSize } from "./panels.js";
import { percent } from "./stages.js";

const CUT_SIDE = 152, CUT_GAP = 8; // of the small picture of the patches, in pixels

/**
 * at: a selector of the stage; name: what its pictures show; make(config): an empty picture;
 * fill(picture, {seen, pixels, view}, config)
 */
const STAGES = {
  answer: {
    at: "#odds", name: "Probabilities",
    make: ({ class_names: names }) => el("span", { class: "columns" },
      ...names.map((name) => el("span", {}, el("i"), el("small", {}, name)))),
    fill(picture, { seen }) {
      const most = Math.max(...seen.probabilities);
      [...picture.children].forEach((column, k) => {
        column.firstChild.style.height = `${seen.probabilities[k] * 100}%`;
        column.classList.toggle("best", seen.probabilities[k] === most);
      });
    },
  },
  pixels: {
    at: "#grid", name: "Pixels", make: () => el("canvas", { width: 128, height: 128 }),
    fill: (picture, { pixels }, { image_size: side }) => drawGrid(picture, pixels, side, false),
  },
  patches: {
    at: "#cut", name: "Patches", make: () => el("canvas", { width: CUT_SIDE, height: CUT_SIDE }),
    fill: (picture, { seen }) => drawCut(picture, seen.patches),
  },
  map: {
    at: "#scores tbody tr.best", name: "Attention of the token",
    make: ({ num_patches }) => el("canvas", mapSize(Math.sqrt(num_patches), 24)),
    fill: (picture, { seen, view: { block, head, token } }) =>
      drawAttention(picture, seen.patches, seen.attention[block][head][token], token),
  },
};

/** The patches in the order in which the model gets them, cut apart */
function drawCut(canvas, patches) {
  const context = canvas.getContext("2d"), cols = Math.sqrt(patches.length), P = Math.sqrt(patches[0].length);
  const size = (CUT_SIDE - CUT_GAP * (cols - 1)) / cols;
  context.clearRect(0, 0, CUT_SIDE, CUT_SIDE);
  patches.forEach((patch, n) => {
    drawGray(context, patch, P, (n % cols) * (size + CUT_GAP), Math.floor(n / cols) * (size + CUT_GAP), size / P);
  });
}

/**
 * @param {HTMLElement} place where the pictures go
 * @param {object} config of the model
 * @param {function(Element): {top: number, bottom: number}} free what of the window nothing lies over, for a part of the page
 */
export function makeProof(place, config, free) {
  let pairs = [];

  /** names: of the stages whose pictures a step needs */
  function begin(names = []) {
    pairs = names.map((name) => {
      const stage = STAGES[name], pictures = [0, 1].map(() => stage.make(config)), said = [0, 1].map(() => el("small"));
      for (const picture of pictures) picture.setAttribute("aria-hidden", "true"); // what is read is below it
      const figures = pictures.map((picture, i) => el("span", { class: "shot" }, picture, said[i]));
      const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, "→");
      const figure = el("figure", { class: "proof" }, el("figcaption", {}, stage.name),
        el("div", { class: "shots" }, figures[0], arrow, figures[1]));
      return { stage, pictures, said, figure };
    });
    place.replaceChildren(...pairs.map(({ figure }) => figure));
    for (const { figure } of pairs) figure.hidden = true;
  }

  /** before, now: {seen, pixels, view}; nothing is shown where they are the same, or where the stage is in sight. */
  function show(before, now) {
    const changed = now.pixels !== before.pixels || now.view.token !== before.view.token ||
      now.seen.logits.some((logit, k) => logit !== before.seen.logits[k]);
    for (const { stage, pictures, said, figure } of pairs) {
      const place = document.querySelector(stage.at);
      figure.hidden = !changed || inSight(place, free(place));
      if (figure.hidden) continue;
      [before, now].forEach((one, i) => {
        const { digit, confidence } = one.seen, name = `${i ? "now" : "before"}: ${config.class_names[digit]}, `;
        stage.fill(pictures[i], one, config);
        said[i].textContent = name + percent(confidence);
      });
    }
    return pairs.some(({ figure }) => !figure.hidden);
  }

  return { begin, show };
}

/** Whether all of an element's height is in what is free of the window, or it fills all that is free. */
export function inSight(element, { top, bottom }) {
  const box = element.getBoundingClientRect();
  return (box.top >= top - 1 && box.bottom <= bottom + 1) || (box.top <= top && box.bottom >= bottom);
}
