"""What a person says, sentence by sentence: English by a few patterns, any other language by its question
marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What is to be done with a sentence."""

    ABOUT_MODEL = "about_model"
    """Asks who answers here."""
    OVERVIEW = "overview"
    """Asks what is known about the user."""
    FORGET = "forget"
    """Wants something to be forgotten."""
    QUESTION = "question"
    ABOUT_USER = "about_user"
    REMEMBER = "remember"
    STATEMENT = "statement"
    SMALL_TALK = "small_talk"
    """Nothing to keep and nothing to look up."""


@dataclass(frozen=True)
class Sentence:
    """`text` is what to keep or to look for."""

    kind: Kind
    text: str


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_SPACED_END = r"(?<=[.!?…])\s+|\n+"
_UNSPACED_END = r"(?<=[\u3002\uff01\uff1f])\s*"
_END = re.compile(f"{_SPACED_END}|{_UNSPACED_END}")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_APOSTROPHE = "\u2019"
_MENTION = re.compile(r"@[a-z][a-z0-9_-]*[,:]?\s*")
_GREETING = _any(
    r"(?:hello|hi|hey)\b(?: there| sage| again)?[\s,.!:;-]*",
    r"(?:good (?:morning|afternoon|evening|night)|thanks|thank you|bye|goodbye)(?: again| very much)?"
    r"(?:[,.!:;-]\s*|$)",
    r"(?:ok|okay|yes|no|sure|great|cool|well|please)(?:[,.!:;-]\s*|$)",
    r"(?:actually|by the way|btw)[\s,:]+",
)
_CHATTER = _any(
    r"(?:so )?how(?: are|'re) you(?: (?:doing|today|now))*\W*$",
    r"how(?: is|'s) it going\W*$",
    r"what(?:'s| is) up\W*$",
    r"(?:that|this|it)(?:'s| is| was) (?:not |so |very )?"
    r"(?:wrong|right|true|false|correct|good|great|nice|bad|fine|cool|funny|ok|okay)\W*$",
    r"(?:you(?:'re| are)(?: so| very| really| not)? \w+|i (?:really )?(?:like|love|hate) you)\W*$",
)
_ABOUT_MODEL = _any(
    r".*\b(?:who|what) are you\b",
    r".*\b(?:which|what) (?:language )?model (?:are you|is this|do you|am i)\b",
    r".*\bare you (?:an? |the )?(?:real|human|person|bot|robot|machine|ai|llm|(?:language )?model|\w*gpt)\b",
    r".*\bwhat(?:'s| is) your name\b",
    r".*\bwhat can you do\b",
    r"(?:i need )?help(?: me)?\W*$",
)
_OVERVIEW = _any(
    r"what(?: all| else)? (?:do|did|have) (?:you|i) (?:know|remember|keep|kept|tell|told|learnt|learned)"
    r"(?: you)?(?: (?:about|of) me)?(?: so far)?\W*$",
    r"(?:tell me|show me|list)(?: all| everything)?(?: that)?(?: you (?:know|remember))?(?: about)?"
    r" (?:me|myself)\W*$",
    r"who am i\W*$",
)
_FORGET = _any(
    r"(?:(?:can|could|will|would) you )?(?:please )?(?:forget|unlearn)\b(?!-)",
    r"(?:(?:can|could|will|would) you )?(?:please )?(?:delete|erase|remove|clear|wipe|undo)"
    r" (?:that|this|it|everything|all|what|my|me|the (?:last|memory|memories|note))\b",
    r"(?:bitte )?(?:vergiss|l(?:ö|oe)sche?)\b(?! nicht)",
    r"(?:oublie|efface|olvida|borra)\b(?! pas)",
)
_VERB = r"(?:'s| (?:is|are|was|were|am|do|does|did|can|could|will|would|should|has|have|had))\b"
_ASKS = _any(
    rf"(?:who|whom|when|where|why|what|how|which|whose){_VERB}",
    rf"(?:what|how|which|whose)(?: \w+){{1,2}}{_VERB}",
    r"(?:do|did|can|could|would) you\b",
    r"(?:is|are|was|were|do|does|did|have|has|am) (?:i|my|we|there)\b",
    r"(?:tell|show|remind) me\b",
    r"(?:find|search|look up|look for|list)\b",
)
_LEAD = re.compile(
    r"(?:(?:can|could|would|do) you )?(?:please )?"
    r"(?:tell me|show me|remind me|know|remember|find|search for|search|look up|look for|list)\b"
    r"(?: (?:about|of|for|that|if|whether|all|everything))*[\s:,]*",
    re.IGNORECASE,
)
_AS_A_WHOLE = (
    (Kind.ABOUT_MODEL, _ABOUT_MODEL),
    (Kind.SMALL_TALK, _CHATTER),
    (Kind.OVERVIEW, _OVERVIEW),
    (Kind.FORGET, _FORGET),
)
_ASKED_TO_REMEMBER = re.compile(
    r"(?:can|could|will|would) you (?:please )?(?:remember|note|keep in mind)(?: that| this)[\s:,]+(?=\w)",
    re.IGNORECASE,
)
_TO_DO = _any(r"(?:please )?(?:remember|do not forget|don't forget|never forget) to\b")
_REMEMBER = _any(
    r"(?:please )?(?:remember|note|keep in mind|do not forget|don't forget|never forget|write down)"
    r"(?: that| this)?[\s:,]+(?=\w)",
)
_ABOUT_USER = _any(
    r"my (?:\w+ )?(?:name|nickname|birthday|age|job|profession|hobby|address|email|phone)s? (?:is|are|was)\b",
    r"my (?:\w+ )?(?:wife|husband|partner|girlfriend|boyfriend|son|daughter|child|children|kid|mother|father"
    r"|sister|brother|dog|cat|pet)(?:'?s)?(?: name)? (?:is|are|was|were)\b",
    r"my favou?rite\b",
    r"call me\b",
    r"i (?:was born|grew up|come from|speak|study|live|lived|moved|work|own)\b",
    r"i (?:really |also |do not |don't )?(?:like|love|hate|prefer|enjoy|dislike)\b",
    r"i(?: am|'m) (?:an? |from |called |allergic |vegan|vegetarian|married|\d)",
    r"i have (?:an?|no|\d+|two|three|four)\b",
)
_I_AM_SOMEBODY = re.compile(r"[Ii](?: am|'m) [A-ZÀ-ÖØ-Þ]\w+")
_LONGEST_KEPT = 1_000
"""Characters that one memory gets: a page is kept in pieces that a search can tell apart."""
_PIECE = re.compile(rf"\S[\s\S]{{0,{_LONGEST_KEPT - 1}}}(?!\S)|\S[\s\S]{{0,{_LONGEST_KEPT - 1}}}")
_FEWEST_BYTES = 16
"""Of a single word that is worth keeping: languages that write no spaces need many for each character."""


