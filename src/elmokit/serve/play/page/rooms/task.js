import { el, math, number, replace, sub } from "../dom.js";

// Sentences that have something for the tasks to find; the reader's own are as good.
const taskExamples = {
  en: [
    { name: "Washington", a: "Washington was born in Virginia .", b: "Washington is the capital of the United States .", wa: 0, wb: 0 },
    { name: "film", a: "The film is a beautiful and moving story .", b: "The film is long , dull and not funny at all .", wa: 1, wb: 1 },
  ],
  ko: [{ name: "영화", a: "배우들의 연기가 좋고 감동적인 영화 .", b: "지루하고 시간이 아까운 영화 .", wa: 4, wb: 3 }],
};

function taskSpans(card, text) {
  const kinds = [...new Set(card.spans.map((span) => span.type))].sort();
  const pieces = [];
  for (let at = 0; at < card.tokens.length; ) {
    const span = card.spans.find(({ start }) => start === at);
    if (span) {
      const colour = { PER: 0, LOC: 1, ORG: 2, MISC: 3 }[span.type] ?? kinds.indexOf(span.type) % 4;
      pieces.push(el("span", { class: `task-span task-kind-${colour}` }, card.tokens.slice(at, span.end).join(" "), "\u00a0", el("b", { title: text.kinds[span.type] ?? null }, span.type)), " ");
      at = span.end;
    } else pieces.push(`${card.tokens[at++]} `);
  }
  return [el("p", { class: "task-sentence" }, pieces), card.spans.length ? null : el("p", { class: "quiet task-note" }, text.none)];
}

function taskBars(card, text) {
  return el(
    "div",
    { class: "task-bars" },
    card.probabilities.map(([label, probability]) =>
      el(
        "div",
        { class: label === card.label ? "task-bar task-best" : "task-bar" },
        el("span", {}, text.labels[label] ?? label),
        el("span", { class: "task-track" }, el("span", { class: "task-fill", style: { width: `${probability * 100}%` } })),
        el("span", { class: "task-number" }, number(probability)),
      ),
    ),
  );
}

function taskCard(card, text, lang) {
  const shown = { spans: taskSpans, label: taskBars }[card.kind];
  return el(
    "div",
    { class: card.elmo ? "task-card task-with" : "task-card" },
    el("h4", {}, card.name ? `${card.name}: ` : "", card.elmo ? text.withElmo : text.without),
    el("div", { lang }, shown ? shown(card, text) : el("p", { class: card.kind === "trouble" ? "trouble" : "task-text" }, card.text)),
    el(
      "p",
      { class: "quiet task-note" },
      typeof card.score === "number" ? text.score(card.metric, number(card.score, 1)) : text.noScore,
      card.mix ? ` ${text.mix(card.mix.s.map((share) => number(share)).join(", "), number(card.mix.gamma))}` : "",
    ),
  );
}

// What a reader would look for: do the two agree here, and which was better in general?
function taskVerdict([one, other], text) {
  const said = (card) => JSON.stringify(card.spans ?? card.label ?? card.text);
  const gain = other.score - one.score;
  return el("p", { class: "task-note" }, said(one) === said(other) ? text.agree : text.differ, " ", gain > 0 ? text.gain(number(gain, 1)) : text.noGain(number(-gain, 1)));
}

function taskCode(code, text) {
  const pre = el("pre", { tabindex: 0, role: "region", "aria-label": text.code, class: "task-code" }, el("code", {}, code));
  const button = el(
    "button",
    {
      type: "button",
      "data-focus": "task-copy",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(code);
          replace(button, text.copied);
        } catch {
          getSelection().selectAllChildren(pre); // where there is no clipboard, it is ready for Ctrl+C
          replace(button, text.selected);
        }
      },
    },
    text.copy,
  );
  return [el("div", { class: "task-head" }, el("h3", {}, text.code), button), pre];
}

function taskDrawn(root, answer, { text, get, set }) {
  const take = (one) => () => {
    set({ a: one.a, b: one.b, wa: one.wa, wb: one.wb });
    for (const side of ["a", "b"]) document.getElementById(`sentence-${side}`).value = one[side];
  };
  const pairs = new Map();
  for (const card of answer.tasks) {
    const key = card.pair ?? card.task;
    pairs.set(key, [...(pairs.get(key) ?? []), card]);
  }
  replace(
    root,
    el(
      "div",
      { class: "task-choices" },
      el(
        "div",
        { class: "task-choice", role: "group", "aria-label": text.which },
        ["a", "b"].map((side) =>
          el("button", { type: "button", "data-focus": `task-${side}`, "aria-pressed": side === answer.side ? "true" : "false", disabled: !get(side).trim(), onclick: () => set({ "task.side": side }) }, text[side]),
        ),
      ),
      el(
        "div",
        { class: "task-choice", role: "group", "aria-label": text.examples },
        el("span", { class: "quiet" }, text.examples),
        (taskExamples[answer.language] ?? []).map((one) => el("button", { type: "button", lang: answer.language, "data-focus": `task-example-${one.name}`, onclick: take(one) }, one.name)),
      ),
    ),
    el("p", { class: "task-reading", lang: answer.language }, get(answer.side)),
    pairs.size
      ? null
      : [el("p", {}, text.empty(answer.model)), el("pre", { tabindex: 0, role: "region", "aria-label": text.command }, `elmo serve ${answer.model} --task ner=RUN --task ner-baseline=OTHER`)],
    [...pairs].map(([key, cards]) =>
      el(
        "div",
        { class: "task-pair" },
        el("h3", {}, text.pairs[key] ?? key),
        el("div", { class: "columns" }, cards.map((card) => taskCard(card, text, answer.language))),
        cards.length === 2 && cards[0].pair ? taskVerdict(cards, text) : null,
      ),
    ),
    pairs.size && !answer.given ? el("p", { class: "quiet task-note" }, text.about) : null,
    taskCode(answer.code, text),
  );
}

