"""What the rule tokenizer promises: nothing lost, nothing torn, Penn habits for English."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from elmokit.text.words import _RULES, _compiled, _spans, word_spans

# Plain st.text() hardly ever builds a contraction, an address or an emoji sequence; pieces of them do.
PIECES = st.sampled_from(
    [
        *"aZé한語かก์ अि9٣½.,:;!?-'’\"()[]<>@#$%&_/*=^~",
        *" \t\n\r\x1c\x1f\x85\u3000",
        *"\u0000\u0301\u200b\u200d\u200e\ufe0f\u20e3\ufeff\u00ad\ud800\udfff\u0378\ue000",
        *"👍🏽👩❤️🇰🇷",
        "\u1112\u1161\u11ab",
        "n't",
        "'s",
        "www.",
        "http://",
        "U.S.",
        "etc.",
        ":)",
        "...",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join))


PLAIN = st.sampled_from(
    ["cannot", "Gonna", "bank", "XD", "I", "www", "etc", "눈이", "a한", "mr", ",", ", ", " ", "  ", "\n"]
)
ALL_RULES = _compiled(_RULES)


@given(st.lists(st.one_of(PLAIN, PIECES), max_size=30).map("".join))
@example("cannot gonna bank")
@example("눈이 a\u0301 b\x1cc etc. Mr Kim")
def test_plain_words_are_cut_as_by_all_the_rules(text: str) -> None:
    assert word_spans(text) == _spans(ALL_RULES, text)


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


@given(TEXTS)
@example("\ud800\x00\u0378 \ue000")
@example("a\x1cb\x1f http://c\x1dd")
def test_every_visible_character_lies_in_exactly_one_token(text: str) -> None:
    spans = word_spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    covered = [position for span in spans for position in range(*span)]
    assert covered == [position for position, char in enumerate(text) if not char.isspace()]


@given(TEXTS)
@example("1\ufe0f\u20e3👩\u200d👩\u200d👧🇰🇷🇰🇷")
def test_no_token_ends_inside_a_grapheme_cluster(text: str) -> None:
    edges = {edge for span in word_spans(text) for edge in span}
    for cluster in regex.finditer(r"\X", text):
        # Prepended signs (Arabic number sign) are the one kind of cluster we do not keep together.
        if not regex.search(r"\p{GCB=Prepend}|\s", cluster[0]):
            assert edges.isdisjoint(range(cluster.start() + 1, cluster.end())), ascii(cluster[0])


@pytest.mark.parametrize(
    "unit",
    ["a", ".", "'", "a.", "((", "-", "a.A.", "=(", "www.", "a@", "a's", "語", "a\u0301", "👩\u200d", "etc. "],
)
def test_long_repetitions_come_back(unit: str) -> None:
    """A quadratic rule would keep this from returning for minutes: no clock is needed to notice."""
    text = unit * (200_000 // len(unit)) + "ab"  # an end that makes a rule read all of it, then give up
    assert sum(end - start for start, end in word_spans(text)) == sum(not char.isspace() for char in text)


ENGLISH = {
    # contractions and possessives
    "I don't know.": "I do n't know .",
    "I don’t, can't and won’t.": "I do n’t , ca n't and wo n’t .",
    "It's what we'll say": "It 's what we 'll say",
    "I'm, they've, he'd, you're": "I 'm , they 've , he 'd , you 're",
    "SHE'S NOT, ISN'T SHE?": "SHE 'S NOT , IS N'T SHE ?",
    "she'd've": "she 'd 've",
    "the dog's and the dogs' bowls": "the dog 's and the dogs ' bowls",
    "I cannot; I'm gonna": "I can not ; I 'm gon na",
    "O'Brien's rock'n'roll o'clock": "O'Brien 's rock'n'roll o'clock",
    "get 'em in the '90s": "get 'em in the '90s",
    "the word 'red' itself": "the word ' red ' itself",
    "the letter 'd' itself": "the letter ' d ' itself",
    "it": "it",
    # hyphens and dashes
    "a well-known U.S.-based firm": "a well-known U.S.-based firm",
    "wait--no — yes": "wait -- no — yes",
    "pre- and post-war": "pre - and post-war",
    # full stops
    "Mr. and Mrs. Smith vs. Dr. J. R. Jones": "Mr. and Mrs. Smith vs. Dr. J. R. Jones",
    "in the U.S. today, e.g. at 5 p.m. sharp": "in the U.S. today , e.g. at 5 p.m. sharp",
    "cats, dogs, etc. are": "cats , dogs , etc. are",
    "cats, dogs, etc.": "cats , dogs , etc .",
    'by "Acme Inc."': 'by " Acme Inc . "',
    "No. 5 said no.": "No. 5 said no .",
    "so do I. Then": "so do I . Then",
    "the end.Next one": "the end . Next one",
    "see example.com.": "see example.com .",
    # numbers, money, per cent
    "1,000.50 at 10:30 on 1/2, 3.14, .5": "1,000.50 at 10:30 on 1/2 , 3.14 , .5",
    "$5 or £3.50, 20% of US$100": "$ 5 or £ 3.50 , 20 % of US$ 100",
    "the 5th of 1980s pages 3, 4": "the 5th of 1980s pages 3 , 4",
    "call 555-1234": "call 555-1234",
    # addresses and handles
    "(see https://example.org/a_b?c=1,2.)": "( see https://example.org/a_b?c=1,2 . )",
    "at www.example.com/x, now": "at www.example.com/x , now",
    "mail jo.doe+x@mail.example.co.uk!": "mail jo.doe+x@mail.example.co.uk !",
    "@alice likes #nlproc, item #1": "@alice likes #nlproc , item # 1",
    # faces and punctuation
    "fun :) but :-( I <3 it ;)": "fun :) but :-( I <3 it ;)",
    "options: (a) or (b)": "options : ( a ) or ( b )",
    "What?! No!!! Well... yes": "What ?! No !!! Well ... yes",
    "and/or f(g(x))": "and / or f ( g ( x ) )",
    "AT&T and snake_case": "AT&T and snake_case",
    '"Quoted," he said.': '" Quoted , " he said .',
    "**bold** === ~~": "** bold ** === ~~",
}
OTHER_SCRIPTS = {
    # Korean: the eojeol, its punctuation apart
    "나는 밥을 먹었다.": "나는 밥을 먹었다 .",
    "'안녕하세요,' 라고(또) 했다!": "' 안녕하세요 , ' 라고 ( 또 ) 했다 !",
    "1994년 PC는 3.5만원": "1994년 PC는 3.5만원",
    "재밌다.그런데 ㅋㅋㅋ ㅠㅠ": "재밌다 . 그런데 ㅋㅋㅋ ㅠㅠ",
    "山은 한국(韓國)의": "山은 한국 ( 韓 國 ) 의",
    # Chinese and Japanese
    "我爱北京。": "我 爱 北 京 。",
    "买iPhone15吗？！": "买 iPhone15 吗 ？！",
    "请看http://example.cn/a。好": "请 看 http://example.cn/a 。 好",
    "東京タワーに行きました。": "東 京 タワーに 行 きました 。",
    "か\u3099き": "か\u3099き",
    # scripts with vowel signs, and scripts without spaces
    "मैं हिन्दी पढ़ता हूँ।": "मैं हिन्दी पढ़ता हूँ ।",
    "مرحبا، كيف حالك؟": "مرحبا ، كيف حالك ؟",
    "كِتَابٌ می\u200cخواهم": "كِتَابٌ می\u200cخواهم",
    "ภาษาไทยกับiPhone": "ภาษาไทยกับ iPhone",
    "צה״ל": "צה״ל",
    "Grüße, naïve café": "Grüße , naïve café",
    # emoji
    "hi👋🏽you": "hi 👋🏽 you",
    "👨‍👩‍👧‍👦❤️": "👨‍👩‍👧‍👦 ❤️",
    "🇰🇷🇺🇸🇫": "🇰🇷 🇺🇸 🇫",
    "1️⃣2️⃣#️⃣": "1️⃣ 2️⃣ #️⃣",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿!": "🏴󠁧󠁢󠁥󠁮󠁧󠁿 !",
    # characters nobody sees
    "soft\u00adhyphen zero\u200bwidth": "soft\u00adhyphen zero\u200bwidth",
    "\ufeffBOM": "\ufeff BOM",
    "nul\x00nul": "nul \x00 nul",
}


@pytest.mark.parametrize(("text", "expected"), (ENGLISH | OTHER_SCRIPTS).items())
def test_tokens(text: str, expected: str) -> None:
    assert words(text) == expected.split(" ")


@pytest.mark.parametrize("text", ENGLISH | OTHER_SCRIPTS)
def test_decomposed_text_is_cut_in_the_same_places(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    composed = unicodedata.normalize("NFC", text)
    assert [unicodedata.normalize("NFC", word) for word in words(decomposed)] == words(composed)


def test_decomposition_is_not_a_no_op() -> None:
    """Guards the test above: jamo and marks do reach the tokenizer."""
    text = unicodedata.normalize("NFD", "É.U. 한국은 café's")
    assert len(text) > len("É.U. 한국은 café's")
    assert [unicodedata.normalize("NFC", word) for word in words(text)] == ["É.U.", "한국은", "café", "'s"]


def test_offsets_point_into_the_text_as_given() -> None:
    assert word_spans("  Don't\n\tgo.") == [(2, 4), (4, 7), (9, 11), (11, 12)]


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_white_space_alone_has_no_tokens(text: str) -> None:
    assert word_spans(text) == []