def split_sentences(text: str) -> list[str]:
    """The text in sentences, by its punctuation and lines."""
    return [part.strip() for part in _END.split(text) if part.strip()]


def read_sentences(message: str) -> list[Sentence]:
    """The sentences of a message. Statements that follow one another are one as far as they fit: they belong
    together."""
    found: list[Sentence] = []
    for part in split_sentences(_after_mention(message)):
        sentence = _read(part)
        if found and sentence.kind is Kind.STATEMENT is found[-1].kind:
            joined = f"{found[-1].text} {sentence.text}"
            if len(joined) <= _LONGEST_KEPT:
                found[-1] = Sentence(Kind.STATEMENT, joined)
                continue
        found += _pieces(sentence)
    return found


def _pieces(sentence: Sentence) -> list[Sentence]:
    """One that is too long to keep in pieces of whole words."""
    if sentence.kind is Kind.QUESTION or len(sentence.text) <= _LONGEST_KEPT:
        return [sentence]
    return [Sentence(sentence.kind, piece.rstrip()) for piece in _PIECE.findall(sentence.text)]


def _after_mention(message: str) -> str:
    found = _MENTION.match(message)
    return message[found.end() :] if found else message


def _read(part: str) -> Sentence:
    text = _without_greeting(part)
    plain = text.replace(_APOSTROPHE, "'")
    if not re.search(r"\w", text):
        return Sentence(Kind.SMALL_TALK, part)
    for kind, pattern in _AS_A_WHOLE:
        if pattern.match(plain):
            return Sentence(kind, part)
    if rest := _after(_ASKED_TO_REMEMBER, text, plain):
        return Sentence(Kind.REMEMBER, _capital(rest.rstrip("?")))
    if text.endswith(_QUESTION_MARKS) or _ASKS.match(plain):
        return Sentence(Kind.QUESTION, _after(_LEAD, text, plain) or text)
    if _TO_DO.match(plain):
        return Sentence(Kind.REMEMBER, _capital(text))
    if rest := _after(_REMEMBER, text, plain):
        return Sentence(Kind.REMEMBER, _capital(rest))
    if _ABOUT_USER.match(plain) or _I_AM_SOMEBODY.match(plain):
        return Sentence(Kind.ABOUT_USER, _capital(text))
    if len(text.split()) < 2 and len(text.encode()) < _FEWEST_BYTES:
        return Sentence(Kind.SMALL_TALK, part)
    return Sentence(Kind.STATEMENT, _capital(text))


def _after(lead: re.Pattern[str], text: str, plain: str) -> str:
    """What comes after such a beginning; empty if there is none, or nothing after it."""
    found = lead.match(plain)
    rest = text[found.end() :] if found else ""
    return rest if re.search(r"\w", rest) else ""


def _without_greeting(text: str) -> str:
    while text and (found := _GREETING.match(text)):
        text = text[found.end() :]
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
