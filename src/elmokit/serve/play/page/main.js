// The page: two sentences at the top, the rooms below. A room is asked for its picture when it is seen.
//
// A room is an object:
//   id          of its section, and of what it asks the server for: POST play/ID
//   text        {en: {title, story: [two sentences], ...}, ko: {...}}: all that it says, in both languages
//   equation()  the equation that is being run (dom.js: math)
//   state       {"ID.name": default}: what it keeps in the address beside the sentences and picked words
//   question(get)         what it asks, from the state; null where there is nothing to ask
//   draw(root, answer, {text, lang, get, set, ask})   its picture, drawn anew with each answer
// What it has to ask besides (more than one question) it asks by `ask` itself.

import { ask, exported, onServer, useKey } from "./api.js";
import { el, replace } from "./dom.js";
import { contextsRoom } from "./rooms/contexts.js";
import { layersRoom } from "./rooms/layers.js";
import { lettersRoom } from "./rooms/letters.js";
import { mixRoom } from "./rooms/mix.js";
import { readersRoom } from "./rooms/readers.js";
import { taskRoom } from "./rooms/task.js";
import { define, get, onChange, readAddress, set } from "./state.js";
import { EXAMPLES, SHELL } from "./text.js";

const ROOMS = [contextsRoom, lettersRoom, readersRoom, layersRoom, mixRoom, taskRoom];
const asked = new URLSearchParams(location.hash.slice(1)).get("lang") ?? navigator.language ?? "en";
const preferred = asked.startsWith("ko") ? "ko" : "en";
const { a, b, wa, wb } = EXAMPLES.find((one) => one.lang === preferred) ?? EXAMPLES[0];

for (const [name, value] of Object.entries({ lang: preferred, a, b, wa, wb, theme: "" })) define(name, value);
for (const room of ROOMS) for (const [name, value] of Object.entries(room.state ?? {})) define(name, value);

const lang = () => (get("lang") === "ko" ? "ko" : "en");
const shell = () => SHELL[lang()];

const seen = new Set();
const stale = new Set();
const sections = new Map();
const answers = new Map(); // the last of each room: what changes only the drawing asks for nothing
let tokens = { a: [], b: [] };
let reading = false; // rooms wait until the words of what was typed are known: a picked place may be none
let placed = true; // the picked places are meant for these sentences: nothing was typed since

// Sentences and picked words

function example(one) {
  placed = true;
  set({ a: one.a, b: one.b, wa: one.wa, wb: one.wb });
  for (const side of ["a", "b"]) document.getElementById(`sentence-${side}`).value = one[side];
}

function words(side) {
  const picked = get(`w${side}`);
  return tokens[side].map((token, i) =>
    el(
      "button",
      {
        class: "word",
        type: "button",
        "aria-pressed": i === picked ? "true" : "false",
        onclick: () => set({ [`w${side}`]: i }),
      },
      token.text,
    ),
  );
}

function drawWords() {
  for (const side of ["a", "b"]) {
    const box = document.getElementById(`words-${side}`);
    const at = [...box.children].indexOf(document.activeElement);
    replace(box, words(side));
    box.children[at]?.focus();
  }
}

let shownLanguage = "";

// Where the picked words are while the sentence is being typed: the same word, if it is still there.
async function readSentences() {
  reading = true;
  let answer;
  try {
    answer = await ask("start", { a: get("a"), b: get("b") });
  } catch (error) {
    trouble(document.getElementById("bench-trouble"), error);
    return catchUp();
  }
  if (!answer) return;
  replace(document.getElementById("bench-trouble"));
  const before = tokens;
  tokens = answer.tokens;
  const changes = {};
  for (const side of ["a", "b"]) {
    const at = get(`w${side}`);
    const old = placed ? undefined : before[side][at]?.text;
    const there = tokens[side].map((token) => token.text);
    if (old !== undefined && there[at] !== old) {
      const near = there.indexOf(old);
      changes[`w${side}`] = near >= 0 ? near : Math.min(at, there.length - 1);
    } else if (at >= there.length || (at < 0 && there.length)) changes[`w${side}`] = there.length - 1;
  }
  placed = false;
  set(changes);
  drawWords();
  if (answer.language !== shownLanguage) {
    shownLanguage = answer.language;
    for (const side of ["a", "b"]) document.getElementById(`sentence-${side}`).lang = answer.language;
  }
  replace(document.getElementById("model"), shell().reads(answer.model, answer.layers, answer.width));
  catchUp();
}

