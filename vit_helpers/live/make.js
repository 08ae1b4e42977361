/** Elements of a page, made by the widgets and by the live page. */

/** An element: make("td", {className: "key"}, "text", child). Names with a dash become attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/**
 * Buttons in a grid, one of them chosen. Tab leads to the chosen one, and the arrow keys move between them.
 * @param {(i: number) => [string, Node | string]} make_one: the name and the content of button i
 * @returns {{place: Element, each: function, mark: function}}
 */
export function buttons(count, columns, makeOne, onChoose) {
  const all = Array.from({ length: count }, (_, i) => {
    const [name, content] = makeOne(i);
    return make("button", { type: "button", "aria-label": name, title: name, onclick: () => onChoose(i) }, content);
  });
  const place = make("div", { className: "vit-grid", role: "group" }, ...all);
  place.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
  place.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const next = all[all.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.click();
  };
  const mark = (chosen) => all.forEach((button, i) => {
    button.setAttribute("aria-pressed", i === chosen);
    button.tabIndex = i === Math.max(chosen, 0) ? 0 : -1;
  });
  return { place, mark, each: (work) => all.forEach(work) };
}
