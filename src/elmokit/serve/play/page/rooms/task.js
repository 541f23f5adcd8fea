import { el, math, replace, sub } from "../dom.js";

export const taskRoom = {
  id: "task",
  text: { en: { title: "task", story: [] }, ko: { title: "task", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