function catchUp() {
  reading = false;
  for (const room of nearestFirst()) if (stale.has(room.id)) refresh(room);
}

// The server answers one after the other: the room that is looked at comes first.
function nearestFirst() {
  const away = (room) => {
    const { top, bottom } = document.getElementById(room.id).getBoundingClientRect();
    return Math.max(0, top - innerHeight / 2, innerHeight / 2 - bottom);
  };
  const distances = new Map(ROOMS.map((room) => [room, away(room)]));
  return [...ROOMS].sort((one, other) => distances.get(one) - distances.get(other));
}

function sentenceField(side) {
  return el(
    "div",
    { class: "sentence" },
    el("label", { for: `sentence-${side}` }, shell()[side]),
    el("input", {
      id: `sentence-${side}`,
      type: "text",
      maxlength: 400,
      spellcheck: "false",
      autocomplete: "off",
      value: get(side),
      oninput: (event) => set({ [side]: event.target.value }),
    }),
    el("div", { class: "words", id: `words-${side}`, role: "group", "aria-label": shell().pick(shell()[side]) }),
  );
}

// Rooms

const note = (root) => root.parentElement.querySelector(":scope > .trouble");

function trouble(root, error) {
  const unknown = error.message === "not-exported";
  const said = el("p", { class: "trouble", role: "status" }, unknown ? shell().exported : error.message);
  if (!unknown || !root.matches(".picture") || !root.hasChildNodes()) return replace(root, said);
  if (!note(root)) root.before(said); // the picture stays: an exported page has no other
}

async function refresh(room) {
  const picture = sections.get(room.id);
  if (reading || !seen.has(room.id) || !picture) return stale.add(room.id);
  stale.delete(room.id);
  const question = room.question(get);
  if (question === null) return replace(picture, el("p", { class: "quiet" }, shell().pickWord));
  const asked = JSON.stringify(question);
  const last = answers.get(room.id);
  if (last?.asked === asked) return draw(room, picture, last.answer);
  try {
    const answer = await ask(room.id, question);
    if (!answer || JSON.stringify(room.question(get)) !== asked) return; // what was typed since is what counts
    answers.set(room.id, { asked, answer });
    draw(room, picture, answer);
  } catch (error) {
    trouble(picture, error);
  }
}

function draw(room, picture, answer) {
  note(picture)?.remove();
  const focus = picture.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  room.draw(picture, answer, { text: room.text[lang()], lang: lang(), get, set, ask });
  if (focus) picture.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  picture.dispatchEvent(new CustomEvent("elmo:drawn", { bubbles: true }));
}

function section(room, i) {
  const text = room.text[lang()];
  const picture = el("div", { class: "picture" });
  sections.set(room.id, picture);
  return el(
    "section",
    { id: room.id, "aria-labelledby": `${room.id}-title` },
    el(
      "h2",
      { id: `${room.id}-title` },
      el("span", { class: "ordinal", "aria-hidden": "true" }, `${i + 1}`),
      text.title,
      el("a", { class: "link", href: `#${room.id}`, "aria-label": shell().link(text.title), onclick: copyLink(room.id) }, "#"),
    ),
    text.story.map((sentence) => el("p", { class: "story" }, sentence)),
    el("div", { class: "equation" }, room.equation()),
    picture,
  );
}

// The address with all state in it, and the room to scroll to.
const copyLink = (id) => (event) => {
  event.preventDefault();
  const address = new URL(location.href);
  const kept = new URLSearchParams(address.hash.slice(1));
  kept.set("room", id);
  for (const name of ["a", "b", "wa", "wb", "lang"]) kept.set(name, String(get(name)));
  address.hash = kept.toString();
  history.replaceState(null, "", address);
  navigator.clipboard?.writeText(address.href).catch(() => {});
  replace(document.getElementById("status"), shell().copied);
};

