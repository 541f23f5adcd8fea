import { el, m, math, number, replace, row, sub, svg } from "../dom.js";

// One answer has all that the sliders need: the picture follows them at once, the address when they are let go.

const mixShown = 96; // numbers of a vector in the heat map
const mixMost = 3; // the greatest gamma
const mixParts = new WeakMap(); // what is built already, by root: a slider must not be replaced while it is dragged

const mixSum = (list) => list.reduce((all, one) => all + one, 0);
const mixDot = (one, other) => mixSum(one.map((value, i) => value * other[i]));
const mixRound = (list) => list.map((value) => Math.round(value * 1000) / 1000);

function mixShares(kept, layers) {
  const fine = kept.length === layers && kept.every((value) => value >= 0) && mixSum(kept) > 0;
  return fine ? kept.map((value) => value / mixSum(kept)) : Array(layers).fill(1 / layers);
}

// A share is moved: the others give or take in proportion.
function mixMoved(base, at, value) {
  const others = mixSum(base) - base[at];
  return base.map((one, i) => {
    if (i === at) return value;
    return others > 1e-9 ? (one * (1 - value)) / others : (1 - value) / (base.length - 1);
  });
}

const mixVector = (layers, s) => layers[0].map((_, d) => mixSum(s.map((share, j) => share * layers[j][d])));

// sum_ij s_i s_j (h_i . h'_j), from the products with i <= j.
function mixProduct(products, s) {
  let at = 0;
  let all = 0;
  for (let i = 0; i < s.length; i++) for (let j = i; j < s.length; j++) all += (i === j ? 1 : 2) * s[i] * s[j] * products[at++];
  return all;
}

