"""The `words` tokenizer: Unicode rules that keep Penn Treebank habits for English.

Published ELMos read Penn-like tokens (`do n't`, `Mr.`, `$ 5`, `long-term`), so text cut in another way
looks foreign to them. Every character that is not white space lies in exactly one token: offsets let a
caller find its way back to the text, so nothing may be dropped or rewritten.

Hyphenated words stay whole (`well-known`, `3-4`), as in the text that published ELMos read; UD English EWT
cuts most of them, which costs 0.4 points of F1 there. `5pm` and `dont` stay whole too: cutting them takes
lists that hardly pay. Runs such as `!!!`, `?!`, `...` and `***` are one token, as in EWT; brackets never are.

Time is linear: every part of the pattern that can fail after reading on is either possessive and part of a
token that is taken anyway, or bounded (`{1,64}`).
"""

from __future__ import annotations

import regex

# Abbreviations that keep their full stop wherever they stand. Sentence splitting needs the difference:
# a title always has its name to come, while a company or a day may well end the sentence.
TITLES = frozenset(
    """adm attn brig capt cmdr col cpl dr drs gen gov hon lt maj messrs mr mrs ms msgr mt mx pres prof rep
    reps rev sen sens sgt sra srta st supt vs cf viz ca approx""".split()
)
ENDINGS = frozenset(
    """al assn ave bldg blvd bros co corp dept dist div est etc ext ft hwy inc intl jr ltd mfg pty rd sq sr
    univ jan feb mar apr jun jul aug sept oct nov dec mon tue tues wed thu thur thurs fri""".split()
)
BEFORE_NUMBERS = frozenset("art ch eq fig figs no nos p pp pt sec vol".split())

# What clings to the character before it: marks, joiners and other format characters, skin tones.
_CLING = r"[\p{M}\p{Cf}\p{Grapheme_Extend}\p{Emoji_Modifier}\p{GCB=SpacingMark}]"
# Japanese kana and the scripts of South-East Asia are written without spaces. Finding their words takes
# a dictionary; what rules can do is to keep the runs and not to mix them with their neighbours.
_KANA = r"[\p{Hiragana}\p{Katakana}ー]"
_SPACELESS = r"\p{Line_Break=Complex_Context}"
_HAN = rf"\p{{Han}}{_CLING}*+"
_LETTER = rf"[[\p{{L}}\p{{N}}]--\p{{Han}}--{_KANA}--{_SPACELESS}]"
# Chinese has no spaces to show where a word ends; a Korean eojeol such as 山은 has, and keeps its Han.
_RUN = rf"{_LETTER}(?:{_LETTER}|{_CLING}|(?<=\p{{Hangul}})(?:{_HAN})++)*+"
_CASED = r"[\p{Lu}\p{Ll}\p{Nd}\p{M}]"
_INITIAL = rf"[\p{{Lu}}\p{{Ll}}]{_CLING}*+"
_ADDRESS = r"[^\s\x1C-\x1F<>\"\u3000-\u303F\uFF00-\uFF0F\uFF1A-\uFF20]"
_CLOSING = r"[)\]}\"'’”»›]"

# Most words: letters between spaces, or before a comma. Every rule below gives the same, in several times as long.
_PLAIN = r"(?<!\S)[A-Za-z가-힣]++(?=,?(?!\S))"

