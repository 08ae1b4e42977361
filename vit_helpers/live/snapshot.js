/** What a visitor has drawn, chosen and switched, saved and brought back. */

const CHOSEN = ["token", "patch", "block", "head", "sample", "source"];

/**
 * @param {object} page state, vit, pen, and what it can do: pick(token), choose(block, head), readDrawing()
 * @returns {{save: function(): object, load: function(object): void}}
 */
export function makeSnapshots({ state, vit, pen, pick, choose, readDrawing }) {
  /** @returns {{drawing: object, switches: object, chosen: object}} */
  function save() {
    const chosen = Object.fromEntries(CHOSEN.map((name) => [name, state[name]]));
    return { drawing: pen.save(), switches: vit.switches, chosen };
  }

  /** Bring back what `save` returned, and read it at once. */
  function load({ drawing, switches, chosen }) {
    pen.load(drawing);
    vit.set(switches);
    pick(chosen.token);
    choose(chosen.block, chosen.head);
    Object.assign(state, chosen, { still: false });
    readDrawing();
  }

  return { save, load };
}
