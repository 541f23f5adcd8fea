import { el, math, replace, sub } from "../dom.js";

export const lettersRoom = {
  id: "letters",
  text: { en: { title: "letters", story: [] }, ko: { title: "letters", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
