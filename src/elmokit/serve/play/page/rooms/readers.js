import { el, math, replace, sub } from "../dom.js";

export const readersRoom = {
  id: "readers",
  text: { en: { title: "readers", story: [] }, ko: { title: "readers", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
