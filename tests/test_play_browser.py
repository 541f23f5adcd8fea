"""The playground in a real browser: both languages, every room, by mouse and keyboard, on a phone, in the dark."""

from __future__ import annotations

import re
import urllib.parse

import numpy as np
import pytest

from elmokit import Elmo
from elmokit.serve.play.export import export_page, own_examples
from elmokit.serve.play.joined import examples
from helpers.browsers import AXE, Visit, chromium
from helpers.servers import make_world, running

pytestmark = pytest.mark.slow
MODELS = ("en-small", "ko-small")
ROOMS = ("contexts", "letters", "readers", "layers", "mix", "task")
LANGUAGES = ("en", "ko")
SENTENCES = {
    "en": ("The bank closed early today .", "We walked along the bank ."),
    "ko": ("겨울에는 눈이 많이 온다 .", "아이의 눈이 맑다 ."),
}
ATTACKS = (
    "<img src=x onerror=alert(1)>",
    '"><script>globalThis.hit=1</script>',
    "javascript:alert(1)",
    "'-alert(1)-' </script><svg onload=alert(1)>",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(browser):
    with running(*MODELS, command="play") as server:
        yield server


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model that is opened at once."""
    return make_world(tmp_path_factory.mktemp("world")).arguments[:1]


@pytest.fixture
def visit(browser, server):
    """Opens the page; what went wrong there fails the test."""

    def opened(hash="", **options):
        return Visit(browser, f"{server.url}/{hash}", **options)

    return opened


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_room_shows_its_picture_and_follows_what_is_typed_and_picked(visit, lang):
    with visit(lang=lang) as reader:
        assert reader.page.locator("html").get_attribute("lang") == lang
        assert reader.rooms == list(ROOMS)
        before = {}
        for room in ROOMS:
            before[room] = reader.enter(room)
            assert reader.trouble(room) == ""
            assert len(before[room]) > 20
        reader.page.evaluate("scrollTo(0, 0)")
        for side, sentence in zip("ab", SENTENCES[lang]):
            reader.type(side, sentence)
            assert reader.words(side) == sentence.split()
        reader.page.locator("#words-a .word").nth(2).click()
        assert reader.picked("a") == [SENTENCES[lang][0].split()[2]]
        for room in ROOMS:
            assert reader.enter(room) != before[room], room
            assert reader.trouble(room) == ""


def cosines_of(lang, a, b, wa, wb):
    """By layer, with nothing but the library's vectors."""
    elmo = Elmo.from_pretrained(f"{lang}-small")
    first, second = (vectors[:, at] for vectors, at in zip(elmo.embed([a, b]), (wa, wb)))
    return [
        float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
        for one, other in zip(first.astype(np.float64), second.astype(np.float64))
    ]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_numbers_on_the_page_are_the_librarys(visit, lang):
    shown = ".contexts-row:is(.layer-0, .layer-1, .layer-2) .contexts-value"
    with visit(lang=lang) as reader:
        reader.enter("contexts")
        one = next(one for one in examples() if one["lang"] == lang)
        cases = [(one["a"], one["b"], one["wa"], one["wb"]), (*SENTENCES[lang], 2, 1)]
        for a, b, wa, wb in cases:
            reader.page.evaluate("scrollTo(0, 0)")
            reader.type("a", a)
            reader.type("b", b)
            reader.page.locator("#words-a .word").nth(wa).click()
            reader.page.locator("#words-b .word").nth(wb).click()
            reader.enter("contexts")
            told = [text.replace("\N{MINUS SIGN}", "-") for text in reader.page.locator(shown).all_inner_texts()]
            assert told == [f"{cosine:.2f}" for cosine in cosines_of(lang, a, b, wa, wb)]
            assert len(told) == 3


@pytest.mark.parametrize("lang", LANGUAGES)
def test_examples_and_the_switch_of_languages(visit, lang):
    with visit(lang=lang) as reader:
        reader.enter("contexts")
        for one in [*examples(), *reversed(examples())]:
            reader.page.get_by_role("button", name=one["word"], exact=True).first.click()
            for side in "ab":
                reader.page.wait_for_function(
                    "([side, count]) => document.querySelectorAll(`#words-${side} .word`).length === count",
                    arg=[side, len(one[side].split())],
                )
                assert reader.page.input_value(f"#sentence-{side}") == one[side]
            reader.settle("contexts")
            for side in "ab":
                assert reader.picked(side) == [one[side].split()[one[f"w{side}"]]]
            assert reader.page.locator("#model").inner_text().find(f"{one['lang']}-small") >= 0
        first = reader.page.locator("h1").inner_text()
        reader.page.locator(".switches button").first.click()
        other = "en" if lang == "ko" else "ko"
        assert reader.page.locator("html").get_attribute("lang") == other
        assert reader.page.locator("h1").inner_text() != first
        assert reader.page.input_value("#sentence-a") == examples()[0]["a"]  # the sentence stays
        assert reader.enter("contexts")


def focused(reader):
    return reader.page.evaluate(
        "() => { const { className, textContent } = document.activeElement; return [className, textContent]; }"
    )


def test_a_word_is_picked_by_the_keyboard_alone_and_keeps_the_focus(visit):
    with visit() as reader:
        before = reader.enter("contexts")
        reader.page.evaluate("scrollTo(0, 0)")
        reader.page.keyboard.press("Tab")
        assert focused(reader)[0] == "skip"  # the first thing: past all this
        for _ in range(40):
            reader.page.keyboard.press("Tab")
            if focused(reader)[0] == "word":
                break
        word = focused(reader)[1]
        assert word == reader.words("a")[0] != reader.picked("a")[0]
        reader.page.keyboard.press("Enter")
        reader.page.wait_for_function("() => document.querySelector('#words-a .word').ariaPressed === 'true'")
        reader.settle("contexts")
        assert reader.picked("a") == [word]
        assert focused(reader)[1] == word
        assert reader.picture("contexts") != before


@pytest.mark.parametrize("lang", LANGUAGES)
def test_everything_that_can_be_done_is_reached_by_tab_alone(visit, lang):
    with visit(lang=lang) as reader:
        for room in ROOMS:
            reader.enter(room)
        unreachable = reader.page.evaluate(
            "() => [...document.querySelectorAll('button, input, select, textarea, a[href], summary, [tabindex]')]"
            ".filter((one) => one.tabIndex < 0 && !one.disabled && one.getAttribute('role') !== 'radio')"
            ".map((one) => one.outerHTML)"
        )
        assert unreachable == []
        clickable = reader.page.evaluate("() => [...document.querySelectorAll('[onclick]')].length")
        assert clickable == 0


def fields(reader):
    """Every field that text can be typed into, as a selector each."""
    return reader.page.evaluate(
        """() => [...document.querySelectorAll("input, textarea")]
        .filter((one) => !["range", "checkbox", "radio", "password", "button", "number"].includes(one.type))
        .map((one) => {
          const room = one.closest("section")?.id;
          const all = [...(room ? document.getElementById(room) : document).querySelectorAll(one.tagName)];
          return [room ? `#${room} ${one.tagName}` : one.tagName, all.indexOf(one)];
        })"""
    )


def forgive_refusals(reader):
    """A question that makes no sense is answered by 422, which the browser logs."""
    reader.wrong = [each for each in reader.wrong if "status of 422" not in each]


def check_unhurt(reader):
    assert reader.page.evaluate("globalThis.hit") is None
    assert reader.page.locator("body img, body script, body iframe, body object, body embed").count() == 0
    assert reader.page.locator("[onerror], [onload], a[href^='javascript']").count() == 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_any_field_stays_text(visit, attack):
    with visit() as reader:
        for room in ROOMS:
            reader.enter(room)
        for selector, place in fields(reader):
            reader.page.locator(selector).nth(place).fill(attack)
            reader.page.keyboard.press("Enter")
        reader.rest()
        shown = "".join(reader.words("a"))
        assert shown == re.sub(r"\s", "", attack)
        for room in ROOMS:
            reader.enter(room)
        check_unhurt(reader)
        forgive_refusals(reader)


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_the_address_stays_text(visit, attack):
    """In every name that the page reads from it, whatever kind its value has."""
    with visit() as reader:
        names = reader.page.evaluate(
            """async (rooms) => {
              const modules = await Promise.all(rooms.map((room) => import(`/play/rooms/${room}.js`)));
              return modules.flatMap(Object.values).flatMap((room) => Object.keys(room.state ?? {}));
            }""",
            ROOMS,
        )
    kept = dict.fromkeys(["a", "b", "wa", "wb", "lang", "theme", "room", *names], attack)
    with visit("#" + urllib.parse.urlencode(kept)) as reader:
        for room in ROOMS:
            reader.page.locator(f"#{room}").scroll_into_view_if_needed()
            reader.rest()
        check_unhurt(reader)
        forgive_refusals(reader)


def test_a_link_shows_the_same_to_another_reader(visit):
    with visit() as reader:
        reader.type("a", SENTENCES["en"][0])
        reader.type("b", SENTENCES["en"][1])
        reader.page.locator("#words-a .word").nth(2).click()
        picture = reader.enter("letters")
        reader.page.locator("#letters .link").click()
        address = reader.page.evaluate("location.hash")
    with visit(address, lang="ko") as other:  # the language goes with the link
        assert other.page.locator("html").get_attribute("lang") == "en"
        assert [other.page.input_value(f"#sentence-{side}") for side in "ab"] == list(SENTENCES["en"])
        other.settle("letters")
        assert other.picked("a") == ["closed"]
        assert other.picture("letters") == picture
        assert other.page.evaluate("document.getElementById('letters').getBoundingClientRect().top < innerHeight")


def test_the_last_answer_wins(visit):
    """The first answer comes late; it must neither be shown nor stand in the way."""
    with visit() as reader:
        reader.enter("contexts")
        held = []

        def hold(route):
            if "wooden" in (route.request.post_data or ""):
                held.append((route, route.fetch()))
            else:
                route.continue_()

        reader.page.evaluate("scrollTo(0, 0)")
        reader.page.route("**/play/*", hold)
        reader.page.fill("#sentence-a", "The wooden bank stood there .")
        reader.page.wait_for_timeout(300)
        assert held
        reader.page.fill("#sentence-a", SENTENCES["en"][0])
        reader.page.wait_for_function("() => document.querySelectorAll('#words-a .word').length === 6")
        reader.enter("contexts")
        shown = reader.picture("contexts")
        for route, response in held:
            route.fulfill(response=response)
        reader.page.wait_for_timeout(500)
        assert reader.words("a") == SENTENCES["en"][0].split()
        assert reader.picture("contexts") == shown
        state = reader.page.evaluate("location.hash")
        reader.page.unroute("**/play/*")
    with visit(state) as fresh:
        assert fresh.enter("contexts") == shown


def test_a_server_that_is_gone_is_said_and_found_again(browser, small):
    """Whoever typed meanwhile has the picture as soon as it is back, without touching anything."""
    with running(*small) as first:
        port = first.port
        reader = Visit(browser, f"{first.url}/")
        before = reader.enter("contexts")
        banner = reader.page.locator("#banner")
        assert banner.is_hidden()
        first.stop()
        reader.page.fill("#sentence-a", SENTENCES["en"][0])
        banner.wait_for(state="visible")
        assert reader.picture("contexts") == before  # what was there stays
    with running(*small, port=port):
        banner.wait_for(state="hidden")
        reader.settle("contexts")
        assert reader.words("a") == SENTENCES["en"][0].split()
        assert reader.picture("contexts") != before
        assert [each for each in reader.wrong if "ERR_CONNECTION_REFUSED" not in each] == []
        reader.context.close()


def test_a_key_is_asked_for_and_used(browser, small):
    with running(*small, "--api-key", "secret") as server:
        reader = Visit(browser, f"{server.url}/")
        field = reader.page.locator("#banner input")
        field.wait_for()
        assert reader.words("a") == []
        field.fill("secret")
        field.press("Enter")
        reader.page.wait_for_selector("#words-a .word")
        assert reader.page.locator("#banner").is_hidden()
        reader.enter("contexts")
        assert [each for each in reader.wrong if "status of 401" not in each] == []
        reader.context.close()


def too_wide(reader):
    """What stands out to the right of the page, if it can be scrolled sideways."""
    return reader.page.evaluate(
        """() => {
          const { scrollWidth, clientWidth } = document.documentElement;
          const name = (one) => `${one.closest("section, header, #bench")?.id} ${one.tagName}.${one.className}`;
          const scrolls = (one) =>
            one && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
          const wide = [...document.querySelectorAll("body *")].filter(
            (one) => one.getBoundingClientRect().right > clientWidth + 1 && !scrolls(one.parentElement));
          return scrollWidth > clientWidth ? [scrollWidth - clientWidth, ...wide.map(name).slice(0, 8)] : [];
        }"""
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_is_wider_than_a_phone(visit, lang):
    with visit(lang=lang, viewport={"width": 360, "height": 740}) as reader:
        for room in ROOMS:
            reader.enter(room)
        assert too_wide(reader) == []
        reader.type("a", "x" * 100 + " " + "밥" * 60)
        reader.type("b", "W" * 120)
        for room in ROOMS:
            reader.enter(room)
        assert too_wide(reader) == []


def test_light_and_dark_as_the_machine_has_it_and_by_the_button(visit):
    def brightness(reader):
        colour = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    for scheme, button in (("light", "dark"), ("dark", "light")):
        with visit(color_scheme=scheme) as reader:
            assert (brightness(reader) > 128) == (scheme == "light")
            reader.page.locator(".switches button").nth(1).click()
            assert (brightness(reader) > 128) == (button == "light")
            state = reader.page.evaluate("location.hash")
        with visit(state, color_scheme=scheme) as again:
            assert (brightness(again) > 128) == (button == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_axe_finds_no_violation(visit, lang, scheme):
    if not AXE.is_file():
        pytest.skip("there is no axe-core here: npm install --no-save axe-core")
    with visit(lang=lang, color_scheme=scheme, script=AXE.read_text(encoding="utf-8")) as reader:
        for room in ROOMS:
            reader.enter(room)
        found = reader.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        assert [
            (violation["id"], node["target"], node["failureSummary"])
            for violation in found["violations"]
            for node in violation["nodes"]
        ] == []


# The exported page


@pytest.fixture(scope="module")
def exported(browser, tmp_path_factory):
    return export_page(tmp_path_factory.mktemp("exported") / "page")


NOTES_MISSING = """
globalThis.missing = [];
let answers;
Object.defineProperty(globalThis, "elmoAnswers", {
  get: () => answers,
  set: (given) => {
    answers = new Proxy(given, { get: (all, key) => (key in all ? all[key] : void missing.push(key)) });
  },
});
"""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_an_exported_page_shows_every_room_without_a_server(browser, exported, lang):
    """And no room asks for what is not there, not even one that would not say so."""
    with Visit(browser, exported.as_uri(), lang=lang, script=NOTES_MISSING) as reader:
        asked = []
        reader.page.on("request", lambda request: asked.append(request.url))
        for one in own_examples():
            reader.page.evaluate("scrollTo(0, 0)")
            reader.page.get_by_role("button", name=one.word, exact=True).first.click()
            for room in ROOMS:
                reader.enter(room)
                assert reader.page.locator(".trouble").all_inner_texts() == [], (room, one)
                assert reader.page.evaluate("globalThis.missing") == []
        assert [url for url in asked if not url.startswith("data:")] == []
        assert "en-small" in reader.page.locator("footer").inner_text()


def test_an_exported_page_says_what_it_has_no_answer_to(browser, exported):
    with Visit(browser, exported.as_uri()) as reader:
        reader.enter("contexts")
        reader.page.fill("#sentence-a", "Something else .")
        reader.page.wait_for_selector("#bench-trouble .trouble")
        assert "elmo play" in reader.page.locator("#bench-trouble").inner_text()
        assert "elmo play" in reader.page.locator("#contexts > .trouble").inner_text()
        assert reader.picture("contexts")  # what there is stays
        reader.page.get_by_role("button", name="stick", exact=True).first.click()
        reader.settle("contexts")
        assert reader.page.locator(".trouble").count() == 0


def test_an_exported_page_and_the_server_show_the_same(browser, exported, visit):
    with Visit(browser, exported.as_uri()) as reader, visit() as other:
        for room in ROOMS:
            assert reader.enter(room) == other.enter(room)
