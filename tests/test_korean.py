"""Korean morphemes as stretches of the text: whatever Kiwi reads into it, nothing is lost and nothing doubled."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import unicodedata
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.text import korean
from elmokit.text.tokens import TokenizerConfig, make_tokenizer

KIWI = "Korean morphemes need kiwipiepy (the extra ko)"

PIECES = st.sampled_from(
    [
        *[
            "밥을",
            " 했다",
            "먹었음 ",
            "그래서",
            "갑니다",
            "大韓民國",
            "ㅋㅋ",
            "ㅠ",
            "ᄒᆞᆫ",
            "하\u11ab",
            "뷁",
            "라고",
        ],
        *[" don't ", "U.S.", "e-mail", "3.5", "http://a.kr/가", "#해시", "e\u0301", "😀", "👨‍👩‍👧"],
        *".!?…。\"'“”‘’()[]",
        *" \n\r\t\x1c\x85\u2028\u3000",
        *"\x00\u200b\ud800\udc00\ufeff\u0378\u11a8\u1161\uffa1",
        "\n\n",
        unicodedata.normalize("NFD", "했다. "),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join))


def tokens(text: str) -> list[str]:
    pytest.importorskip("kiwipiepy", reason=KIWI)
    return make_tokenizer("korean").tokens(text)


def cut(text: str) -> str:
    pytest.importorskip("kiwipiepy", reason=KIWI)
    return "|".join(make_tokenizer("korean").sentences(text))


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("나는 밥을 먹었습니다.", "나 는 밥 을 먹 었 습니다 ."),
        ("그는 했다", "그 는 했 다"),  # 하 and 었 share a syllable
        ("집에 갑니다", "집 에 갑니다"),  # so do 가 and ㅂ니다
        ("재밌다 ㅋㅋ ㅠㅠ", "재밌 다 ㅋㅋ ㅠㅠ"),
        ("大韓民國은 크다", "大韓民國 은 크 다"),
        ("U.S.의 e-mail을 don't 1,000원에", "U.S. 의 e-mail 을 do n't 1,000 원 에"),
        ("Apple Inc.는 a@b.com에 있다", "Apple Inc. 는 a@b.com 에 있 다"),
        ("😀밥을👨‍👩‍👧 먹자", "😀 밥 을 👨‍👩‍👧 먹 자"),
        ("밥\u200b을", "밥\u200b 을"),
    ],
)
def test_morphemes(text, expected, form):
    assert tokens(unicodedata.normalize(form, text)) == expected.split(" ")


def test_offsets_are_those_of_the_text_as_given():
    pytest.importorskip("kiwipiepy", reason=KIWI)
    text = unicodedata.normalize("NFD", "😀 \ud83d밥을 했다")
    spans = make_tokenizer("korean").spans(text)
    parts = [unicodedata.normalize("NFC", text[start:end]) for start, end in spans]
    assert parts == ["😀", "\ud83d", "밥", "을", "했", "다"]


@given(TEXTS)
@example("밥\ud800을 먹\x00었다")
@example("가" * 1000)
@settings(deadline=None)
def test_tokens_are_ordered_and_cover_all_but_white_space(text):
    pytest.importorskip("kiwipiepy", reason=KIWI)
    spans = make_tokenizer("korean").spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())


@given(TEXTS)
@settings(deadline=None)
def test_sentences_are_ordered_trimmed_and_cover_the_text(text):
    pytest.importorskip("kiwipiepy", reason=KIWI)
    spans = make_tokenizer("korean").sentence_spans(text)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(text[start:end] and text[start:end] == text[start:end].strip() for start, end in spans)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())


@pytest.mark.parametrize("word", ["가" * 10_000, "x" * 10_000 + "가", "ㅋ" * 10_000, "뷁😀" * 5_000])
def test_very_long_words(word):
    assert "".join(tokens(word)) == word


def test_open_quotes_without_end_come_back():
    """Kiwi alone would take quadratic time, and tens of seconds here."""
    text = "“했다. " * 10_000
    assert "".join(tokens(text)) == text.replace(" ", "")
    assert cut(text).endswith("했다.")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "expected",
    [
        "오늘 밥 먹었음|그래서 배불러요 ㅋㅋ|그런데 또 먹고싶다",
        "그는 “나는 간다. 너도 와.”라고 말했다.|그녀는 웃었다.",
        "수를 대신한다는 뜻의 번역어이다.|‘대수’라는 번역어는 1859년에 처음 쓰였다.",
        "그 값은 항상 실수이다(복소수가 아니다).|이것은 중요하다.",
        "나는 갔다.|Mr. Smith met Dr. Jones in the U.S. Army.|He left.|그는 갔다.",
        "No Korean here.|None at all.",
    ],
)
def test_sentences(expected, form):
    expected = unicodedata.normalize(form, expected)
    assert cut(expected.replace("|", " ")) == expected


def test_sentences_without_a_space_and_across_blank_lines():
    assert cut("그는 갔다.그는 왔다.") == "그는 갔다.|그는 왔다."
    assert cut("첫째 줄\n\n둘째 줄이 있다.") == "첫째 줄|둘째 줄이 있다."


def test_it_is_the_same_in_threads():
    pytest.importorskip("kiwipiepy", reason=KIWI)
    tokenizer = make_tokenizer("korean")
    texts = [f"나는 {n}번 밥을 먹었습니다." for n in range(200)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.tokens, texts)) == [tokenizer.tokens(text) for text in texts]
    assert len(korean._loaded) == 1


@pytest.mark.slow
def test_it_goes_to_another_process():
    pytest.importorskip("kiwipiepy", reason=KIWI)
    tokenizer = make_tokenizer(TokenizerConfig("korean", "none"))
    here = tokenizer.tokens("밥을 했다")
    assert pickle.loads(pickle.dumps(tokenizer)).config == tokenizer.config
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(tokenizer.tokens, "밥을 했다").result() == here


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 12), reason="forking warns or is not there")
def test_a_forked_process_goes_on_with_the_same_kiwi():
    pytest.importorskip("kiwipiepy", reason=KIWI)
    tokenizer = make_tokenizer("korean")
    here = tokenizer.tokens("밥을 했다")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        assert pool.submit(tokenizer.tokens, "밥을 했다").result() == here


def test_what_to_install_is_said_with_the_first_korean_text(monkeypatch):
    monkeypatch.setattr(korean, "_loaded", [])
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    tokenizer = make_tokenizer("korean")
    assert tokenizer.tokens("No Korean.") == ["No", "Korean", "."]
    for read in (tokenizer.tokens, tokenizer.sentences):
        with pytest.raises(ValueError, match=r"korean needs kiwipiepy: pip install 'elmokit\[ko\]'"):
            read("밥을 먹었다.")