function build() {
  document.documentElement.lang = lang();
  if (get("theme")) document.documentElement.dataset.theme = get("theme");
  document.title = shell().title;
  replace(
    document.body,
    el("a", { class: "skip", href: "#contexts" }, shell().skip),
    el(
      "header",
      {},
      el("h1", {}, shell().heading),
      el(
        "div",
        { class: "switches" },
        el("button", { type: "button", lang: lang() === "ko" ? "en" : "ko", onclick: () => set({ lang: lang() === "ko" ? "en" : "ko" }) }, lang() === "ko" ? "English" : "한국어"),
        el("button", { type: "button", onclick: turnTheme }, shell().theme),
      ),
      el("p", { class: "lead" }, shell().lead),
    ),
    el("div", { id: "banner", role: "status", hidden: true }),
    el(
      "div",
      { id: "bench", role: "region", "aria-label": shell().bench },
      el(
        "div",
        { class: "examples", role: "group", "aria-label": shell().examples },
        el("span", { class: "quiet" }, shell().examples),
        EXAMPLES.map((one) => el("button", { type: "button", lang: one.lang, onclick: () => example(one) }, one.word)),
      ),
      sentenceField("a"),
      sentenceField("b"),
      el("div", { id: "bench-trouble" }),
      el("p", { id: "model", class: "quiet" }),
    ),
    el("nav", { "aria-label": shell().rooms }, el("ol", {}, ROOMS.map((room) => el("li", {}, el("a", { href: `#${room.id}`, onclick: go(room.id) }, room.text[lang()].title))))),
    el("main", {}, ROOMS.map(section)),
    el("footer", {}, el("p", {}, shell().foot), exported ? el("p", { class: "made" }, globalThis.elmoMade) : null),
    el("div", { id: "status", class: "hidden", role: "status" }),
  );
  drawWords();
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          seen.add(entry.target.id);
          if (stale.has(entry.target.id)) refresh(ROOMS.find((room) => room.id === entry.target.id));
        } else seen.delete(entry.target.id);
      }
    },
    { rootMargin: "200px" },
  );
  seen.clear();
  for (const room of ROOMS) {
    stale.add(room.id);
    watcher.observe(document.getElementById(room.id));
  }
}

const go = (id) => (event) => {
  event.preventDefault();
  const quiet = matchMedia("(prefers-reduced-motion: reduce)").matches;
  document.getElementById(id).scrollIntoView({ behavior: quiet ? "auto" : "smooth" });
};

function turnTheme() {
  const dark = get("theme") ? get("theme") === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  set({ theme: dark ? "light" : "dark" });
}

onServer((what) => {
  const banner = document.getElementById("banner");
  if (!banner) return;
  banner.hidden = what === "well";
  if (what === "well") return replace(banner);
  if (what !== "key") return replace(banner, shell()[what]);
  if (banner.querySelector("input")) return;
  replace(
    banner,
    el("label", {}, shell().key, " ", el("input", { type: "password", autocomplete: "off", onchange: (event) => useKey(event.target.value) })),
  );
});

onChange((names) => {
  if (names.includes("lang")) {
    build();
    readSentences();
    return;
  }
  if (names.some((name) => name === "a" || name === "b")) readSentences();
  if (names.some((name) => name === "wa" || name === "wb")) drawWords();
  for (const room of nearestFirst()) {
    if (names.some((name) => ["a", "b", "wa", "wb"].includes(name) || name.startsWith(`${room.id}.`))) refresh(room);
  }
});

function begin() {
  placed = true;
  readAddress();
  const room = new URLSearchParams(location.hash.slice(1)).get("room") ?? location.hash.slice(1);
  build();
  readSentences();
  if (ROOMS.some((one) => one.id === room)) document.getElementById(room).scrollIntoView();
}

addEventListener("hashchange", begin);
document.documentElement.dataset.exported = exported ? "yes" : "no";
begin();
