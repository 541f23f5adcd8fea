import { el, m, math, number, replace, row, sub, sup, svg } from "../dom.js";

const layersText = {
  en: {
    title: "Layers",
    story: [
      "What does each layer see of a word?",
      "Layer 0 sees its letters only; layers 1 and 2 have read the sentence from both ends, so the same word moves to another place in another context.",
    ],
    plane: "All words of both sentences in two dimensions",
    planeHint: "The two directions in which the model’s vectors differ most (PCA over the bundled sentences, grey); they stay as they are while you type.",
    names: ["Layer 0: letters alone", "Layer 1: more grammar", "Layer 2: more meaning"],
    layer: (j) => `Layer ${j}`,
    first: "first sentence",
    second: "second sentence",
    bundled: "bundled sentences",
    picture: (name, a, b, joined) => `${name}, in two dimensions. First sentence, circles: ${a}. Second sentence, squares: ${b}.${joined}`,
    joined: (one, other, cosine) => ` The picked words ${one} and ${other} are joined; their cosine is ${cosine}.`,
    cosine: (cosine) => `picked words: cosine ${cosine}`,
    contexts: (word) => `Where else is a word used like “${word}”?`,
    contextsHint: { bundled: (count) => `The nearest of ${count.toLocaleString("en")} words in the bundled sentences, by cosine; one a sentence.`, index: (count) => `The nearest of ${count.toLocaleString("en")} words in the index, by cosine; one a sentence.` },
    know: "What the layers know",
    tags: "Part of speech",
    tagsHint: (data) => `A linear probe on each layer, learned from ${data}, reads the word’s part of speech from its vector alone. Below each layer: how many words of ${data} dev it gets right. ≠ marks words on which the layers disagree.`,
    right: (share) => `${share} % right`,
    noTags: "No part-of-speech probes came with this model: the bundled en-small and ko-small have them.",
    word: "word",
    disagree: "the layers disagree",
    table: (side) => `Part of speech by layer, ${side}`,
    names17: { ADJ: "adjective", ADP: "prepos.", ADV: "adverb", AUX: "auxiliary", CCONJ: "conjunct.", DET: "determ.", INTJ: "interj.", NOUN: "noun", NUM: "number", PART: "particle", PRON: "pronoun", PROPN: "name", PUNCT: "punct.", SCONJ: "subord.", SYM: "symbol", VERB: "verb", X: "other" },
    senses: "Which sense?",
    sensesHint: "Mean cosine to the bundled sentences of each sense; ▸ marks the nearer one.",
    sense: (word) => `Senses of ${word} by layer`,
    undecided: "the same vector in every sentence: undecided",
    nearer: "nearer",
    noSense: (word, known) => `No bundled senses for “${word}”. There are for ${known}, and more.`,
    form: (word) => `compared with “${word}”`,
  },
  ko: {
    title: "층",
    story: [
      "각 층은 단어에서 무엇을 볼까요?",
      "0층은 철자만 보지만 1층과 2층은 문장을 양쪽에서 읽었으므로, 문맥이 달라지면 같은 단어라도 다른 자리로 옮겨 갑니다.",
    ],
    plane: "두 문장의 모든 단어를 평면에 그리기",
    planeHint: "모델의 벡터들이 가장 크게 달라지는 두 방향입니다(회색은 딸린 예문, PCA로 계산). 문장을 고쳐도 축은 그대로입니다.",
    names: ["0층: 철자만", "1층: 문법에 가까움", "2층: 의미에 가까움"],
    layer: (j) => `${j}층`,
    first: "첫 번째 문장",
    second: "두 번째 문장",
    bundled: "딸린 예문",
    picture: (name, a, b, joined) => `${name}, 2차원. 첫 번째 문장(원): ${a}. 두 번째 문장(네모): ${b}.${joined}`,
    joined: (one, other, cosine) => ` 선으로 이은 두 단어 ${one}, ${other}의 코사인은 ${cosine}입니다.`,
    cosine: (cosine) => `고른 두 단어의 코사인 ${cosine}`,
    contexts: (word) => `‘${word}’처럼 쓰인 단어는 어디에 또 있을까?`,
    contextsHint: { bundled: (count) => `딸린 예문의 단어 ${count.toLocaleString("ko")}개 가운데 코사인이 가장 큰 것을 문장마다 하나씩 골랐습니다.`, index: (count) => `색인의 단어 ${count.toLocaleString("ko")}개 가운데 코사인이 가장 큰 것을 문장마다 하나씩 골랐습니다.` },
    know: "층은 무엇을 알고 있나",
    tags: "품사",
    tagsHint: (data) => `층마다 ${data}로 학습한 선형 프로브가 벡터만 보고 품사를 맞힙니다. 층 이름 아래는 ${data} dev에서의 정확도이고, ≠는 층마다 답이 다른 단어입니다.`,
    right: (share) => `정확도 ${share}%`,
    noTags: "이 모델에는 품사 프로브가 없습니다. 함께 제공되는 en-small과 ko-small에는 있습니다.",
    word: "단어",
    disagree: "층마다 답이 다름",
    table: (side) => `층별 품사, ${side}`,
    names17: { ADJ: "형용사", ADP: "부치사", ADV: "부사어", AUX: "보조용언", CCONJ: "대등 연결", DET: "관형사", INTJ: "감탄사", NOUN: "명사", NUM: "수사", PART: "불변화사", PRON: "대명사", PROPN: "고유명사", PUNCT: "문장부호", SCONJ: "종속 연결", SYM: "기호", VERB: "동사", X: "기타" },
    senses: "어떤 뜻인가?",
    sensesHint: "뜻별로 딸린 예문과의 평균 코사인입니다. ▸는 더 가까운 뜻입니다.",
    sense: (word) => `층별 ${word}의 뜻`,
    undecided: "어느 문장에서나 같은 벡터라서 구별할 수 없음",
    nearer: "더 가까움",
    noSense: (word, known) => `‘${word}’의 뜻을 가른 예문은 없습니다. ${known} 등에 있습니다.`,
    form: (word) => `‘${word}’ 예문과 비교`,
  },
};