export const taskRoom = {
  id: "task",
  text: {
    en: {
      title: "In a task",
      story: [
        "The task's network stays what it is: its RNN reads [x_k ; ELMo_k] where it read only its word vector x_k before, and ELMo may join the RNN's output too.",
        "Below, trained models read your sentence, without ELMo and with it at the input.",
      ],
      which: "Which sentence the tasks read",
      a: "First sentence",
      b: "Second sentence",
      examples: "Try",
      without: "without ELMo",
      withElmo: "with ELMo",
      pairs: { "ner-en": "Who, where, what? Named entities", "sentiment-en": "Does the reviewer like it? Sentiment", "sentiment-ko": "Does the reviewer like it? Sentiment", ner: "Named entities", srl: "Semantic roles", squad: "Question answering", sentiment: "Sentiment", entailment: "Entailment", coref: "Coreference", pos: "Parts of speech" },
      kinds: { PER: "person", LOC: "place", ORG: "organisation", MISC: "other name" },
      labels: {},
      none: "No entity found.",
      score: (metric, score) => `Development data: ${metric === "f1" ? "F1" : metric} ${score}.`,
      noScore: "No score beside this model.",
      mix: (s, gamma) => `Learned mix: s = ${s}; γ = ${gamma}.`,
      agree: "Here the two agree.",
      differ: "Here the two differ.",
      gain: (points) => `On the development data ELMo is ahead by ${points} points.`,
      noGain: (points) => `On the development data ELMo gains nothing here (${points} points behind).`,
      about: "Small models that come with elmokit: of each two, the same data, sizes and seed, one run each. Their word vectors are learned from the task's data alone. NER knows Wikipedia, sentiment knows film reviews. Your own: --task NAME=FOLDER.",
      empty: (model) => `The small tasks that come with elmokit read en-small or ko-small, not ${model}. Train your own with elmo task train, and give them at the start:`,
      command: "How to give tasks",
      code: "Put ELMo into your model: fifteen lines of PyTorch",
      copy: "Copy",
      copied: "Copied",
      selected: "Selected: press Ctrl+C",
    },
    ko: {
      title: "과제에서 쓰기",
      story: [
        "과제 모델은 그대로 두고, RNN이 읽던 단어 벡터 x_k 자리에 [x_k ; ELMo_k]를 넣습니다. RNN의 출력에 이어 붙일 수도 있습니다.",
        "아래에서는 학습된 모델들이 같은 문장을 ELMo 없이, 그리고 입력에 ELMo를 넣고 읽습니다.",
      ],
      which: "과제가 읽을 문장",
      a: "첫 번째 문장",
      b: "두 번째 문장",
      examples: "예문",
      without: "ELMo 없이",
      withElmo: "ELMo와 함께",
      pairs: { "ner-en": "누가, 어디서? 개체명 인식", "sentiment-en": "좋다는 평일까요? 감성 분류", "sentiment-ko": "좋다는 평일까요? 감성 분류", ner: "개체명 인식", srl: "의미역", squad: "질의응답", sentiment: "감성 분류", entailment: "함의", coref: "상호참조", pos: "품사" },
      kinds: { PER: "사람", LOC: "장소", ORG: "기관", MISC: "그 밖의 이름" },
      labels: { "very negative": "매우 부정", negative: "부정", neutral: "중립", positive: "긍정", "very positive": "매우 긍정" },
      none: "개체명이 없습니다.",
      score: (metric, score) => `개발 데이터: ${{ f1: "F1", accuracy: "정확도" }[metric] ?? metric} ${score}.`,
      noScore: "이 모델에는 점수가 함께 저장되어 있지 않습니다.",
      mix: (s, gamma) => `학습된 혼합: s = ${s}; γ = ${gamma}.`,
      agree: "이 문장에서는 두 모델의 답이 같습니다.",
      differ: "이 문장에서는 두 모델의 답이 다릅니다.",
      gain: (points) => `개발 데이터 전체에서는 ELMo 쪽이 ${points}점 앞섭니다.`,
      noGain: (points) => `개발 데이터 전체에서는 ELMo의 이득이 없습니다(${points}점 뒤짐).`,
      about: "elmokit에 들어 있는 작은 모델입니다. 두 모델은 데이터, 크기, 시드가 같고 한 번씩만 학습했습니다. 단어 벡터는 과제 데이터로만 학습했습니다. 개체명 모델은 위키백과, 감성 모델은 영화평만 압니다. 직접 학습한 모델은 --task 이름=폴더로 줍니다.",
      empty: (model) => `elmokit에 들어 있는 작은 과제 모델은 en-small이나 ko-small을 읽으며, ${model}에는 맞지 않습니다. elmo task train으로 학습한 뒤 시작할 때 주세요:`,
      command: "과제를 주는 방법",
      code: "내 모델에 ELMo 넣기: PyTorch 열다섯 줄",
      copy: "복사",
      copied: "복사했습니다",
      selected: "선택했습니다. Ctrl+C를 누르세요",
    },
  },
  equation: () => math(sub("x", "k"), "→", "[", sub("x", "k"), ";", sub("ELMo", "k"), "]"),
  state: { "task.side": "a" },
  question: (get) => {
    const asked = get("task.side") === "b" ? "b" : "a";
    const side = get(asked).trim() ? asked : asked === "a" ? "b" : "a";
    return get(side).trim() ? { a: get("a"), b: get("b"), wa: get("wa"), wb: get("wb"), side } : null;
  },
  draw: taskDrawn,
};
