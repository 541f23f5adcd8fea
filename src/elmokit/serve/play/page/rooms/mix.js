import { el, math, replace, sub } from "../dom.js";

export const mixRoom = {
  id: "mix",
  text: { en: { title: "mix", story: [] }, ko: { title: "mix", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