function mixStrip(values, most) {
  const shown = values.slice(0, mixShown);
  return svg(
    "svg",
    { class: "mix-strip", viewBox: `0 0 ${shown.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" },
    shown.map((value, i) =>
      svg("rect", {
        x: i,
        y: 0,
        width: 1.02,
        height: 1,
        class: value < 0 ? "mix-minus" : "mix-plus",
        "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(3),
      }),
    ),
  );
}

function mixBar(label, value, kind) {
  return el(
    "div",
    { class: `mix-bar ${kind}` },
    el("span", {}, label),
    el("span", { class: "mix-track" }, el("span", { class: "mix-fill", style: { width: `${Math.max(0, Math.min(1, value)) * 100}%` } })),
    el("span", { class: "mix-number" }, number(value, 3)),
  );
}

function mixBuild(root, answer, { text, get, set }) {
  const layers = answer.vectors.a.length;
  const parts = { layers, answer, held: false, s: mixShares(get("mix.s"), layers), gamma: 1 };
  const move = (s, gamma) => {
    Object.assign(parts, { s, gamma, held: true });
    mixRefresh(parts, text);
  };
  const keep = () => {
    if (!parts.held) return;
    parts.held = false;
    set({ "mix.s": mixRound(parts.s), "mix.gamma": Math.round(parts.gamma * 1000) / 1000 });
    mixRefresh(parts, text);
  };
  const pick = (s, gamma) => () => {
    move(s, gamma);
    keep();
  };
  const slider = (name, label, most, oninput) => {
    const input = el("input", { type: "range", min: 0, max: most, step: 0.01, "aria-label": label, "data-focus": `mix-${name}`, oninput, onchange: keep });
    return { input, value: el("output", { class: "mix-number" }), line: null };
  };
  parts.sliders = Array.from({ length: layers }, (_, j) =>
    slider(`s${j}`, text.share(j), 1, (event) => {
      if (!parts.held) parts.base = parts.s;
      move(mixMoved(parts.base, j, Number(event.target.value)), parts.gamma);
    }),
  );
  parts.scale = slider("gamma", text.scale, mixMost, (event) => {
    if (!parts.held) parts.base = parts.s;
    move(parts.s, Number(event.target.value));
  });
  const line = (one, symbol, what, kind) =>
    el("div", { class: `mix-slider ${kind}` }, el("span", { class: "mix-symbol", "aria-hidden": "true" }, symbol), el("span", { class: "quiet", "aria-hidden": "true" }, what), one.input, one.value);
  const preset = (label, s, gamma) => ({ s, gamma, button: el("button", { type: "button", onclick: pick(s, gamma), "aria-pressed": "false" }, label) });
  const even = Array(layers).fill(1 / layers);
  const plain = [preset(text.even, even, 1), ...even.map((_, j) => preset(text.only(j), even.map((_, i) => (i === j ? 1 : 0)), 1))];
  const learned = answer.learned.map(({ task, s, gamma }) => preset(text.tasks[task] ?? task, s.map((value) => value / mixSum(s)), gamma));
  parts.presets = [...plain, ...learned];
  for (const name of ["cosines", "strips", "near"]) parts[name] = el("div", { class: `mix-${name}` });
  parts.equation = el("div", { class: "mix-equation", role: "region", "aria-label": text.numbers, tabindex: 0 });
  parts.node = el(
    "div",
    { class: "mix-all" },
    el("div", { class: "mix-presets", role: "group", "aria-label": text.presets }, plain.map(({ button }) => button)),
    learned.length
      ? [
          el("div", { class: "mix-presets", role: "group", "aria-label": text.learned }, el("span", { class: "quiet" }, text.learned), learned.map(({ button }) => button)),
          el("p", { class: "quiet mix-note" }, text.source),
        ]
      : null,
    el(
      "div",
      { class: "mix-sliders" },
      parts.sliders.map((one, j) => line(one, mixName("s", j), text.layer(j), `mix-layer-${j}`)),
      line(parts.scale, "γ", text.gamma, "mix-gamma"),
    ),
    parts.equation,
    el("div", { class: "columns" }, parts.cosines, parts.near),
    parts.strips,
  );
  return parts;
}

const mixName = (base, index) => el("span", {}, el("i", {}, base), el("sub", {}, String(index)));

function mixRefresh(parts, text) {
  const { answer, s, gamma, layers } = parts;
  const { words, vectors } = answer;
  parts.sliders.forEach(({ input, value }, j) => {
    if (!(parts.held && input === document.activeElement)) input.value = s[j];
    input.setAttribute("aria-valuetext", number(s[j]));
    replace(value, number(s[j]));
  });
  parts.scale.input.value = gamma;
  parts.scale.input.setAttribute("aria-valuetext", number(gamma));
  replace(parts.scale.value, number(gamma));
  for (const one of parts.presets) {
    const same = Math.abs(one.gamma - gamma) < 0.002 && one.s.every((share, j) => Math.abs(share - s[j]) < 0.002);
    one.button.setAttribute("aria-pressed", same ? "true" : "false");
  }
  const terms = s.flatMap((share, j) => [j ? "+" : null, number(share), sub("h", row("k", ",", String(j)))]).filter((one) => one !== null);
  replace(parts.equation, math(sub("ELMo", "k"), "=", number(gamma), "×", "(", ...terms, ")"));

  const mixed = {};
  for (const side of Object.keys(vectors)) mixed[side] = mixVector(vectors[side], s).map((value) => gamma * value);
  const length = (vector) => Math.sqrt(mixDot(vector, vector));
  const cosine = (one, other) => mixDot(one, other) / (length(one) * length(other) || 1);
  const bare = (side) => mixVector(vectors[side], s); // without gamma, so that gamma 0 has a cosine still
  replace(
    parts.cosines,
    el("h3", {}, text.near),
    vectors.b
      ? [
          el("p", { class: "mix-words", lang: answer.language }, el("b", { class: "mix-first" }, words.a), " · ", el("b", { class: "mix-second" }, words.b)),
          vectors.a.map((layer, j) => mixBar(text.layer(j, true), cosine(layer, vectors.b[j]), `mix-layer-${j}`)),
          mixBar("ELMo", cosine(bare("a"), bare("b")), "mix-mixed"),
        ]
      : el("p", { class: "quiet" }, text.alone),
    el("h3", {}, text.length),
    el(
      "p",
      { class: "mix-lengths" },
      Object.keys(mixed).map((side) =>
        el("span", {}, el("b", { class: side === "a" ? "mix-first" : "mix-second", lang: answer.language }, words[side]), " ", el("span", { class: "mix-number", "data-length": side }, number(length(mixed[side])))),
      ),
    ),
    el("p", { class: "quiet mix-note" }, text.why),
  );

  const own = bare("a");
  const found = answer.contexts
    .map((one) => ({ ...one, cosine: mixProduct(one.between, s) / (length(own) * Math.sqrt(mixProduct(one.own, s)) || 1) }))
    .sort((one, other) => other.cosine - one.cosine)
    .slice(0, answer.shown);
  replace(
    parts.near,
    el("h3", {}, text.contexts(words.a)),
    el(
      "ol",
      { class: "mix-found", lang: answer.language },
      found.map((one) =>
        el(
          "li",
          {},
          el("span", { class: "mix-number" }, number(one.cosine, 3)),
          el(
            "span",
            {},
            one.tokens.slice(0, one.start).join(" "),
            " ",
            el("mark", {}, one.tokens.slice(one.start, one.end).join(" ")),
            ` ${one.tokens.slice(one.end).join(" ")} `,
            el("span", { class: "mix-sense" }, one.sense),
          ),
        ),
      ),
    ),
    el("p", { class: "quiet mix-note" }, text.from(answer.of)),
  );

  const values = Object.values(vectors).flat(2).map(Math.abs).sort((one, other) => one - other);
  const most = values[Math.floor(0.98 * (values.length - 1))] || 1;
  replace(
    parts.strips,
    el("h3", {}, text.strips(Math.min(mixShown, vectors.a[0].length), vectors.a[0].length)),
    Object.keys(vectors).map((side) =>
      el(
        "div",
        { class: "mix-map", role: "img", "aria-label": text.map(words[side], layers, number(length(mixed[side]))) },
        el("b", { class: side === "a" ? "mix-first" : "mix-second", lang: answer.language }, words[side]),
        vectors[side].map((layer, j) => [el("span", { class: `mix-layer-${j}` }, mixName("h", j)), mixStrip(layer, most)]),
        el("span", { class: "mix-mixed" }, "ELMo"),
        mixStrip(mixed[side], most),
      ),
    ),
    el("p", { class: "quiet mix-note mix-key" }, el("span", { class: "mix-swatch mix-low" }), text.low, el("span", { class: "mix-swatch mix-high" }), text.high),
  );
}

export const mixRoom = {
  id: "mix",
  text: {
    en: {
      title: "The mix: one vector from all layers",
      story: [
        "A task does not have to choose one layer: it takes a weighted sum of all of them.",
        "It learns the shares s_j, which add up to 1, and the scale γ; here you set them by hand.",
      ],
      numbers: "The equation with these numbers",
      presets: "Presets",
      even: "even",
      only: (j) => `only layer ${j}`,
      learned: "as learned by",
      tasks: { ner: "NER", srl: "SRL", squad: "SQuAD", entailment: "SNLI", coref: "coreference", sentiment: "sentiment", pos: "parts of speech" },
      source: "Learned with en-small at the task's input, means of three runs (docs/results.md).",
      share: (j) => `s_${j}: share of layer ${j}`,
      scale: "gamma: scale of the whole vector",
      layer: (j, short) => (short ? `layer ${j}` : j ? `layer ${j}` : "layer 0, the word alone"),
      gamma: "scale",
      near: "How near are the two words?",
      alone: "Type a second sentence to compare.",
      length: "Length of ELMo_k",
      why: "γ makes both vectors longer or shorter. It cannot change their cosine, which ignores length.",
      contexts: (word) => `Which contexts are nearest to “${word}”?`,
      from: (count) => `Cosine of the mixes, among the marked words of the ${count} sentences that come with elmokit.`,
      strips: (shown, all) => `What the mix does to the numbers (the first ${shown} of ${all})`,
      map: (word, layers, length) => `Heat map of the vectors of ${word}: ${layers} layers, and below them ELMo, of length ${length}`,
      low: "below zero",
      high: "above zero",
    },
    ko: {
      title: "층 섞기: 모든 층에서 벡터 하나로",
      story: [
        "과제는 층 하나를 고르는 대신 모든 층의 가중합을 씁니다.",
        "합이 1인 가중치 s_j와 전체 크기를 정하는 γ는 과제와 함께 학습되며, 여기서는 직접 움직여 볼 수 있습니다.",
      ],
      numbers: "지금 값을 넣은 식",
      presets: "미리 정한 값",
      even: "똑같이",
      only: (j) => `${j}층만`,
      learned: "학습된 값",
      tasks: { ner: "개체명(NER)", srl: "의미역(SRL)", squad: "SQuAD", entailment: "SNLI", coref: "상호참조", sentiment: "감성", pos: "품사" },
      source: "en-small을 과제의 입력에 넣어 학습한 값이며, 세 번 학습한 평균입니다(docs/results.md).",
      share: (j) => `s_${j}: ${j}층의 가중치`,
      scale: "감마: 벡터 전체의 크기",
      layer: (j, short) => (short ? `${j}층` : j ? `${j}층` : "0층, 문맥 없는 단어"),
      gamma: "전체 크기",
      near: "두 단어는 얼마나 가까울까요?",
      alone: "두 번째 문장을 입력하면 비교할 수 있습니다.",
      length: "ELMo_k의 길이",
      why: "γ는 두 벡터의 길이만 바꿉니다. 코사인은 길이와 무관하므로 그대로입니다.",
      contexts: (word) => `“${word}”에 가장 가까운 문맥은?`,
      from: (count) => `elmokit에 들어 있는 문장 ${count}개의 표시된 단어와 섞은 벡터끼리 비교한 코사인입니다.`,
      strips: (shown, all) => `섞으면 값이 어떻게 바뀔까요? (${all}개 중 앞의 ${shown}개)`,
      map: (word, layers, length) => `${word}의 벡터를 색으로 나타낸 그림: 층 ${layers}개와 그 아래 ELMo, 길이 ${length}`,
      low: "음수",
      high: "양수",
    },
  },
  equation: () => math(sub("ELMo", "k"), "=", "γ", m("munder", "∑", "j"), sub("s", "j"), sub("h", row("k", ",", "j"))),
  state: { "mix.s": [1, 1, 1], "mix.gamma": 1 },
  question: (get) => (get("a").trim() && get("wa") >= 0 ? { a: get("a"), b: get("b"), wa: get("wa"), wb: get("wb") } : null),
  draw: (root, answer, tools) => {
    let parts = mixParts.get(root);
    const fits = parts && root.contains(parts.node) && parts.layers === answer.vectors.a.length;
    if (!fits) {
      parts = mixBuild(root, answer, tools);
      mixParts.set(root, parts);
      replace(root, parts.node);
    }
    parts.answer = answer;
    if (!parts.held) {
      parts.s = mixShares(tools.get("mix.s"), parts.layers);
      parts.gamma = Math.min(mixMost, Math.max(0, tools.get("mix.gamma")));
    }
    mixRefresh(parts, tools.text);
  },
};
