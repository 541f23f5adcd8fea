"""Text -> sentences, by rules: end marks in any script, with care for what else a full stop does.

A blank line always ends a sentence; a single line break is plain white space. Within a paragraph every end
mark is a candidate, and the words on both sides of it decide. Each candidate looks at a bounded stretch of
text, so time is linear.
"""

from __future__ import annotations

import unicodedata

import regex

from elmokit.text.words import BEFORE_NUMBERS, ENDINGS, TITLES

_CLOSING = r"[)\]}\"'’”»›」』）】》〉〕］｝]"
_OPENING = r"[(\[{\"'‘“«‹¿¡*_]"
_MARK = r"[.!?…‼⁇⁈⁉؟۔।॥։።။។៕]"

_LINE_END = r"(?>\r\n|[\n\v\f\r\x85\u2028])"
_BLANK_LINE = regex.compile(rf"{_LINE_END}[^\S\r\n]*+{_LINE_END}|\u2029")

# Korean verbs end in few syllables: 갔다.그는 is two sentences without a space, 학생.노동자 and 야후!코리아 no.
_VERB_END = "|".join(unicodedata.normalize(form, end) for form in ("NFC", "NFD") for end in "다요까죠")
_HANGUL = r"[가-힣\u1100-\u1112]"

# Full-width marks stand alone; the marks of scripts with spaces need one next, or 3.14 would be two
# sentences. What closes the sentence comes along, even when written with a space before it.
_END = regex.compile(
    rf"""(?: (?P<wide>[。｡！？]++)
           | (?<!{_MARK})(?P<mark>{_MARK}++)(?={_CLOSING}*+(?:\s|\Z))
           | (?<={_VERB_END})(?P<joined>\.|[!?]++)(?=[“‘「『]?{_HANGUL}) )
    (?P<closing>{_CLOSING}*+)
    (?:\s{{1,4}}+(?:[.!?]++|[)\]}}”’»]|[:;=]-?[)(DP])(?=\s|\Z))*+""",
    regex.VERBOSE | regex.VERSION1,
)
_NEXT = regex.compile(rf"\s*+{_OPENING}{{0,4}}+\s?+(?P<word>[\p{{L}}\p{{M}}\p{{N}}]{{0,12}}+)(?P<stop>\.?)")
_STRAIGHT_QUOTE = regex.compile(r'\s{0,4}+"(?=\s|\Z)')
_WEB = frozenset({"http", "https", "www"})
# Where Japanese and Korean run on from a quotation into its verb: 「はい。」と言った, " 네 . " 라고 했다
_REPORTED = regex.compile(r"と|って|이?라[고는며던면니]|하[고는며자시셨였]|했다|한다|(?:고|며|면서|라)\Z")

_PREVIOUS = regex.compile(r"[\p{L}\p{M}\p{N}.]++\Z")
_ACRONYM = regex.compile(r"\p{L}(?:\.\p{L})+")
_ENUMERATOR = regex.compile(r"\s{0,8}+[(\[]?(?:\p{Nd}{1,3}|[A-Za-z])\s?+")
# The official Korean way to write a date: 2024. 5. 3.
_DATE = regex.compile(r"(?<!\p{Nd})(?:1[89]|20)\d\d\.\s?\d{1,2}\.(?:\s?\d{1,2}\.)?")
_LONGEST_DATE = 14
_NEVER_LAST = TITLES | {"e.g", "i.e", "eg", "ie"}
_LONGEST_ABBREVIATION = 12
_HANGUL_START = regex.compile(_HANGUL)

