"""The rooms' shared ground: which model reads a sentence, and the galleries."""

from __future__ import annotations

from dataclasses import dataclass, field

from elmokit.embed.embedder import Elmo
from elmokit.serve.offer import Offer
from elmokit.serve.play.gallery import Gallery, language_of

KOREAN_NAMES = ("ko", "korean")


@dataclass
class Playground:
    offer: Offer
    rehearsed: bool = False  # what the rooms read at first use is there, or being read
    _galleries: dict[tuple[str, str], Gallery] = field(default_factory=dict)

    def model_for(self, *texts: str) -> tuple[str, Elmo]:
        """Korean sentences are for a model with ko in its name, others for one without; else for the first."""
        korean = language_of(*texts) == "ko"
        for name, elmo in self.offer.models.items():
            parts = name.lower().replace("_", "-").replace("/", "-").split("-")
            if any(part in KOREAN_NAMES for part in parts) == korean:
                return name, elmo
        return self.offer.first, self.offer.models[self.offer.first]

    def gallery(self, *texts: str) -> Gallery:
        name, elmo = self.model_for(*texts)
        language = language_of(*texts)
        if (name, language) not in self._galleries:
            self._galleries[name, language] = Gallery(elmo, language)
        return self._galleries[name, language]
