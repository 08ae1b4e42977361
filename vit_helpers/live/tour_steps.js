/** The steps of the guided tour, one per idea and notebook. Each asks a question that is answered on the page itself. */
import {
  praiseHeads, praiseMap, praiseReshape, praiseSamples, praiseSmall, readAs, readingOf, survives,
} from "./praise.js";
import { percent, tokenName } from "./stages.js";
import { forward } from "./vit.js";

const atMost = (numbers) => numbers.indexOf(Math.max(...numbers));
const inkOf = (patch) => patch.reduce((sum, value) => sum + value, 0);
const offHeads = ({ vit }) =>
  (vit.switches.heads ?? []).flatMap((row, l) => row.flatMap((on, h) => (on ? [] : [{ l, h }])));

/** What the model computes with some switches set differently */
export function passWith({ model, vit, state }, changes) {
  return forward(model, state.pixels, { ...vit.switches, ...changes });
}

/** What the model reads now, and what it would read with some switches set differently */
function readings(page, changes) {
  const names = page.vit.config.class_names, before = passWith(page, changes), now = page.state.seen;
  return { before: readingOf(before, names), now: readingOf(now, names), left: now.probabilities[before.digit] };
}

const readNow = ({ state, vit }) => readAs(readingOf(state.seen, vit.config.class_names));

/**
 * notebook: its name; at: a selector of what it is about; text, task: strings, or functions of the page
 * Every step begins with a digit that is read surely, nothing selected and no bug, and what it changes is put back after it.
 * start(page): what else to choose at its beginning; keeps: true if a drawing made in it stays
 * switches: those that it may change; look: selectors of what a visitor needs to see; proof: stages to show in the dock
 * choices(page): [label, whether it is right, what to say]; samples: whether to offer samples in the dock
 * check(page, memory): {done: why the answer is right}, {hint: what is still missing}, or nothing
 */
