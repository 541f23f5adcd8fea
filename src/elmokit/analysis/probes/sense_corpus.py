"""Sense-tagged corpora: X.data.xml and X.gold.key.txt of the unified WSD framework, and WordNet's first senses.

The framework is that of Raganato et al. 2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from elmokit.errors import UserError
from elmokit.text.corpus import COMPRESSED, LineReader

DATA, KEYS = ".data.xml", ".gold.key.txt"
# The digit after a sense key's %: satellites of adjectives (5) are adjectives and numbered with them.
POS = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
# WordNet's fields by the number after the first colon of a sense key: its lexicographers' files, lexnames(5WN).
FIELDS = (
    *(
        "any",
        "derived",
        "any",
        "top",
        "act",
        "animal",
        "artefact",
        "attribute",
        "body",
        "cognition",
        "communication",
    ),
    *("event", "feeling", "food", "group", "location", "motive", "object", "person", "phenomenon", "plant"),
    *("possession", "process", "quantity", "relation", "shape", "state", "substance", "time", "body", "change"),
    *("cognition", "communication", "competition", "consumption", "contact", "creation", "emotion", "motion"),
    *("perception", "possession", "social", "stative", "weather", "participle"),
)


class Instance(NamedTuple):
    id: str
    lemma: str  # in lower case, _ for spaces, as in WordNet
    pos: str
    start: int  # its tokens are tokens[start:end] of the sentence
    end: int


class SenseSentence(NamedTuple):
    tokens: list[str]
    instances: list[Instance]


class SenseCorpus(NamedTuple):
    path: Path
    sentences: list[SenseSentence]
    keys: dict[str, list[str]]  # an instance's gold senses

    @property
    def name(self) -> str:
        """semcor of semcor.data.xml.xz"""
        return _plain_name(self.path).removesuffix(DATA)


def read_senses(data: str | Path, keys: str | Path | None = None) -> SenseCorpus:
    """A corpus and its keys, by default those beside it: X.gold.key.txt for X.data.xml, compressed or not."""
    data = Path(data)
    keys = _keys_beside(data) if keys is None else Path(keys)
    sentences = _Reader(data).sentences
    instances = [instance.id for sentence in sentences for instance in sentence.instances]
    if not instances:
        raise UserError(f"{data}: expected sentences with <instance> elements, found none")
    gold = _read_keys(keys)
    missing = [instance for instance in instances if instance not in gold]
    if missing:
        raise UserError(
            f"{keys}: expected a key for each instance of {data}, found none for {len(missing)} of "
            f"{len(instances)}, such as {missing[0]}: are these two files of the same corpus?"
        )
    if len(gold) != len(instances):
        other = next(iter(gold.keys() - set(instances)), instances[0])
        raise UserError(
            f"{data}: expected each of the {len(gold)} instances of {keys} once, found {len(instances)}; "
            f"{other} is missing or there twice"
        )
    return SenseCorpus(data, sentences, gold)


def read_wordnet_index(path: str | Path) -> dict[tuple[str, str], str]:
    """index.sense -> the first sense of each lemma and part of speech."""
    first = {}
    with LineReader(path) as lines:
        for line in lines:
            fields = line.text.split()
            lemma, percent, rest = fields[0].rpartition("%") if fields else ("", "", "")
            if len(fields) != 4 or not percent or rest[:1] not in POS or not fields[2].isdigit():
                raise UserError(
                    f"{path}, line {line.number}: expected WordNet's index.sense (sense key, offset, sense "
                    f"number, count), found {line.text[:60]!r}"
                )
            if fields[2] == "1":
                first[lemma, POS[rest[0]]] = fields[0]
    if not first:
        raise UserError(f"{path}: expected WordNet's index.sense, found no first sense in it")
    return first


def sense_in_words(key: str) -> str:
    """bank%1:14:00:: -> noun: group. The part of speech and WordNet's field; the second of a field has a 2.

    The key has no more to tell; the glosses are in files of WordNet that are not asked for here.
    """
    try:
        kind, field, number, head, _ = key.rpartition("%")[2].split(":")
        name = f"{POS[kind].lower()}: {FIELDS[int(field)]}" + (f" {int(number) + 1}" if int(number) else "")
    except (ValueError, KeyError, IndexError):
        return key
    return f"{name}, like {head}" if head else name


def _plain_name(path: Path) -> str:
    return path.stem if path.suffix.lower() in COMPRESSED else path.name


def _keys_beside(data: Path) -> Path:
    name = _plain_name(data)
    if not name.endswith(DATA):
        raise UserError(
            f"{data}: expected a name that ends in {DATA}, to find the keys beside it: give the keys' file"
        )
    plain = name.removesuffix(DATA) + KEYS
    for suffix in ("", *COMPRESSED):
        if (found := data.with_name(plain + suffix)).is_file():
            return found
    raise UserError(f"{data}: no {plain} beside it (or with {', '.join(COMPRESSED)}): give the keys' file")


def _read_keys(path: Path) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    with LineReader(path) as lines:
        for line in lines:
            if not line.text.strip():
                continue
            instance, *senses = line.text.split()
            if not senses or not all("%" in sense for sense in senses) or instance in keys:
                raise UserError(
                    f"{path}, line {line.number}: expected a new instance and its sense keys, "
                    f"found {line.text[:60]!r}"
                )
            keys[instance] = senses
    return keys


class _Reader:
    """By expat itself, a line at a time. It fetches nothing; a file that declares entities is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sentences: list[SenseSentence] = []
        self._sentence: SenseSentence | None = None
        self._text: list[str] | None = None  # of the token at hand
        self._attributes: dict[str, str] = {}
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_entity
        try:
            for piece in self._pieces():
                self._parser.Parse(piece)
            self._parser.Parse("", True)
        except expat.ExpatError as error:
            raise UserError(
                f"{path}, line {error.lineno}: not well-formed XML ({expat.ErrorString(error.code)}): "
                "expected a .data.xml file of the WSD framework, whole"
            ) from None

    def _pieces(self) -> Iterator[str]:
        with LineReader(self.path) as lines:
            for line in lines:
                yield line.text + "\n"

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise UserError(self._here(f"the file declares the entity {name!r}, which is not needed here: remove it"))

    def _here(self, message: str) -> str:
        return f"{self.path}, line {self._parser.CurrentLineNumber}: {message}"

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sentence":
            if self._sentence is not None:
                raise UserError(self._here("a <sentence> inside another one"))
            self._sentence = SenseSentence([], [])
        elif tag in ("wf", "instance"):
            if self._sentence is None or self._text is not None:
                where = "outside a <sentence>" if self._sentence is None else "inside another token"
                raise UserError(self._here(f"a <{tag}> {where}"))
            needed = ("id", "lemma", "pos") if tag == "instance" else ()
            if absent := [name for name in needed if not attributes.get(name)]:
                raise UserError(self._here(f"expected an <instance> with id, lemma and pos, found no {absent[0]}"))
            self._text, self._attributes = [], attributes

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        if tag == "sentence":
            assert self._sentence is not None
            if self._sentence.tokens:
                self.sentences.append(self._sentence)
            self._sentence = None
        elif tag in ("wf", "instance"):
            assert self._text is not None
            assert self._sentence is not None
            tokens, self._text = "".join(self._text).split(), None
            start = len(self._sentence.tokens)
            self._sentence.tokens.extend(tokens)
            if tag == "instance":
                if not tokens:
                    raise UserError(self._here(f"the instance {self._attributes['id']} has no text"))
                lemma = self._attributes["lemma"].lower().replace(" ", "_")
                instance = Instance(
                    self._attributes["id"], lemma, self._attributes["pos"], start, start + len(tokens)
                )
                self._sentence.instances.append(instance)
