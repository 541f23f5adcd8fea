"""Where sentences end, and where a mark does not end one. `|` shows the cuts."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmokit.text.sentences import sentence_spans

PIECES = st.sampled_from(
    [
        *"aZ한語9.!?…。！？।؟\"'”)」(:,",
        *" \n\r\t\x1c\x85\u2028\u2029\u3000",
        *"\x00\u0301\u200b\ud800\u0378",
        "Mr.",
        "U.S.",
        "etc.",
        "\n\n",
        "\r\n",
        " The ",
        " 라고 ",
        "1.",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join))


def cut(text: str) -> str:
    return "|".join(text[start:end] for start, end in sentence_spans(text))


@given(TEXTS)
@example("\ud800.\x00 \u0378")
def test_sentences_are_ordered_trimmed_and_cover_the_text(text: str) -> None:
    spans = sentence_spans(text)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(text[start:end] and text[start:end] == text[start:end].strip() for start, end in spans)
    assert "".join(cut(text).replace("|", "").split()) == "".join(text.replace("|", "").split())


@given(TEXTS, TEXTS)
def test_a_blank_line_separates_whatever_stands_around_it(above: str, below: str) -> None:
    boundary = len(above)
    assert not any(start < boundary < end for start, end in sentence_spans(above + "\n\n" + below))


@pytest.mark.parametrize(
    "unit",
    ["a", ".", "'", "a.", "((", "-", ". ", '. "', "Mr. ", ".)", "! ", "。", "\n", "a\n\n", "U.S. the "],
)
def test_long_repetitions_come_back(unit: str) -> None:
    """A quadratic rule would keep this from returning for minutes: no clock is needed to notice."""
    text = "Hi!" + " " * 50_000 + unit * (200_000 // len(unit)) + "x"
    spans = sentence_spans(text)
    assert (spans[0][0], spans[-1][1]) == (0, len(text))


CASES = [
    # plain ends
    "It rained.|We stayed in.",
    "Did it?|Yes!|Good…|Fine",
    "no marks at all",
    "One sentence on\ntwo lines.|Another.",
    "Really?!|Yes!!!|Well... you see",
    "Stop it...|The end",
    # closing quotes and brackets come along
    '"Go."|He went.',
    "“Go.”|He went.",
    "(He went.)|She stayed.",
    "He ( as ever . )|She stayed .",
    '" Go . "|" Why ? "',
    '"Why?" he asked.|"No!" she cried.',
    "That was fun! :)|See you.",
    # full stops that do something else
    "Mr. Smith met Dr. Jones vs. Prof. Lee.|They talked.",
    "He came from the U.S. in May.|Then he left.",
    "He came from the U.S.|The trip was long.",
    "The U.S. Army left.",
    "J. R. R. Tolkien wrote it.|George W. Bush did not.",
    "Take vitamin C.|It helps.",
    "It was J. A. Smith.",
    "So do I.|Then go.",
    "Fruit, e.g. Apples, and nuts, etc. are fine.",
    "Acme Inc. Chairman Lee spoke.|He works for Acme Inc.|They pay well.",
    "See No. 5 and p. 7.|No.|Fine.",
    "It opens Sept. 21 at 10 a.m. in Paris.",
    "Pi is 3.14 today.|It was 3.",
    "Write to a.b@example.com or example.org now.",
    "an unlisted abbr. goes on",
    "1. First point.|2. Second point.",
    "See here.|https://example.com",
    "what now?|nobody knows!|ok",
    # Korean
    "나는 밥을 먹었다.|맛있었다!|너는?",
    "내 고향은 서울입니다 .|그립습니다 .",
    '그는 " 간다 . " 라고 말했다 .|" 정말 ? "|나는 웃었다 .',
    "네.|알겠습니다.",
    "그는 “나는 간다.”라고 말했다.|그녀는 웃었다.",
    "그는 \"간다.\"고 했다.|그는 '온다.'며 웃었다.",
    "예수는 “일어나라.” 하셨다.|“싫다.” 라던 그는 “가자!” 하며 일어났다.",
    "값은 3.5이다.|그리고 3.5 배가 되었다.",
    "J. K. 롤링과 존 F. 케네디는 U.S. 정부와 Acme Inc. 회장을 Dr. 김에게 소개했다.|끝.",
    "대회는 2024. 5. 3. 서울에서, 2024. 6. 부산에서 열렸다.|모두 갔다.",
    "그는 3. 리가에서 뛰었다.|그는 떠났다.",
    "주소는 example.한국 이고 학생.노동자 모두 야후!코리아 를 쓴다.",
    # Chinese and Japanese need no space
    "我爱北京。|你呢？|好！",
    "他说：“走。”|我们走了。",
    "「はい。」と彼は言った。|「いいえ。」|終わり。",
    # other marks
    "मैं घर जाता हूँ।|तुम कहाँ हो?",
    "كيف حالك؟|أنا بخير.",
    "یہ کتاب ہے۔|وہ قلم ہے۔",
]


@pytest.mark.parametrize("expected", CASES)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_cuts(expected: str, form: Literal["NFC", "NFD"]) -> None:
    expected = unicodedata.normalize(form, expected)
    spaceless = any(mark in expected for mark in "。？！")
    assert cut(expected.replace("|", "" if spaceless else " ")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a title\n\nand text", "a title|and text"),
        ("Mr.\n\nSmith", "Mr.|Smith"),
        ("a\r\n\r\nb", "a|b"),
        ("a\r\nb", "a\r\nb"),
        ("a\n \t\nb", "a|b"),
        ("a\n\n\n\nb", "a|b"),
        ("a\u2029b", "a|b"),
        ("  Go. \n Stop.  ", "Go.|Stop."),
        ("", ""),
        (" \n\n\t", ""),
    ],
)
def test_white_space(text: str, expected: str) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "expected",
    [
        "그는 갔다.|그녀는 왔다.",
        "갔어요?|네.",
        "정말일까!?|“그래.”",
        "갔다.|‘대수’라는 말",
        "갔다...그리고",
        "그는 갔다.”라고",
    ],
)
def test_korean_sentences_without_a_space(expected: str, form: Literal["NFC", "NFD"]) -> None:
    expected = unicodedata.normalize(form, expected)
    assert cut(expected.replace("|", "")) == expected


def test_offsets_point_into_the_text_as_given() -> None:
    assert sentence_spans("  Go.\n Stop!") == [(2, 5), (7, 12)]
