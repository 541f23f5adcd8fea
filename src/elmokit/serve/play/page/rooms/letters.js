import { el, m, math, number, replace, row, sub, svg } from "../dom.js";

const lettersText = {
  en: {
    title: "From letters to x_k",
    story: [
      "How does the model read a word that it has never seen?",
      "It spells it: small filters slide over the letters and each keeps its best match, a highway layer and a projection turn the matches into one vector x_k, and no context is read yet.",
    ],
    sides: { a: "First sentence", b: "Second sentence" },
    side: "Which word to take apart",
    misspell: "Misspell it",
    empty: "Empty: a slip of the page’s choice.",
    slips: { doubled: "one letter twice", missing: "one letter missing", swapped: "two letters swapped", vowel: "another vowel", consonant: "another consonant", typed: "your spelling" },
    moved: "How far does x_k move?",
    movedHint: `Cosine between the word’s x_k and that of another spelling; beside it, words that have nothing to do with it. 1 is the same vector. The longer the word, the less one letter matters.`,
    random: "random word",
    average: (words) => `average of ${words.toLocaleString("en")} words`,
    show: (word) => `Show ${word} below`,
    ids: { bytes: "Its bytes (UTF-8) between BOW and EOW, begin and end of word, are the numbers that go in.", jamo: "Its Korean letters between BOW and EOW, begin and end of word, are the numbers that go in; what is not Korean goes in as bytes.", lexicon: "Its characters, by their numbers in the model’s own list, are what goes in." },
    cut: (room) => `Longer than ${room} ids: the rest is not read.`,
    filters: (firing, of) => `${firing} of ${of} filters fire. The strongest, each under the letters that it covers:`,
    filter: (one, letters) => `filter ${one.number}, ${one.width} wide, on ${letters}: ${number(one.value)}`,
    picture: (word, ids, filters) => `${word} as ids: ${ids}. Strongest filters: ${filters}.`,
    none: "No filter fires.",
    gate: (i, share) => `Highway layer ${i}: ${share} % new, ${100 - share} % carried on as it was.`,
    gates: "How open the gates are, from all carried on (left) to all new (right)",
    histogram: (counts) => `Gates from closed to open, in ten steps: ${counts.join(", ")}.`,
    carried: "carried",
    fresh: "new",
    nearest: "Nearest words by x_k",
    vector: (width) => `x_k, ${width} numbers`,
    vectorHint: "Upper half, blue: above zero; lower half, orange: below; the darker, the farther. The last strip is the difference.",
    strip: (word, low, high) => `x_k of ${word}: from ${low} to ${high}.`,
    difference: "difference",
  },
  ko: {
    title: "철자에서 x_k까지",
    story: [
      "모델은 처음 보는 단어를 어떻게 읽을까요?",
      "철자 위로 작은 필터를 밀어 필터마다 가장 강한 반응만 남기고, 하이웨이 층과 투영을 거쳐 벡터 x_k 하나로 만들며, 문맥은 아직 읽지 않습니다.",
    ],
    sides: { a: "첫 번째 문장", b: "두 번째 문장" },
    side: "살펴볼 단어",
    misspell: "철자를 틀려 보기",
    empty: "비워 두면 페이지가 고른 오타를 씁니다.",
    slips: { doubled: "글자 하나를 두 번", missing: "글자 하나를 빠뜨림", swapped: "두 글자를 바꿈", vowel: "모음을 잘못 씀", consonant: "자음을 잘못 씀", typed: "직접 입력" },
    moved: "x_k는 얼마나 움직이나?",
    movedHint: `원래 단어의 x_k와 다르게 쓴 단어의 x_k 사이의 코사인입니다. 비교를 위해 관계없는 단어도 함께 보입니다. 1이면 같은 벡터입니다. 단어가 길수록 글자 하나의 영향이 작습니다.`,
    random: "무작위 단어",
    average: (words) => `단어 ${words.toLocaleString("ko")}개의 평균`,
    show: (word) => `아래에서 ${word} 보기`,
    ids: { bytes: "단어의 시작(BOW)과 끝(EOW) 사이에 UTF-8 바이트가 그대로 입력됩니다.", jamo: "단어의 시작(BOW)과 끝(EOW) 사이에 한글 자모의 번호가 입력됩니다. 한글이 아닌 글자는 바이트로 입력됩니다.", lexicon: "모델이 가진 글자 목록의 번호가 입력됩니다." },
    cut: (room) => `id ${room}개를 넘는 부분은 읽지 않습니다.`,
    filters: (firing, of) => `필터 ${of}개 가운데 ${firing}개가 반응합니다. 가장 강한 필터를 그 필터가 걸친 글자 아래에 값과 함께 표시했습니다.`,
    filter: (one, letters) => `필터 ${one.number}, 너비 ${one.width}, ${letters}: ${number(one.value)}`,
    picture: (word, ids, filters) => `${word}의 id: ${ids}. 가장 강한 필터: ${filters}.`,
    none: "반응하는 필터가 없습니다.",
    gate: (i, share) => `하이웨이 ${i}층: ${share}%는 새 값으로 바꾸고 ${100 - share}%는 그대로 통과시킵니다.`,
    gates: "게이트가 열린 정도: 왼쪽은 그대로 통과, 오른쪽은 모두 새 값",
    histogram: (counts) => `닫힌 게이트부터 열린 게이트까지 열 구간의 개수: ${counts.join(", ")}.`,
    carried: "그대로",
    fresh: "새 값",
    nearest: "x_k가 가장 가까운 단어",
    vector: (width) => `x_k: 숫자 ${width}개`,
    vectorHint: "위쪽 파란색은 양수, 아래쪽 주황색은 음수이며 진할수록 0에서 멉니다. 마지막 줄은 두 벡터의 차이입니다.",
    strip: (word, low, high) => `${word}의 x_k: ${low}부터 ${high}까지.`,
    difference: "차이",
  },
};

