import { el, m, math, number, replace, row, sub } from "../dom.js";

const readersText = {
  en: {
    title: "Two readers",
    story: [
      "ELMo learned by guessing words: one language model reads forward and guesses the next, another reads backward and guesses the one before.",
      "A reader of both sides would see the word that it has to guess; so neither sees the other side, and ELMo puts their two vectors side by side.",
    ],
    none: "This model came without its softmax, the part that predicts words (published ELMo files leave it out). Start the page with a model that has one, for example elmo play en-small, to see its two readers.",
    side: "Which sentence",
    sides: { a: "First sentence", b: "Second sentence" },
    pick: "How surprised is each reader? Click a word to hide it.",
    legend: "Surprise in bits is −log₂ p(word): 1 bit is a coin toss, 10 bits one chance in 1,024. The stronger the colour, the less expected.",
    forward: "forward",
    backward: "backward",
    bits: "bits",
    hidden: (word) => `“${word}” is hidden. What would each reader put there?`,
    heads: { forward: "Forward sees only the left", backward: "Backward sees only the right", both: "Both together" },
    covered: (count) => (count === 1 ? "(1 word covered)" : `(${count} words covered)`),
    gap: "the gap",
    nothing: "Nothing to see but the edge of the sentence.",
    edges: ["start", "end"],
    truth: (word) => `probability of “${word}”: `,
    came: "the word that was there",
    howBoth: "Both: the two probabilities multiplied, then divided by how frequent the word is anyway.",
    unknown: "* Outside the vocabulary. Its probability is that of all such words together, so it looks less surprising than it is.",
    table: "Word by word: what each reader expected",
    columns: { expects: "expected", bits: "bits · p" },
    word: "word",
    sum: (forward, backward, both) => `The sum above, for this sentence, with log₂: ${forward} forward and ${backward} backward, ${both} together. Training makes it as large as possible.`,
  },
  ko: {
    title: "두 명의 독자",
    story: [
      "ELMo는 앞에서부터 읽으며 다음 단어를 맞히는 언어 모델과, 뒤에서부터 읽으며 앞 단어를 맞히는 언어 모델로 학습됩니다.",
      "양쪽을 한꺼번에 읽으면 맞혀야 할 단어가 보이므로 어느 쪽도 반대편을 보지 않으며, ELMo는 두 벡터를 나란히 이어 붙여 씁니다.",
    ],
    none: "이 모델에는 단어를 예측하는 softmax가 없습니다(공개된 ELMo 파일에는 들어 있지 않습니다). softmax가 있는 모델로 열면 두 독자를 볼 수 있습니다. 예: elmo play ko-small",
    side: "문장 선택",
    sides: { a: "첫 번째 문장", b: "두 번째 문장" },
    pick: "각 독자는 얼마나 놀랐을까요? 단어를 누르면 가려집니다.",
    legend: "놀라움은 비트로 나타낸 −log₂ p(단어)입니다. 1비트는 동전 던지기, 10비트는 1,024분의 1의 확률입니다. 색이 진할수록 예상하지 못한 단어입니다.",
    forward: "순방향",
    backward: "역방향",
    bits: "비트",
    hidden: (word) => `‘${word}’ 자리를 가렸습니다. 각 독자는 무엇으로 채울까요?`,
    heads: { forward: "순방향은 왼쪽만 봅니다", backward: "역방향은 오른쪽만 봅니다", both: "둘을 합치면" },
    covered: (count) => `(단어 ${count}개 가려짐)`,
    gap: "빈칸",
    nothing: "문장의 경계 말고는 보이는 것이 없습니다.",
    edges: ["시작", "끝"],
    truth: (word) => `실제 단어 ‘${word}’의 확률: `,
    came: "실제 단어",
    howBoth: "둘을 합칠 때는 두 확률을 곱한 뒤, 그 단어가 원래 얼마나 자주 나오는지로 나눕니다.",
    unknown: "* 어휘에 없는 단어입니다. 어휘 밖 단어 전체의 확률이므로 실제보다 덜 놀라워 보입니다.",
    table: "단어별로 각 독자가 예상한 것",
    columns: { expects: "예상", bits: "비트 · p" },
    word: "단어",
    sum: (forward, backward, both) => `위의 합을 이 문장에서 log₂로 계산하면 순방향 ${forward}, 역방향 ${backward}, 합쳐서 ${both}입니다. 학습은 이 값을 최대한 크게 만드는 과정입니다.`,
  },
};

