import { el, math, replace, sub } from "../dom.js";

export const layersRoom = {
  id: "layers",
  text: { en: { title: "layers", story: [] }, ko: { title: "layers", story: [] } },
  equation: () => math(sub("x", "k")),
  state: {},
  question: (get) => ({ a: get("a"), b: get("b") }),
  draw: (root, answer) => replace(root, el("pre", {}, JSON.stringify(answer))),
};