const lettersLeast = 36; // pixels of a column
const lettersRowHeight = 26;

// The word's characters and ids in columns, and below them the windows of the filters that fire most.
function lettersGrid(word, text) {
  const end = Math.min(word.room, Math.max(word.ids.length, ...word.filters.map((one) => one.start + one.width)));
  const column = word.ids.length > 12 ? lettersLeast : 40;
  const jamo = word.groups.some((group) => group.end - group.start > 1) && word.letters.slice(1, -1).some((letter) => letter);
  const [first, second] = jamo ? [24, 46] : [24, 24];
  const top = second + 30;
  const height = top + word.filters.length * lettersRowHeight + 4;
  const at = (i) => 1 + i * column;
  const mark = (group) => group.text === "BOW" || group.text === "EOW";
  const shown = (i) => word.letters[i] || word.groups.find((group) => group.start <= i && i < group.end)?.text || (i < word.ids.length ? String(word.ids[i]) : "PAD");
  const windows = word.filters.map((one) => text.filter(one, Array.from({ length: one.width }, (_, i) => shown(one.start + i)).join(" ")));
  const pads = Array.from({ length: end - word.ids.length }, (_, i) => word.ids.length + i);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": word.text },
    svg(
      "svg",
      { class: "letters-grid", width: end * column + 2, height, viewBox: `0 0 ${end * column + 2} ${height}`, role: "img", "aria-label": text.picture(word.text, word.ids.join(" "), windows.join("; ") || text.none) },
      word.groups.map((group) => [
        svg("rect", { class: mark(group) ? "letters-mark" : "letters-cell", x: at(group.start) + 1, y: 2, width: (group.end - group.start) * column - 2, height: second + 22, rx: 5 }),
        svg("text", { class: mark(group) ? "letters-special" : "letters-letter", x: at((group.start + group.end) / 2), y: first - 2, "text-anchor": "middle" }, group.text),
      ]),
      jamo
        ? word.letters.map((letter, i) => (letter && !["BOW", "EOW"].includes(letter) ? svg("text", { class: "letters-jamo", x: at(i + 0.5), y: second - 2, "text-anchor": "middle" }, letter) : null))
        : null,
      word.ids.map((id, i) => svg("text", { class: "letters-id", x: at(i + 0.5), y: second + 17, "text-anchor": "middle" }, String(id))),
      pads.map((i) => svg("text", { class: "letters-id", x: at(i + 0.5), y: second + 17, "text-anchor": "middle" }, "PAD")),
      word.filters.map((one, i) => {
        const y = top + i * lettersRowHeight;
        const wide = Math.min(one.width, end - one.start) * column - 4;
        const strength = one.value / word.filters[0].value;
        return [
          svg("rect", { class: "letters-window", x: at(one.start) + 2, y, width: wide, height: lettersRowHeight - 6, rx: 5 }, svg("title", {}, windows[i])),
          svg("rect", { class: "letters-value", x: at(one.start) + 2, y: y + lettersRowHeight - 9, width: Math.max(2, wide * strength), height: 3, rx: 1.5 }),
          svg("text", { class: "letters-number", x: at(one.start) + 2 + wide / 2, y: y + 13, "text-anchor": "middle" }, number(one.value)),
        ];
      }),
    ),
  );
}