const readersPercent = (p) => (p >= 0.0995 ? `${number(100 * p, 0)}%` : p >= 0.00095 ? `${number(100 * p, 1)}%` : "<0.1%");
const readersShade = (bits) => `${Math.round(45 * Math.min(Math.max(bits, 0) / 16, 1))}%`;
const readersName = (word) => (word.unknown ? `${word.text}*` : word.text);
const readersSide = (get) => (get("readers.side") === "b" ? "b" : "a");

// A place clicked here holds until another word is picked above: [place, the picked word's place at that time].
function readersAt(get, count) {
  const [at, since] = get("readers.at");
  const picked = get(`w${readersSide(get)}`);
  const fits = (place) => Number.isInteger(place) && place >= 0 && place < count;
  if (fits(at) && (since === undefined || since === picked)) return at;
  return fits(picked) ? picked : 0;
}

function readersTiles(words, at, text, choose) {
  const arrow = (sign) => el("span", { "aria-hidden": "true" }, sign);
  const told = (words) => el("span", { class: "hidden" }, words);
  const bits = (word, by) => [told(`${text[by]} `), number(word[by].bits, 1), told(` ${text.bits} `)];
  const shade = (word, by) => ({ class: `readers-bits ${by}`, style: { "--shade": readersShade(word[by].bits) } });
  return el(
    "div",
    { class: "readers-tiles", role: "group", "aria-label": text.pick },
    words.map((word, i) =>
      el(
        "button",
        { type: "button", class: "readers-tile", "data-focus": `word-${i}`, "aria-pressed": i === at ? "true" : "false", onclick: () => choose(i) },
        el("span", shade(word, "forward"), arrow("→ "), bits(word, "forward")),
        el("span", { class: "readers-word" }, readersName(word), " "),
        el("span", shade(word, "backward"), bits(word, "backward"), arrow(" ←")),
      ),
    ),
  );
}

// The sentence as a reader has it: what it cannot see is a block of the word's width, no text at all.
function readersView(words, at, by, text) {
  const seen = (i) => (by === "both" ? i !== at : by === "forward" ? i < at : i > at);
  const wide = (word) => [...word].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x1100 ? 1.8 : 1), 0);
  const covered = words.filter((_, i) => i !== at && !seen(i)).length;
  const note = covered ? el("span", { class: "hidden" }, ` ${text.covered(covered)} `) : null;
  const pieces = words.map((word, i) => {
    if (i === at) return el("span", { class: "readers-gap" }, el("span", { "aria-hidden": "true" }, "?"), el("span", { class: "hidden" }, ` ${text.gap} `));
    if (seen(i)) return el("span", {}, word.text);
    return el("span", { class: "readers-covered", "aria-hidden": "true", style: { width: `${Math.min(wide(word.text), 12)}ch` } });
  });
  const edge = (name) => el("span", { class: "readers-edge" }, name);
  return el(
    "p",
    { class: "readers-view" },
    by === "backward" ? note : edge(text.edges[0]),
    pieces.flatMap((piece) => [piece, " "]),
    by === "forward" ? note : edge(text.edges[1]),
  );
}

function readersCard(words, at, by, text) {
  const word = words[at];
  const { expects, p } = word[by];
  const arrow = { forward: "→", backward: "←", both: "→ ←" }[by];
  return el(
    "div",
    { class: `readers-card ${by}` },
    el("h4", {}, el("span", { "aria-hidden": "true" }, `${arrow} `), text.heads[by]),
    readersView(words, at, by, text),
    el(
      "ol",
      { class: "readers-fill" },
      expects.map((one) =>
        el(
          "li",
          { class: one.word === word.text ? "came" : null },
          el("span", { class: "readers-bar", style: { width: `${100 * one.p}%` }, "aria-hidden": "true" }),
          el("span", { class: "readers-filled" }, one.word, one.word === word.text ? [el("span", { "aria-hidden": "true" }, " ✓"), el("span", { class: "hidden" }, ` (${text.came})`)] : null),
          el("span", { class: "readers-p" }, readersPercent(one.p)),
        ),
      ),
    ),
    el("p", { class: "readers-truth" }, text.truth(readersName(word)), el("b", {}, p === null ? "–" : readersPercent(p))),
  );
}

