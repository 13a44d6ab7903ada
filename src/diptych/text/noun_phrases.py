"""A noun phrase chunker for plain English captions, for texts without annotated phrases.

It uses neither a grammar nor a trained tagger: a phrase begins with a determiner, a number, an adjective or a noun, and
ends before a word from a closed list, or before one that looks or is placed like a verb. That is right for most phrases
in captions; prefer annotated phrases if there are any.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+(?:[-'’.&][^\W_]+)*|['’][sS]\b|\S")


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DETERMINERS = _words(
    "a an the his her its their my our your this these those some several many each every another both all no any few "
    "various numerous multiple"
)
_NUMBERS = _words("one two three four five six seven eight nine ten eleven twelve dozen")
_SINGULAR = _words("a an this each every another")
_ADJECTIVES = _words(
    "black white red blue green yellow orange brown pink purple gray grey tan beige blond blonde gold golden silver "
    "dark light bright colorful colourful young old older younger elderly little small large big huge giant tall long "
    "short tiny high low wide narrow thick thin asian african american chinese indian japanese happy male female wet "
    "dry dirty muddy snowy sandy rocky grassy wooden open empty busy other different same similar new hot cold blurry "
    "lone single adult teenage bald bare shirtless barefoot pretty cute steep shallow deep calm clear public urban "
    "outdoor indoor professional very brightly colored coloured furry fluffy hairy shaggy curly friendly lovely"
)
_BREAKS = _words(
    "in on at to with by for from into onto over under through down up off out around near behind beside between "
    "across along against during after before above below toward towards past among amongst amid amidst inside "
    "outside beneath underneath within without about like via upon atop throughout per next until despite except "
    "alongside beyond or but while whilst as because when where whereas so if than then that who whom whose which "
    "what there here it he she they him them i you we us me himself herself itself themselves is are was were be been "
    "being am has have had having do does did doing can could will would may might should must not n't also just "
    "together away apart ready alone ahead front nearby airborne upside too still only even almost already how why "
    "seen made held caught taken shown thrown given done gone stuck asleep"
)
FUNCTION_WORDS = _DETERMINERS | _BREAKS | _NUMBERS | _words("and of not s t very each next near other looks seems")
"""Words that say nothing of what a photo shows."""
_VERBS = _words(
    "act aim appear approach argue arrive ask attack attempt attend balance bark bat bathe be become begin bend bite "
    "blow bounce bow brush build carry catch celebrate chase chat check cheer chew clap clean climb come compete "
    "converse cook cover crawl cross crouch cut dance dig dive do drag draw dress drink drive eat embrace enjoy enter "
    "examine exit explore fall feed fight fish fix float fly follow gather gaze get give go grab grasp greet grin "
    "hang have help hike hit hold hop hug hurdle jog juggle jump keep kick kiss kneel lay lead lean leap learn leave "
    "let lick lie lift listen look make march meet observe overlook paddle paint participate pass pause peer perform "
    "pet pick play point pose pour practice practise prepare pull push put race raise reach read recline relax rest "
    "retrieve ride roll row run scale seem sell serve shake shoot shop shout show sing sip sit skate skateboard ski "
    "sled sleep slide smile smoke sniff snowboard speak spin splash spray sprint squat stand stare start stay step "
    "stick stop stretch stroll surf surround swim swing take talk tend throw tie toss touch travel trot try tumble "
    "turn use wade wait wake walk wander wash watch wave wear work wrestle write yell"
)
# Words that only look like a verb, a plural or an adverb.
_NOT_VERBS = _words(
    "building clothing railing ceiling ring wing king string spring wedding something nothing anything everything "
    "evening morning thing things painting awning earring stocking sling icing sibling bed shed sled seed weed speed "
    "reed red naked hundred"
)
_NOT_PLURALS = _words("bus grass glass dress gas canvas lens tennis christmas iris mattress compass cross kiss")
_NOT_ADVERBS = _words("family elderly lovely curly friendly ugly belly jelly bully lily hilly assembly bubbly")
_MEASURES = _words(
    "group groups pair couple bunch set piece pieces pile piles crowd line row rows number team lot lots type pack "
    "flock herd bottle cup glass plate bowl body stack variety collection kind bucket can bag box basket flight gang "
    "mound sheet cloud patch field trio class array assortment sort one some two three all each most"
)
_NOT_VISIBLE = _words("air background foreground distance other")  # "in the air", "each other": no object


def _third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeo":
        return f"{verb[:-1]}ies"
    return verb + ("es" if verb.endswith(("ch", "sh", "ss", "x", "o")) else "s")


_LETTER_WORDS = {  # a word in several of these has the first letter
    "s": _SINGULAR,
    "d": _DETERMINERS,
    "u": _NUMBERS,
    "j": _ADJECTIVES,
    "o": _words("of"),
    "&": _words("and"),
    "'": _words("'s ’s"),
    "x": _BREAKS,
    "m": _MEASURES,
    "v": _VERBS | {_third_person(verb) for verb in _VERBS},
}
# A text becomes one letter per word: s singular determiner, d other determiner, u number, j adjective, n noun or
# unknown, m measure ("group" of people), v verb, g word in -ing, e participle in -ed, o of, & and, ' possessive, x the
# end of any phrase.
# Repetitions are bounded, so that no text takes long.
_COLOURS = "j(?:&j){0,3}"  # black and white
_MODIFIERS = f"(?:{_COLOURS}|(?<=[dsuj])[ge](?=[jnm])){{0,8}}"  # a smiling girl, but a girl smiling
# A word right before a determiner is a verb: [a man] kicks [a ball]. Right behind one, no word is.
_NOUNS = "(?:(?<=[dsj])[nmv]|[nm](?![ds]))(?:[nm](?![ds])|e(?=[nm]))*"
_BARE = f"(?:{_MODIFIERS}{_NOUNS}|(?:{_COLOURS}){{1,8}})"
_MEASURE = "[ds]{0,3}u?j{0,3}[mu]o"  # a small group of, one of
_PHRASE = re.compile(f"(?:{_MEASURE}){{0,3}}(?:[ds]{{0,3}}u{{0,3}}{_BARE}(?:'{_BARE})*|u)")
_SINGULAR_NOUN = re.compile("s[dj]*n+$")  # a dog


def noun_phrases(text: str) -> list[str]:
    """The noun phrases of a text in order, spelled as in the text; they do not overlap."""
    spans = [match.span() for match in _WORD.finditer(text)]
    letters = _letters([text[start:end].lower() for start, end in spans])
    found = [(match.start(), match.end()) for match in _PHRASE.finditer(letters)]
    phrases = [text[spans[first][0] : spans[end - 1][1]] for first, end in found]
    return [phrase for phrase in phrases if phrase.split()[-1].lower() not in _NOT_VISIBLE]


def _letters(words: list[str]) -> str:
    """The part of speech of each word, one letter per word."""
    letters: list[str] = []
    for word in words:
        letter = _letter(word)
        is_plural_or_verb = letter == "n" and word.endswith("s") and word not in _NOT_PLURALS
        if is_plural_or_verb and _SINGULAR_NOUN.search("".join(letters[-6:])):
            letter = "v"  # "a dog surfs": after a singular determiner and a noun
        letters.append(letter)
    return "".join(letters)


def _letter(word: str) -> str:
    for letter, words in _LETTER_WORDS.items():
        if word in words:
            return letter
    if word[0].isdigit():
        return "u"
    if not word[0].isalpha() or (word.endswith("ly") and word not in _NOT_ADVERBS):
        return "x"
    if len(word) > 4 and word not in _NOT_VERBS and word.endswith(("ing", "ed")):
        return "g" if word.endswith("ing") else "e"
    return "n"
