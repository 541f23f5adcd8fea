// Questions to the server. Of one room's questions only the last is answered: an older answer never comes after it.

const underWay = new Map();
const waiting = new Set();
let key = sessionStorageSafe();
let tell = () => {};

function sessionStorageSafe() {
  try {
    return sessionStorage.getItem("elmo-key") ?? "";
  } catch {
    return "";
  }
}

export function useKey(value) {
  key = value;
  try {
    sessionStorage.setItem("elmo-key", value);
  } catch {
    // a page without storage asks again next time
  }
  for (const again of waiting) again();
}

// What is told: "well", "gone" (the server does not answer), "key" (it wants a key), "full" (it is busy).
export const onServer = (listener) => {
  tell = listener;
};

// A page that was exported has its answers with it, by what was asked.
export const exported = globalThis.elmoAnswers ?? null;
export const questionKey = (room, body) =>
  `${room} ${JSON.stringify(body, Object.keys(body).sort())}`;

// The answer, or null where a later question has been asked meanwhile; throws an Error with the server's words.
export async function ask(room, body) {
  if (exported) {
    const found = exported[questionKey(room, body)];
    if (!found) throw new Error("not-exported");
    if (found.error) throw new Error(found.error.message);
    return found;
  }
  underWay.get(room)?.abort();
  const own = new AbortController();
  underWay.set(room, own);
  for (let pause = 250; ; pause = Math.min(2 * pause, 4000)) {
    let response;
    try {
      response = await fetch(`play/${room}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) },
        body: JSON.stringify(body),
        signal: own.signal,
      });
    } catch (error) {
      if (own.signal.aborted) return null;
      tell("gone");
      await rest(pause, own.signal);
      if (own.signal.aborted) return null;
      continue;
    }
    let answer;
    try {
      answer = await response.json();
    } catch {
      if (own.signal.aborted) return null;
      tell("gone");
      await rest(pause, own.signal);
      continue;
    }
    if (own.signal.aborted) return null;
    if (response.ok) {
      tell("well");
      return answer;
    }
    if (response.status === 401) tell("key");
    else if (response.status === 429 || response.status === 503) tell("full");
    else {
      tell("well");
      throw new Error(answer?.error?.message ?? `${response.status}`);
    }
    await rest(response.status === 401 ? 3600000 : pause, own.signal);
    if (own.signal.aborted) return null;
  }
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      waiting.delete(end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    waiting.add(end);
    signal.addEventListener("abort", end, { once: true });
  });
}
