// Elements without HTML strings: whatever a reader types is text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const MATH = "http://www.w3.org/1998/Math/MathML";

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// el("p", {class: "quiet"}, "text", el("b", {}, "more"))
export const el = (name, attributes = {}, ...children) =>
  made(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  made(document.createElementNS(SVG, name), attributes, children);

// An equation by MathML: math("ELMo", sub("h", "k"), ...). Strings become identifiers, numbers or operators.
const piece = (value) => {
  if (typeof value !== "string") return value;
  const kind = /^[\d.]+$/.test(value) ? "mn" : /^\p{L}/u.test(value) ? "mi" : "mo";
  return made(document.createElementNS(MATH, kind), {}, [value]);
};
export const m = (name, ...children) => made(document.createElementNS(MATH, name), {}, children.map(piece));
export const row = (...children) => m("mrow", ...children);
export const sub = (base, index) => m("msub", piece(base), piece(index));
export const sup = (base, index) => m("msup", piece(base), piece(index));
export const math = (...children) => {
  const node = m("math", row(...children));
  node.setAttribute("display", "block");
  return node;
};

export const number = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}