function readersTable(words, at, text) {
  const half = (word, by) => {
    const expects = el("td", { class: "readers-expects" }, word[by].expects.slice(0, 3).map((one) => el("span", {}, one.word, " ", el("small", { class: "quiet" }, readersPercent(one.p)), " ")));
    const chip = el("span", { class: `readers-bits ${by}`, style: { "--shade": readersShade(word[by].bits) } }, number(word[by].bits, 1));
    const bits = el("td", { class: "readers-number" }, chip, " ", el("small", { class: "quiet" }, readersPercent(word[by].p)));
    return by === "forward" ? [expects, bits] : [bits, expects];
  };
  const { expects, bits } = text.columns;
  const head = (name, kind) => el("th", { scope: "col", class: kind }, name);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": text.table, "data-focus": "table" },
    el(
      "table",
      { class: "readers-table" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "colgroup", colspan: 2, class: "forward" }, `→ ${text.forward}`),
          el("td", {}),
          el("th", { scope: "colgroup", colspan: 2, class: "backward" }, `${text.backward} ←`),
        ),
        el("tr", {}, head(expects, "readers-expects"), head(bits, "readers-number"), head(text.word, "readers-middle"), head(bits, "readers-number"), head(expects, "readers-expects")),
      ),
      el(
        "tbody",
        {},
        words.map((word, i) => el("tr", { class: i === at ? "at" : null }, half(word, "forward"), el("th", { scope: "row", class: "readers-middle" }, el("span", {}, readersName(word))), half(word, "backward"))),
      ),
    ),
  );
}

export const readersRoom = {
  id: "readers",
  text: readersText,
  equation: () => {
    const t = (index) => sub("t", index);
    const thin = () => {
      const space = m("mspace");
      space.setAttribute("width", "0.2em");
      return space;
    };
    const given = (from, to) => row("log", thin(), "p", "(", t("k"), "|", from, ",", "…", ",", to, ")");
    const sum = m("munderover", "∑", row("k", "=", "1"), "N");
    return math(sum, "(", given(t("1"), t(row("k", "−", "1"))), "+", given(t(row("k", "+", "1")), t("N")), ")");
  },
  state: { "readers.side": "a", "readers.at": [-1] },
  question(get) {
    const side = readersSide(get);
    return get(side).trim() ? { a: get("a"), b: get("b"), side } : null;
  },
  draw(root, answer, tools) {
    const { text, get, set } = tools;
    const side = readersSide(get);
    const switches = el(
      "div",
      { class: "readers-sides", role: "group", "aria-label": text.side },
      ["a", "b"].map((one) =>
        el(
          "button",
          { type: "button", "data-focus": `side-${one}`, "aria-pressed": one === side ? "true" : "false", onclick: () => set({ "readers.side": one, "readers.at": [-1] }) },
          text.sides[one],
        ),
      ),
    );
    if (!answer.predicts) return replace(root, el("p", { class: "readers-none" }, text.none));
    const { words } = answer;
    const at = readersAt(get, words.length);
    // All words' expectations are here already: the picture need not wait for the server to say them again.
    const choose = (i) => {
      set({ "readers.at": [i, get(`w${side}`)] });
      readersRoom.draw(root, answer, tools);
      root.querySelector(`[data-focus="word-${i}"]`)?.focus();
    };
    const scroll = root.querySelector(".scroll")?.scrollLeft ?? 0;
    const [forward, backward] = [-answer.bits.forward, -answer.bits.backward];
    replace(
      root,
      switches,
      el("h3", {}, text.pick),
      readersTiles(words, at, text, choose),
      el("p", { class: "quiet readers-legend" }, text.legend),
      words.some((word) => word.unknown) ? el("p", { class: "quiet readers-legend" }, text.unknown) : null,
      el("h3", {}, text.hidden(words[at].text)),
      el("div", { class: "readers-cards" }, ["forward", "backward", "both"].map((by) => readersCard(words, at, by, text))),
      el("p", { class: "quiet readers-legend" }, text.howBoth),
      el("h3", {}, text.table),
      readersTable(words, at, text),
      el("p", {}, text.sum(number(forward, 1), number(backward, 1), number(forward + backward, 1))),
    );
    root.querySelector(".scroll").scrollLeft = scroll;
  },
};
