import { el, m, math, number, replace, row } from "../dom.js";

const contextsText = {
  en: {
    title: "One word, two sentences",
    story: [
      "word2vec gives a word one vector, whatever the sentence.",
      "ELMo reads the sentence first, so the same word gets another vector in another context.",
    ],
    cosine: "Cosine of the two picked words",
    chart: (rows) => `Cosines: ${rows.join("; ")}.`,
    staticName: "word2vec, GloVe",
    staticHint: "one vector per word",
    layer: (j) => `Layer ${j}`,
    layerHint: (j) => (j === 0 ? "x_k: letters only, no context" : `LSTM layer ${j}: has read the sentence`),
    mean: "Mean of the layers",
    meanHint: "all layers, equally weighted",
    same: "Layer 0 is x_k, made from the letters alone: same spelling, same vector, cosine 1. The layers above have read the sentence, so their vectors differ.",
    identical: "Same word, same sentence: every layer gives the same vector twice.",
    differ: (one, other) => `“${one}” and “${other}” are different words: any model gives them two vectors. Layer 0 knows only their letters.`,
    usualSame: "same sense",
    usualOther: "another sense",
    usual: "For comparison, the average for a word in two bundled sentences:",
    why: "Why? Leave out one word and read again",
    whyHint: (layer) => `How far the picked word’s vector (layer ${layer}) turns without each other word: 1 − cosine. The stronger the colour, the more that word matters.`,
    sides: ["First sentence", "Second sentence"],
    most: "Matters most:",
    picked: "picked word",
    untried: "not tried",
    alone: "There is no other word to leave out.",
  },
  ko: {
    title: "한 단어, 두 문장",
    story: [
      "word2vec은 문장이 달라도 단어 하나에 벡터를 하나만 줍니다.",
      "ELMo는 문장을 읽은 뒤에 벡터를 계산하므로, 같은 단어라도 문맥이 다르면 벡터가 달라집니다.",
    ],
    cosine: "고른 두 단어의 코사인 유사도",
    chart: (rows) => `코사인 유사도: ${rows.join(", ")}.`,
    staticName: "word2vec, GloVe",
    staticHint: "단어마다 벡터 하나",
    layer: (j) => `${j}층`,
    layerHint: (j) => (j === 0 ? "x_k: 철자만 보고 문맥은 보지 않음" : `LSTM ${j}층: 문장을 읽은 뒤`),
    mean: "층 평균",
    meanHint: "모든 층을 같은 비중으로",
    same: "0층은 철자만으로 만든 x_k이므로 철자가 같으면 벡터도 같고 코사인은 1입니다. 그 위의 층은 문장을 읽었기 때문에 벡터가 서로 다릅니다.",
    identical: "같은 문장의 같은 단어이므로 모든 층에서 벡터가 똑같습니다.",
    differ: (one, other) => `‘${one}’, ‘${other}’: 서로 다른 단어이므로 어떤 모델이든 벡터가 다릅니다. 0층이 아는 것은 철자뿐입니다.`,
    usualSame: "같은 뜻",
    usualOther: "다른 뜻",
    usual: "비교 기준(내장 예문에서 한 단어가 두 문장에 쓰일 때의 평균):",
    why: "왜 그럴까요? 단어를 하나씩 빼고 다시 읽어 봅니다",
    whyHint: (layer) => `다른 단어를 하나 뺐을 때 고른 단어의 벡터(${layer}층)가 얼마나 달라지는지를 1 − 코사인으로 나타냅니다. 색이 진할수록 영향이 큰 단어입니다.`,
    sides: ["첫 번째 문장", "두 번째 문장"],
    most: "영향이 큰 단어:",
    picked: "고른 단어",
    untried: "계산하지 않음",
    alone: "뺄 수 있는 다른 단어가 없습니다.",
  },
};

// The words that were left out are asked for when typing rests: reading a sentence once per word takes longer.
const CONTEXTS_REST = 200;
let contextsTimer = 0;

const contextsPlace = (value, low) => `${(100 * (value - low)) / (1 - low)}%`;

function contextsBar({ name, hint, value, kind, usual }, low) {
  const zero = contextsPlace(0, low);
  const tick = (which) =>
    usual && el("span", { class: `contexts-tick ${which}`, style: { left: contextsPlace(Math.max(usual[which], low), low) } });
  const from = Math.min(value, 0);
  return el(
    "div",
    { class: `contexts-row ${kind}` },
    el("div", { class: "contexts-name" }, el("b", {}, name), el("span", { class: "quiet" }, hint)),
    el(
      "div",
      { class: "contexts-track" },
      el("span", {
        class: "contexts-bar",
        style: { left: contextsPlace(from, low), width: `${(100 * Math.min(Math.abs(value), 1)) / (1 - low)}%` },
      }),
      low < 0 ? el("span", { class: "contexts-zero", style: { left: zero } }) : null,
      tick("other"),
      tick("same"),
    ),
    el("div", { class: "contexts-value" }, number(value)),
  );
}

