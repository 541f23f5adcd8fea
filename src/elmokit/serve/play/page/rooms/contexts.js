import { el, math, replace, sub } from "../dom.js";

export const contextsRoom = {
  id: "contexts",
  text: { en: { title: "contexts", story: [] }, ko: { title: "contexts", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