const layersWide = 320;
const layersTall = 270;
const layersEdge = 16;

// Roughly how wide a label is: Korean and the like take twice as much as Latin letters.
const layersWidth = (text) => [...text].reduce((sum, one) => sum + (one > "\u2e7f" ? 12.5 : 7.2), 0);

// Labels where nothing is yet: the picked words' first, then in order; one that finds no room is left out.
function layersPlaced(points) {
  const taken = points.map(({ x, y, picked }) => { const r = picked ? 8 : 4; return [x - r, y - r, x + r, y + r]; });
  const order = [...points].sort((one, other) => Number(other.picked) - Number(one.picked));
  for (const point of order) {
    const text = point.text.length > 14 ? `${point.text.slice(0, 13)}…` : point.text;
    const wide = layersWidth(text) * (point.picked ? 1.25 : 1);
    const { x, y } = point;
    const off = point.picked ? 10 : 7;
    const centred = Math.max(1, Math.min(x - wide / 2, layersWide - 1 - wide));
    const places = [[x + off, y + 4], [x - off - wide, y + 4], [centred, y - off - 2], [centred, y + off + 11], [x + 6, y - 6], [x - 6 - wide, y - 6], [x + 6, y + 14], [x - 6 - wide, y + 14]];
    const box = ([left, base]) => [left, base - 11, left + wide, base + 3];
    const inside = ([left, top, right, bottom]) => left >= 1 && right <= layersWide - 1 && top >= 1 && bottom <= layersTall - 1;
    const apart = (one, other) => one[0] >= other[2] || one[2] <= other[0] || one[1] >= other[3] || one[3] <= other[1];
    const free = (one) => inside(one) && taken.every((other) => apart(one, other));
    // A picked word is always named: farther off, if need be, and over a point that is not.
    const farther = point.picked ? [[centred, y - off - 16], [centred, y + off + 25]] : [];
    const among = (one) => inside(one) && taken.every((other, i) => (i < points.length && !points[i].picked) || apart(one, other));
    const place = places.find((one) => free(box(one))) ?? (point.picked ? [...places, ...farther].find((one) => among(box(one))) ?? places.find((one) => inside(box(one))) : null);
    if (!place) continue;
    taken.push(box(place));
    point.label = { text, x: place[0], y: place[1] };
  }
  return points;
}