_RULES = rf"""(?:
      # Addresses. A sentence's own punctuation after one is not part of it. RFC 5321: at most 64 before @.
      (?:[a-z][a-z0-9+]{{1,11}}://|www\.){_ADDRESS}*(?<![.,;:!?'’”…()\[\]{{}}])
    | (?:mailto:)?[\p{{L}}\p{{N}}._%+-]{{1,64}}+@[\p{{L}}\p{{N}}_-]{{1,63}}+(?:\.[\p{{L}}\p{{N}}-]{{1,63}}+)*+
    | [@\#]\p{{L}}(?:[\p{{L}}\p{{N}}_]|{_CLING})*+

      # Faces and other pictures
    | (?:[:;=]['’^o-]?(?:[)(]++(?![\p{{L}}\p{{N}}])|[DPpOo/\\|](?![\p{{L}}\p{{N}}/])) | <3 | </3
       | \(-?[:;=](?!\S) | \^[_.-]?\^ | -_+- | [xX]D(?![\p{{L}}\p{{N}}]))
    | [0-9\#*]\uFE0F?\u20E3
    | \p{{RI}}\p{{RI}}
    | \p{{Extended_Pictographic}}(?:{_CLING}*+(?<=\u200D)\p{{Extended_Pictographic}})*+

      # Words that own their full stop: U.S., a listed abbreviation, the initial of a name
    | {_INITIAL}(?:\.{_INITIAL}){{1,8}}\.(?![\p{{L}}\p{{N}}])(?:-{_RUN})*+
    | (?i:\L<titles>)\.(?![\p{{L}}\p{{N}}.])
    | (?i:\L<endings>)\.(?![\p{{L}}\p{{N}}.]|{_CLOSING}*+\s*+\Z)    # the last full stop ends the sentence
    | (?i:\L<before_numbers>)\.(?=\s?\p{{Nd}})
    | (?!I\.)\p{{Lu}}{_CLING}*+\.(?=\s+\p{{Lu}})

      # Apostrophes that start a word
    | ['’](?i:\d\ds?|em|til|cause|tis|twas|n|s|m|d|ll|re|ve)(?![\p{{L}}\p{{N}}'’])

    | (?:US|HK|NZ|A|C|S|R)\$(?=\p{{Nd}})
    | (?P<ideographs>(?:{_HAN})++)(?!\p{{Hangul}})
    | (?:\.(?=\p{{Nd}}))?(?P<word>(?:{_HAN})*+{_RUN}(?:
          (?: [-‐‑'’&_·׳״]                              # rock-and-roll o'clock AT&T col·lega
            | \.(?<={_CASED}\.)(?={_CASED})(?!(?<=\p{{Ll}}.)\p{{Lu}})  # a.com 3.14, but not: end.Next 끝.다음
            | [,:/](?<=\p{{Nd}}.)(?=\p{{Nd}})            # 1,000 10:30 1/2
          ){_RUN})*+)
    | {_KANA}(?:{_KANA}|{_CLING})*+
    | {_SPACELESS}(?:{_SPACELESS}|{_CLING})*+

      # Punctuation: one character per token, but for what is written as a run
    | \.{{2,}}+ | …++ | [.!?]++ | [！？]++ | [–—―]++ | ''|``|‘’|’’|,,
    | (?P<repeated>[-*=_~+<>|^\#])(?P=repeated)++
    | [^\s\x1C-\x1F]
    ){_CLING}*+"""


def _compiled(pattern: str) -> regex.Pattern[str]:
    lists = {"titles": TITLES, "endings": ENDINGS, "before_numbers": BEFORE_NUMBERS}
    return regex.compile(pattern, regex.VERBOSE | regex.VERSION1, **lists)


_TOKEN = _compiled(rf"(?P<plain>{_PLAIN})|{_RULES}")

_CLITIC = regex.compile(r"(?i)(?:n['’]t|['’](?:s|m|d|ll|re|ve))$")
_FUSED = {"cannot": 3, "gimme": 3, "gonna": 3, "gotta": 3, "lemme": 3, "wanna": 3}
_LONGEST_CLITIC = 3
_IDEOGRAPH = regex.compile(_HAN)


def word_spans(text: str) -> list[tuple[int, int]]:
    """The tokens of `text` as [start, end) character offsets."""
    return _spans(_TOKEN, text)


def _spans(pattern: regex.Pattern[str], text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for match in pattern.finditer(text):
        start, end = match.span()
        kind = match.lastgroup
        if kind == "plain" and text[start:end].lower() not in _FUSED:
            spans.append((start, end))
        elif kind == "plain" or match["word"]:
            spans += _without_clitics(text, start, end)
        elif match["ideographs"]:
            spans += [ideograph.span() for ideograph in _IDEOGRAPH.finditer(text, start, end)]
        else:
            spans.append((start, end))
    return spans


def _without_clitics(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Cuts don't into do n't, she'd've into she 'd 've, cannot into can not."""
    clitics: list[tuple[int, int]] = []
    while clitic := _CLITIC.search(text, max(start + 1, end - _LONGEST_CLITIC), end):
        clitics.append((clitic.start(), end))
        end = clitic.start()
    cut = start + _FUSED.get(text[start:end].lower(), 0)
    stem = [(start, cut), (cut, end)] if cut > start else [(start, end)]
    return stem + clitics[::-1]