function lettersGate(gate, i, text) {
  const share = Math.round(100 * gate.new);
  const most = Math.max(...gate.histogram, 1);
  return el(
    "div",
    { class: "letters-gate" },
    el("p", {}, text.gate(i + 1, share)),
    svg(
      "svg",
      { viewBox: "0 0 200 46", width: 200, height: 46, role: "img", "aria-label": `${text.gates}. ${text.histogram(gate.histogram)}` },
      gate.histogram.map((count, bin) => {
        const tall = (28 * count) / most;
        return svg("rect", { class: "letters-bin", x: bin * 20 + 1, y: 30 - tall, width: 18, height: tall, rx: 2, "fill-opacity": number(0.35 + 0.065 * bin) }, svg("title", {}, String(count)));
      }),
      svg("line", { class: "letters-axis", x1: 0, x2: 200, y1: 30.5, y2: 30.5 }),
      svg("text", { class: "letters-end", x: 1, y: 43 }, text.carried),
      svg("text", { class: "letters-end", x: 199, y: 43, "text-anchor": "end" }, text.fresh),
    ),
  );
}

const lettersNear = (word, text) => [
  el("h4", {}, text.nearest),
  el("ul", { class: "letters-near" }, word.nearest.map((one) => el("li", {}, one.word, " ", el("span", { class: "quiet" }, number(one.cosine))))),
];

const lettersColumn = (word, text, side) =>
  el(
    "div",
    { class: `letters-word letters-${side}` },
    el("h3", {}, word.text),
    el("p", { class: "quiet letters-small" }, word.filters.length ? text.filters(word.firing, word.of) : text.none),
    lettersGrid(word, text),
    word.whole ? null : el("p", { class: "quiet letters-small" }, text.cut(word.room)),
    word.gates.map((gate, i) => lettersGate(gate, i, text)),
    lettersNear(word, text),
  );

// Other spellings and unrelated words, by their cosines to the word.
function lettersMoved(answer, text, set) {
  const { word, other, slips, by_chance: chance } = answer;
  const line = (name, hint, cosine, kind, pick) =>
    el(
      "li",
      { class: `letters-line letters-${kind}` },
      el("span", { class: "letters-name" }, !name ? null : pick ? el("button", { type: "button", "aria-pressed": name === other.text ? "true" : "false", "aria-label": text.show(name), "data-focus": `slip ${hint}`, onclick: pick }, name) : el("b", {}, name), el("span", { class: "quiet" }, hint)),
      el("span", { class: "letters-track", "aria-hidden": "true" }, el("span", { class: "letters-bar", style: { width: `${100 * Math.max(0, cosine)}%` } })),
      el("span", { class: "letters-cosine" }, number(cosine)),
    );
  const typed = other.typed && !slips.some((slip) => slip.word === other.text);
  return [
    el("h3", {}, text.moved),
    el("p", { class: "quiet letters-small" }, text.movedHint),
    el(
      "ul",
      { class: "letters-lines" },
      typed ? line(other.text, text.slips.typed, answer.cosine, "slip") : null,
      slips.map((slip) => line(slip.word, text.slips[slip.kind], slip.cosine, "slip", () => set({ "letters.spelling": slip.word, "letters.of": word.text }))),
      chance.random.map((one) => line(one.word, text.random, one.cosine, "chance")),
      line("", text.average(chance.words), chance.mean, "chance"),
    ),
  ];
}