# After `U.S.`, `Inc.` or an initial the next capital is a name as often as not. These are not names.
_STARTERS = frozenset(
    """A After All Also An And Any Are As At Because Before But By Can Did Do Does For From Has Have He Her
    Here His How However I If In Is It Its My No Not Now On One Or Our Please She Since So Some Thank Thanks
    That The Their Then There These They This Those To Was We Were What When Where Which While Who Why Will
    With Would Yes You Your""".split()
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """The sentences of `text` as [start, end) character offsets, trimmed of white space."""
    return [span for paragraph in paragraph_spans(text) for span in paragraph_sentences(text, *paragraph)]


def paragraph_spans(text: str) -> list[tuple[int, int]]:
    """What stands between blank lines, as it is."""
    blanks = [blank.span() for blank in _BLANK_LINE.finditer(text)]
    starts, stops = [0, *(end for _, end in blanks)], [*(start for start, _ in blanks), len(text)]
    return list(zip(starts, stops, strict=True))


def paragraph_sentences(text: str, start: int, stop: int) -> list[tuple[int, int]]:
    """The sentences of the paragraph text[start:stop]."""
    return trimmed_spans(text, _cuts(text, start, stop), stop)


def trimmed_spans(text: str, cuts: list[int], stop: int) -> list[tuple[int, int]]:
    """What stands from one cut to the next and to `stop`, without white space around it; nothing empty."""
    trimmed = (_trim(text, *span) for span in zip(cuts, [*cuts[1:], stop], strict=True))
    return [(first, last) for first, last in trimmed if first < last]


def _cuts(text: str, start: int, stop: int) -> list[int]:
    """Where sentences begin."""
    cuts = [start]
    counted, quotes = start, 0
    for end in _END.finditer(text, start, stop):
        if end.start() < cuts[-1]:
            continue
        cut = end.end()
        # A straight quote does not say whether it opens or closes; the number of those before it does.
        quotes += text.count('"', counted, cut)
        counted = cut
        quote = _STRAIGHT_QUOTE.match(text, cut, stop) if quotes % 2 else None
        if quote:
            cut = quote.end()
        quoted = bool(quote or end["closing"])
        if _ends_sentence(text, cuts[-1], end, _NEXT.match(text, cut, stop), quoted):
            cuts.append(cut)
            counted, quotes = cut, 0
    return cuts


def _trim(text: str, start: int, stop: int) -> tuple[int, int]:
    sentence = text[start:stop]
    start += len(sentence) - len(sentence.lstrip())
    return start, start + len(sentence.strip())


def _ends_sentence(
    text: str, start: int, end: regex.Match[str], following: regex.Match[str], quoted: bool
) -> bool:
    word = unicodedata.normalize("NFC", following["word"])
    if quoted and _REPORTED.match(word):
        return False
    if end["wide"] or end["joined"]:
        return True
    continues = word[:1].islower() and word not in _WEB
    mark = end["mark"]
    if mark != ".":
        # Casual writers start without a capital after ? and !, but "Why?" he asked is one sentence.
        return not (continues and (quoted or mark[0] in ".…"))
    return not continues and not _keeps_full_stop(text, start, end.start(), word, bool(following["stop"]))


def _within_date(text: str, start: int, stop: int) -> bool:
    near = _DATE.finditer(text, max(start, stop - _LONGEST_DATE), stop + _LONGEST_DATE)
    return any(date.start() < stop < date.end() for date in near)


def _keeps_full_stop(text: str, start: int, stop: int, word: str, word_has_stop: bool) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, an initial or a list number before it."""
    if _ENUMERATOR.fullmatch(text, start, stop):
        return True  # 1. First point
    if text[stop - 1].isdecimal() and _within_date(text, start, stop):
        return True
    match = _PREVIOUS.search(text, max(start, stop - _LONGEST_ABBREVIATION), stop)
    if not match:
        return False
    previous = match[0]
    lowered = previous.lower()
    if lowered in _NEVER_LAST:
        return True
    if lowered in BEFORE_NUMBERS and word[:1].isdigit():
        return True
    korean = bool(_HANGUL_START.match(word))
    if korean and previous.isdecimal() and len(previous) <= 2:
        return True  # an ordinal, 3. 리가: a Korean sentence hardly ever ends with a bare number
    initial = len(previous) == 1 and previous.isupper() and previous != "I"
    if initial or lowered in ENDINGS or _ACRONYM.fullmatch(previous):
        return korean or word[:1].isdigit() or (word[:1].isupper() and (word not in _STARTERS or word_has_stop))
    return False