function layersPanel(answer, j, text) {
  const { plane, tokens, picked } = answer;
  const scale = (values, axis) => {
    const [low, high] = plane.ranges[j][axis];
    const size = axis === 0 ? layersWide : layersTall;
    const share = Math.min(1, Math.max(0, (values[axis] - low) / (high - low || 1)));
    return layersEdge + (axis === 0 ? share : 1 - share) * (size - 2 * layersEdge);
  };
  const spot = (values) => ({ x: scale(values, 0), y: scale(values, 1) });
  const side = (name) => tokens[name].map((word, i) => ({ ...spot(plane[name][j][i]), text: word, side: name, picked: i === picked[name] }));
  const points = [...side("a"), ...side("b")];
  const chosen = points.filter((point) => point.picked);
  // A word that is there twice in one place is drawn and named once.
  const places = new Set();
  const distinct = points.filter((point) => {
    const key = `${point.side} ${point.text} ${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
    return point.picked || (!places.has(key) && places.add(key));
  });
  layersPlaced(distinct);
  const name = text.names[j] ?? text.layer(j);
  const list = (which) => tokens[which].map((word, i) => `${word} (${plane[which][j][i].map((value) => number(value, 1)).join(", ")})`).join(", ") || "–";
  const joined = chosen.length < 2 ? "" : text.joined(chosen[0].text, chosen[1].text, number(answer.cosine[j]));
  return el(
    "figure",
    { class: "layers-panel" },
    el("figcaption", { class: `layers-name layers-name-${j % 3}` }, name, chosen.length < 2 ? null : el("span", { class: "quiet" }, text.cosine(number(answer.cosine[j])))),
    svg(
      "svg",
      { viewBox: `0 0 ${layersWide} ${layersTall}`, width: layersWide, height: layersTall, role: "img", "aria-label": text.picture(name, list("a"), list("b"), joined) },
      plane.background[j].map((values) => svg("circle", { class: "layers-back", cx: scale(values, 0).toFixed(1), cy: scale(values, 1).toFixed(1), r: 1.8 })),
      chosen.length === 2 ? svg("line", { class: "layers-join", x1: chosen[0].x, y1: chosen[0].y, x2: chosen[1].x, y2: chosen[1].y }) : null,
      distinct.map((point) => {
        const r = point.picked ? 6 : 3.6;
        const kind = `layers-${point.side}${point.picked ? " layers-picked" : ""}`;
        const title = svg("title", {}, point.text);
        return point.side === "a"
          ? svg("circle", { class: kind, cx: point.x, cy: point.y, r }, title)
          : svg("rect", { class: kind, x: point.x - r * 0.88, y: point.y - r * 0.88, width: 1.76 * r, height: 1.76 * r }, title);
      }),
      distinct.map((point) => (point.label ? svg("text", { class: `layers-label layers-label-${point.side}${point.picked ? " layers-chosen" : ""}`, x: point.label.x, y: point.label.y }, point.label.text) : null)),
    ),
  );
}

const layersKey = (text) =>
  el(
    "p",
    { class: "layers-key quiet" },
    el("span", {}, svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("circle", { class: "layers-a", cx: 7, cy: 7, r: 5 })), text.first),
    el("span", {}, svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("rect", { class: "layers-b", x: 2.5, y: 2.5, width: 9, height: 9 })), text.second),
    el("span", {}, svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("circle", { class: "layers-back", cx: 7, cy: 7, r: 2.5 })), text.bundled),
  );

function layersContexts(answer, text) {
  const { contexts, tokens, picked } = answer;
  if (!contexts.layers.length) return null;
  return [
    el("h3", {}, text.contexts(tokens.a[picked.a])),
    el("p", { class: "quiet layers-small" }, text.contextsHint[contexts.of](contexts.compared)),
    el(
      "div",
      { class: "columns" },
      contexts.layers.map(({ layer, contexts: found }) =>
        el(
          "div",
          {},
          el("h4", { class: `layers-name layers-name-${layer % 3}` }, text.layer(layer)),
          el(
            "ol",
            { class: "layers-contexts" },
            found.map((one) => el("li", {}, el("span", { class: "layers-number" }, number(one.cosine, 3)), el("span", {}, `${one.tokens.slice(0, one.place).join(" ")} `, el("b", {}, one.word), ` ${one.tokens.slice(one.place + 1).join(" ")}`))),
          ),
        ),
      ),
    ),
  ];
}

function layersTags(answer, text) {
  const { tags, tokens, picked } = answer;
  if (!tags) return [el("h4", {}, text.tags), el("p", { class: "quiet" }, text.noTags)];
  const share = (p) => `${Math.round(100 * p)} %`;
  const table = (side) => {
    if (!tokens[side].length) return null;
    const label = text.table(side === "a" ? text.first : text.second);
    const rows = tags[side].map((layers, i) => {
      const differ = layers.some((one) => one.tag !== layers[0].tag);
      return el(
        "tr",
        { class: `${differ ? "layers-differ" : ""}${i === picked[side] ? " layers-own" : ""}` },
        el("th", { scope: "row" }, tokens[side][i], differ ? [el("span", { class: "layers-unlike", "aria-hidden": "true" }, " ≠"), el("span", { class: "hidden" }, ` (${text.disagree})`)] : null),
        layers.map((one) => el("td", { title: one.tag }, text.names17[one.tag] ?? one.tag, " ", el("span", { class: "quiet" }, share(one.p)))),
      );
    });
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
      el(
        "table",
        { class: `layers-tags layers-of-${side}` },
        el("caption", { class: "hidden" }, label),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, text.word), tags.accuracy.map((one, j) => el("th", { scope: "col" }, el("span", { class: `layers-name-${j % 3}` }, text.layer(j)), el("span", { class: "layers-right quiet" }, text.right((100 * one).toFixed(0))))))),
        el("tbody", {}, rows),
      ),
    );
  };
  return [
    el("h4", {}, text.tags),
    el("p", { class: "quiet layers-small" }, text.tagsHint(tags.data)),
    el("div", { class: "layers-tables" }, table("a"), table("b")),
  ];
}

function layersSenses(answer, text) {
  const { senses, tokens, picked } = answer;
  const known = answer.sense_words.slice(0, 6).join(", ");
  const card = (side) => {
    const word = tokens[side][picked[side]];
    if (word === undefined) return null;
    const found = senses[side];
    const heading = el("h5", { class: `layers-of-${side}` }, word, found && found.word !== word ? el("span", { class: "quiet" }, ` ${text.form(found.word)}`) : null);
    if (!found) return el("div", {}, heading, el("p", { class: "quiet" }, text.noSense(word, known)));
    const cell = (layer, sense) =>
      el("td", { class: layer.sense === sense ? "layers-nearer" : null }, layer.sense === sense ? [el("span", { "aria-hidden": "true" }, "▸ "), el("span", { class: "hidden" }, `${text.nearer}: `)] : null, number(layer.cosine[sense], 3));
    return el(
      "div",
      {},
      heading,
      el(
        "table",
        { class: "layers-senses" },
        el("caption", { class: "hidden" }, text.sense(word)),
        el("thead", {}, el("tr", {}, el("td", {}), found.glosses.map((gloss, i) => el("th", { scope: "col", title: found.examples[i] }, gloss)))),
        el(
          "tbody",
          {},
          found.layers.map((layer, j) =>
            el("tr", {}, el("th", { scope: "row", class: `layers-name-${j % 3}` }, text.layer(j)), layer.sense === null ? el("td", { colspan: 2, class: "quiet" }, `${number(layer.cosine[0], 3)}: ${text.undecided}`) : [cell(layer, 0), cell(layer, 1)]),
          ),
        ),
      ),
    );
  };
  return [el("h4", {}, text.senses), el("p", { class: "quiet layers-small" }, text.sensesHint), el("div", { class: "columns" }, card("a"), card("b"))];
}

export const layersRoom = {
  id: "layers",
  text: layersText,
  equation: () => {
    const h = (base, j) => sub(base, row("k", ",", j));
    return [
      math(h("h", "0"), "=", "[", sub("x", "k"), ";", sub("x", "k"), "]"),
      math(h("h", "j"), "=", "[", h(m("mover", "h", "→"), "j"), ";", h(m("mover", "h", "←"), "j"), "]"),
      math(h("p", "j"), "=", sup(sub("U", "j"), "⊤"), "(", h("h", "j"), "−", sub("μ", "j"), ")"),
    ];
  },
  state: {},
  question: (get) => {
    const wa = get("wa");
    const wb = get("wb");
    if (!get("a").trim() || !Number.isInteger(wa) || wa < 0) return null;
    return { a: get("a"), b: get("b"), wa, wb: get("b").trim() && Number.isInteger(wb) ? Math.max(-1, wb) : -1 };
  },
  draw: (root, answer, { text }) =>
    replace(
      root,
      el("h3", {}, text.plane),
      el("p", { class: "quiet layers-small" }, text.planeHint),
      layersKey(text),
      el("div", { class: "columns layers-panels" }, answer.plane.ranges.map((_, j) => layersPanel(answer, j, text))),
      layersContexts(answer, text),
      el("h3", {}, text.know),
      layersTags(answer, text),
      layersSenses(answer, text),
    ),
};