function lettersStrips(answer, text) {
  const [one, other] = answer.x;
  const rows = [
    [answer.word.text, one],
    [answer.other.text, other],
    [text.difference, one.map((value, i) => value - other[i])],
  ];
  const most = Math.max(...rows.slice(0, 2).flatMap(([, values]) => values.map(Math.abs)), 1e-6);
  return [
    el("h3", {}, text.vector(one.length)),
    el("p", { class: "quiet letters-small" }, text.vectorHint),
    rows.map(([name, values]) =>
      el(
        "div",
        { class: "letters-strip" },
        el("span", {}, name),
        svg(
          "svg",
          { viewBox: `0 0 ${values.length} 10`, preserveAspectRatio: "none", role: "img", "aria-label": text.strip(name, number(Math.min(...values)), number(Math.max(...values))) },
          values.map((value, i) => svg("rect", { class: value < 0 ? "letters-minus" : "letters-plus", x: i, y: value < 0 ? 5 : 0, width: 1.04, height: 5, "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(2) })),
        ),
      ),
    ),
  ];
}

// The field outlives the drawing: whoever types into it, by an input method perhaps, is not interrupted.
const lettersFields = new WeakMap();

function lettersField(root, text, set) {
  const known = lettersFields.get(root);
  if (known && root.contains(known.box)) return known;
  const found = { word: "" };
  found.input = el("input", {
    id: "letters-spelling",
    type: "text",
    maxlength: 100,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "aria-describedby": "letters-empty",
    oninput: (event) => set({ "letters.spelling": event.target.value, "letters.of": found.word }),
  });
  found.sides = el("div", { class: "letters-sides", role: "group", "aria-label": text.side });
  found.box = el(
    "div",
    { class: "letters-controls" },
    found.sides,
    el("div", { class: "letters-field" }, el("label", { for: "letters-spelling" }, text.misspell), found.input, el("span", { id: "letters-empty", class: "quiet letters-small" }, text.empty)),
  );
  found.rest = el("div", {});
  lettersFields.set(root, found);
  replace(root, found.box, found.rest);
  return found;
}

export const lettersRoom = {
  id: "letters",
  text: lettersText,
  equation: () => [
    math(sub("v", "f"), "=", "relu", "(", m("munder", "max", "t"), row(sub("w", "f"), "·", "[", sub("c", "t"), "…", sub("c", row("t", "+", "n", "−", "1")), "]", "+", sub("b", "f")), ")"),
    math("y", "=", "g", "⊙", "relu", "(", sub("W", "h"), "v", "+", sub("b", "h"), ")", "+", "(", "1", "−", "g", ")", "⊙", "v"),
    math("g", "=", "σ", "(", sub("W", "g"), "v", "+", sub("b", "g"), ")"),
    math(sub("x", "k"), "=", sub("W", "p"), "y", "+", sub("b", "p")),
  ],
  state: { "letters.side": "a", "letters.spelling": "", "letters.of": "" },
  question: (get) => {
    const side = get("letters.side") === "b" ? "b" : "a";
    const place = get(`w${side}`);
    if (!get(side).trim() || !Number.isInteger(place) || place < 0) return null;
    return { a: get("a"), b: get("b"), side, place, spelling: get("letters.spelling").slice(0, 100), of: get("letters.of").slice(0, 400) };
  },
  draw: (root, answer, { text, get, set }) => {
    const field = lettersField(root, text, set);
    const side = get("letters.side") === "b" ? "b" : "a";
    field.word = answer.word.text;
    field.input.placeholder = answer.slips[0]?.word ?? "";
    const value = get("letters.of") === answer.word.text ? get("letters.spelling") : "";
    if (document.activeElement !== field.input && field.input.value !== value) field.input.value = value;
    const focus = field.sides.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    replace(
      field.sides,
      ["a", "b"].map((one) => el("button", { type: "button", "data-focus": `side ${one}`, "aria-pressed": one === side ? "true" : "false", onclick: () => set({ "letters.side": one }) }, text.sides[one])),
    );
    if (focus) field.sides.querySelector(`[data-focus="${focus}"]`)?.focus();
    replace(
      field.rest,
      el("p", { class: "quiet" }, text.ids[answer.word.kind] ?? text.ids.bytes),
      el("div", { class: "columns" }, lettersColumn(answer.word, text, side), lettersColumn(answer.other, text, "other")),
      lettersMoved(answer, text, set),
      lettersStrips(answer, text),
    );
  },
};