function contextsBars(answer, text) {
  const usual = (i) => (answer.same && i > 0 ? { same: answer.usual.same[i], other: answer.usual.other[i] } : null);
  const count = answer.layers.length;
  const rows = [
    ...(answer.same ? [{ name: text.staticName, hint: text.staticHint, value: 1, kind: "static" }] : []),
    ...answer.layers.map((value, j) => ({
      name: text.layer(j),
      hint: text.layerHint(j),
      value,
      kind: `layer-${Math.min(j, 2)}`,
      usual: usual(j),
    })),
    { name: text.mean, hint: text.meanHint, value: answer.mean, kind: "mean", usual: usual(count) },
  ];
  // From 0 to 1, and further down only where a cosine is negative.
  const low = Math.min(0, Math.floor(4 * Math.min(...rows.map((one) => one.value))) / 4);
  const told = rows.map((one) => {
    const value = `${one.name}: ${number(one.value)}`;
    return one.usual ? `${value} (${text.usualSame} ${number(one.usual.same)}, ${text.usualOther} ${number(one.usual.other)})` : value;
  });
  const identical = answer.layers.every((value) => value > 0.999999);
  return [
    el("h3", {}, text.cosine),
    el("div", { class: "contexts-chart", role: "img", "aria-label": text.chart(told) }, rows.map((one) => contextsBar(one, low))),
    answer.same
      ? el(
          "p",
          { class: "contexts-legend quiet" },
          text.usual,
          el("span", {}, el("span", { class: "contexts-key same", "aria-hidden": "true" }), text.usualSame),
          el("span", {}, el("span", { class: "contexts-key other", "aria-hidden": "true" }), text.usualOther),
        )
      : null,
    el("p", { class: "contexts-note" }, !answer.same ? text.differ(...answer.words) : identical ? text.identical : text.same),
  ];
}

function contextsWord(side, i, most, text) {
  const change = side.changes[i];
  if (i === side.picked)
    return el("li", { class: "picked" }, el("b", {}, side.tokens[i]), el("span", { class: "hidden" }, text.picked), el("small", { "aria-hidden": "true" }, "•"));
  if (change === null) return el("li", {}, side.tokens[i], el("span", { class: "hidden" }, text.untried), el("small", { "aria-hidden": "true" }, "–"));
  const shade = Math.round((40 * Math.max(change, 0)) / most);
  return el("li", { style: { "--shade": `${shade}%` } }, side.tokens[i], el("small", {}, number(Math.max(change, 0))));
}

// Before the answer is there, its heading and room for it: nothing below jumps when it comes.
const contextsWhyHead = (layer, text) => [el("h3", {}, text.why), el("p", { class: "contexts-note quiet" }, text.whyHint(layer))];

function contextsWhy(answer, text) {
  const all = answer.sides.flatMap((side) => side.changes).filter((change) => change !== null);
  const most = Math.max(0.05, ...all);
  return [
    contextsWhyHead(answer.layer, text),
    el(
      "div",
      { class: "columns" },
      answer.sides.map((side, s) => {
        const best = side.changes
          .map((change, i) => ({ change, word: side.tokens[i] }))
          .filter((one) => one.change !== null)
          .sort((one, other) => other.change - one.change)
          .slice(0, 3);
        return el(
          "div",
          { class: `contexts-side ${s ? "second" : "first"}` },
          el("h4", {}, text.sides[s]),
          el("ul", { class: "contexts-words", "aria-label": text.sides[s] }, side.tokens.map((_, i) => contextsWord(side, i, most, text))),
          best.length
            ? el(
                "p",
                { class: "contexts-most" },
                `${text.most} `,
                best.map(({ word, change }, i) => [i ? ", " : "", el("b", {}, word), ` ${number(Math.max(change, 0))}`]),
              )
            : el("p", { class: "quiet" }, text.alone),
        );
      }),
    ),
  ];
}

async function contextsAskWhy(box, question, text, ask) {
  let answer;
  try {
    answer = await ask("why", question);
  } catch (error) {
    return replace(box, error.message === "not-exported" ? null : el("p", { class: "trouble" }, error.message));
  }
  if (!answer) return;
  replace(box, contextsWhy(answer, text));
  box.removeAttribute("aria-busy");
}

export const contextsRoom = {
  id: "contexts",
  text: contextsText,
  equation: () => {
    const h = (sentence, place) => m("msubsup", "h", row(place, ",", "j"), row("(", sentence, ")"));
    const [one, other] = [() => h("1", "k"), () => h("2", "l")];
    const length = (vector) => row("‖", vector, "‖");
    const cosine = m("mfrac", row(one(), "·", other()), row(length(one()), length(other())));
    const space = m("mspace");
    space.setAttribute("width", "1em");
    return math("cos", "(", one(), ",", other(), ")", "=", cosine, ",", space, "j", "=", "0", ",", "1", ",", "2");
  },
  state: {},
  question(get) {
    const [a, b, wa, wb] = ["a", "b", "wa", "wb"].map(get);
    const fits = (place) => Number.isInteger(place) && place >= 0 && place < 400;
    return a.trim() && b.trim() && fits(wa) && fits(wb) ? { a, b, wa, wb } : null;
  },
  draw(root, answer, { text, get, ask }) {
    // What was found out before stays until its successor is there.
    const before = root.querySelector(".contexts-why");
    const box = before ?? el("div", { class: "contexts-why" }, contextsWhyHead(answer.layers.length - 1, text));
    const question = contextsRoom.question(get);
    replace(root, contextsBars(answer, text), box);
    clearTimeout(contextsTimer);
    if (!question) return;
    box.setAttribute("aria-busy", "true");
    contextsTimer = setTimeout(() => contextsAskWhy(box, question, text, ask), before ? CONTEXTS_REST : 0);
  },
};