export const STEPS = [
  {
    notebook: "00_start_here", at: "#draw-title", title: "From ink to answer", keeps: true,
    look: ["#canvas", "#answer"], proof: ["answer"],
    text: "A Vision Transformer turns an image into ten probabilities, one per digit. This page shows everything that " +
      "happens in between, from top to bottom.",
    task: "Can it read your handwriting? Draw any digit so that the model is at least 90% sure.",
    check(page) {
      const { state } = page;
      if (state.source !== "hand" || !state.still || state.empty) return null;
      if (state.seen.confidence < 0.9) return { hint: `So far it reads ${readNow(page)}. Go on, or clear and try again.` };
      return { done: `It reads ${readNow(page)}. If you drew something else, you have found one of its ` +
        "mistakes, because a model can be sure and still be wrong." };
    },
  },
  {
    notebook: "01_patches", at: "#patches-figure", title: "Patches", look: ["#cut"],
    text: "The model reads the image as 16 patches. To the model, each of them is just a list of 16 numbers.",
    task: "Which patch contains the most ink? Click it, or choose its token.",
    start({ state }) {
      const inks = state.seen.patches.map(inkOf);
      return { patch: inks.indexOf(Math.min(...inks)) }; // so that the frame does not give the answer away
    },
    check({ state: { token, seen } }) {
      const inks = seen.patches.map(inkOf);
      if (!token) return null;
      if (inks[token - 1] < Math.max(...inks) - 1e-6) {
        return { hint: `The numbers of patch ${token} sum to ${inks[token - 1].toFixed(1)}. There is a patch with more.` };
      }
      return { done: `Its 16 numbers sum to ${inks[token - 1].toFixed(1)}, more than in any other patch. The model does ` +
        "not know that they form a square, or which pixels were neighbors. It has to learn all of that." };
    },
  },
  {
    notebook: "02_embeddings", at: "#bug-list", title: "Positions", switches: ["positions", "shufflePatches"],
    look: ["[data-switch=positions]", "[data-switch=shufflePatches]", "#answer"], proof: ["patches"],
    text: "The position embeddings are all that the model knows about where a patch was. Let's take them away.",
    task: "Turn on “No position embeddings” and remember the answer. Then turn on “Shuffled patches” as well. Does the " +
      "answer change now?",
    check(page) {
      const { positions, shufflePatches } = page.vit.switches, here = readNow(page);
      if (positions && shufflePatches) return { hint: `Shuffled, it reads ${here}. Now take the position embeddings away ` +
        "too." };
      if (positions) return null;
      if (!shufflePatches) return { hint: `Without positions it reads ${here}. Now shuffle the patches as well.` };
      if (readings(page, { shufflePatches: false }).before.name !== readings(page, {}).now.name) return null;
      return { done: `No, it still reads ${here}. Without position embeddings, self-attention treats the tokens as a set: ` +
        "if the patches change places, so do their tokens, and the class token gets the same weighted average. This " +
        "property is called permutation equivariance." };
    },
  },
  {
    notebook: "03_attention", at: "#head-figure", title: "Attention", look: ["#pick-token", "#query-bars"],
    proof: ["map"],
    text: "Each token distributes its attention over all tokens. The weights depend on its query, so each token attends " +
      "to something else. Some spread their weight evenly and others concentrate it.",
    task: (page) => `In head 1 of block 1, find a patch's token that puts at least ${huntFor(page)}% of its attention on ` +
      "a single token. Choose one token after another for the query.",
    check(page) {
      const { token, block, head, seen } = page.state;
      if (block || head) return { hint: "This is another head. Choose block 1 and head 1 again." };
      if (!token) return null;
      const weights = Array.from(seen.attention[0][0][token]), most = atMost(weights);
      const whom = most === token ? "itself" : tokenName(most);
      if (weights[most] * 100 < huntFor(page)) {
        return { hint: `The largest weight of token ${token} is ${percent(weights[most])}, on ${whom}. Find one that has ` +
          "a larger one." };
      }
      return { done: `Token ${token} puts ${percent(weights[most])} on ${whom}, because among all keys, that one ` +
        "fits its query best. So of all values, that of " + (most ? `token ${most}` : "the class token") +
        ` has the largest share in what this head puts out for token ${token}.` };
    },
  },
  {
    notebook: "04_encoder", at: "#block-list", title: "Heads and the residual stream", switches: ["heads"],
    look: ["[data-head='0,0']", "#answer"], proof: ["answer"],
    text: "Every head adds something to the residual stream. If a head is off, the stream simply continues without its " +
      "contribution. Click a head to switch it off, and again to switch it on.",
    task: "How many heads can you switch off before the answer changes, or before its probability falls by 20 points?",
    check(page, memory) {
      const off = offHeads(page).length;
      if (!off || page.state.empty) return null;
      const { before, now, left } = readings(page, { heads: null });
      if (!survives(before, now, left)) return { done: praiseHeads(before, now, off, memory.survived ?? 0) };
      memory.survived = off;
      return { hint: `With ${off} ${off === 1 ? "head" : "heads"} off it reads ${readAs(now)}. Switch off another one.` };
    },
  },
  {
    notebook: "05_vit", at: "#lens", title: "The whole model", look: ["#lens"],
    text: "The classification head reads the class token after the last block. The table shows what it would read earlier.",
    task: "From which point on is the final answer in the lead, and stays there?",
    choices(page) {
      const { lens, digit } = page.state.seen, leaders = lens.map((parts) => atMost(Array.from(parts)));
      const lead = leaders.findLastIndex((leader) => leader !== digit) + 1, names = page.vit.config.class_names;
      const when = (l) => (l ? `after block ${l}` : "before block 1");
      return lens.map((parts, l) => [when(l), l === lead, l === lead
        ? (l ? `Yes, from there on it is the most likely digit, with ${percent(parts[digit])} ${when(l)}. ` : "Yes, but only by " +
          "chance. ") + "Before block 1 nothing can be known yet, because the class token is then the same for every image."
        : leaders[l] !== digit ? `No, ${when(l)} the most likely digit is ${names[leaders[l]]}.`
          : `It is in the lead there, but ${l > lead ? "it was already before" : "loses it again"}.`]);
    },
  },
  {
    notebook: "06_data", at: "#draw-title", title: "Data", look: ["#canvas", "#answer"], proof: ["pixels"],
    text: "A model can be trusted only with data like its training data. That is why the page prepares your drawing " +
      "exactly as the training digits were prepared.",
    task: "Clear, and draw a digit that is smaller than a third of the drawing area. Does it reach the model smaller, too?",
    check({ state, vit }) {
      if (state.source !== "hand" || !state.still || state.empty) return null;
      const size = Math.max(state.box.bottom - state.box.top, state.box.right - state.box.left) / state.box.of;
      if (size >= 1 / 3) return { hint: `This one is ${percent(size)} as large as the drawing area. Clear, and draw a ` +
        "smaller one." };
      return { done: praiseSmall(size, readingOf(state.seen, vit.config.class_names)) };
    },
  },
  {
    notebook: "07_training", at: "#bug-untrained", title: "Training", switches: ["untrained"],
    look: ["[data-switch=untrained]", "#answer"], proof: ["answer"],
    text: "All that this model knows is in its weights, and training has put it there. Before training, the weights are " +
      "random, and those of the classification head are zero.",
    task: "What does the model answer before any training? Turn on “Untrained weights”.",
    check: ({ vit }) => vit.switches.untrained && {
      done: "Every digit gets exactly 10%, so the loss of any image (the error that training reduces) is −ln 0.1 = 2.30. " +
        "If the first loss of your own training with ten classes is far from 2.3, look for a bug before you go on.",
    },
  },
  {
    notebook: "08_inspection", at: ".block:last-child", title: "What attention maps show", switches: ["heads"],
    look: [".block:last-child .heads", "#answer"], proof: ["answer"],
    text: "A map with one large square looks like an explanation. But does the answer depend on it?",
    task: ({ vit }) => `In block ${vit.config.depth}, find the head in which the class token has the largest single ` +
      "square, and switch it off.",
    check(page) {
      const rows = page.state.seen.attention.at(-1).map((head) => Math.max(...head[0])), wanted = atMost(rows);
      const off = offHeads(page).filter(({ l }) => l === page.vit.config.depth - 1);
      if (!off.length || page.state.empty) return null;
      if (offHeads(page).length > 1) return { hint: "More than one head is off. Switch the others on again." };
      if (!off.some(({ h }) => h === wanted)) {
        return { hint: `The largest weight in this head is ${percent(rows[off[0].h])}. Another head of the block has a ` +
          "larger one." };
      }
      const { before, now, left } = readings(page, { heads: null });
      return { done: praiseMap(before, now, left, rows[wanted]) };
    },
  },
  {
    notebook: "09_pretrained", at: "#bug-bareReshape", title: "Pretrained weights", switches: ["bareReshape"],
    look: ["[data-switch=bareReshape]", "#answer"], proof: ["patches"],
    text: "Weights from a file fit into any code with the same shapes, even if the code does something else with them.",
    task: "What does the trained model read if the image is cut with a bare reshape? Turn on “A bare reshape”.",
    check(page) {
      if (!page.vit.switches.bareReshape) return null;
      const { before, now } = readings(page, { bareReshape: false });
      return { done: praiseReshape(before, now) };
    },
  },
  {
    notebook: "10_hyperparameters", at: "#block-list", title: "Is a difference real?", switches: ["heads"], samples: true,
    look: ["[data-head='0,0']", "#answer"], proof: ["answer"],
    text: "Would a smaller model do? To find out, we could leave something out and count how many digits it still reads.",
    task: "Switch off one head or several, then look at three different samples. Is the smaller model good enough?",
    check(page, memory) {
      const { state } = page;
      if (!offHeads(page).length) return null;
      const which = JSON.stringify(offHeads(page)); // another choice of heads is another model
      if (memory.which !== which) Object.assign(memory, { which, read: new Map(), whole: new Map() });
      if (state.source === "sample" && state.still && state.sample < 10) {
        memory.read.set(state.sample, state.seen.digit);
        memory.whole.set(state.sample, passWith(page, { heads: null }).digit);
      }
      const [right, whole] = [memory.read, memory.whole].map((read) => [...read].filter(([is, as]) => is === as).length);
      const images = memory.read.size;
      if (images < 3) return { hint: `Samples read: ${images} of 3, ${right} of them correctly.` };
      return { done: praiseSamples(right, whole, images) };
    },
  },
  {
    notebook: "11_scaling", at: "#head-figure", title: "What attention costs", look: ["#pick-token"],
    text: "Every head computes one weight for each pair of tokens.",
    task: ({ vit: { config: c } }) => `With ${c.num_tokens} tokens, each head has a table of ${c.num_tokens} × ` +
      `${c.num_tokens} = ${c.num_tokens ** 2} weights. How many are there for an image with ${2 * c.image_size} × ` +
      `${2 * c.image_size} pixels, cut into patches of the same size?`,
    choices({ vit: { config: c } }) {
      const now = c.num_tokens, then = 4 * c.num_patches + 1, times = (then ** 2 / now ** 2).toFixed(0);
      const number = (n) => n.toLocaleString("en-US");
      return [
        [number(2 * now ** 2), false, "That would be twice as many. But the image has four times as many patches."],
        [number(4 * now ** 2), false, "Four times as many patches is right. But every one of them attends to all of them."],
        [number(then ** 2), true, `Yes, ${then} × ${then}. Twice the side means four times the patches, and nearly ` +
          `sixteen times the weights (${times} times, because there is still only one class token).`],
      ];
    },
  },
];

/** The bar for step 3, in percent: three of the patches' tokens reach it */
function huntFor({ state }) {
  const most = state.seen.attention[0][0].slice(1).map((weights) => Math.max(...weights)).sort((a, b) => b - a);
  return Math.floor(most[2] * 100);
}
