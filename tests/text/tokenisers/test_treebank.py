from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer, TreebankWordTokenizer

from diptych.text.tokenisers.treebank import _general, _plain_words, tokenise

NLTK, TREEBANK = NLTKWordTokenizer(), TreebankWordTokenizer()

# One sentence a line, on which NLTK's two tokenisers agree.
SENTENCES = """
A dog runs.
A dog runs
Two dogs run on the beach .
A brown dog, a black cat and a parrot.
The dog's tail is wagging.
The dogs' bowls are empty.
A boy's and a girl's bikes lean on James' fence.
It's raining, isn't it?
The child doesn't want to go.
The men don't see the ball.
They can't reach the top shelf.
They cannot reach the top shelf.
He won't jump!
She isn't wearing a helmet.
He'd rather swim.
I'm standing near a lake.
They're playing chess in a park.
We've found the red frisbee.
She'll catch the ball.
You'd think that it's winter.
He's gonna jump off the cliff.
They wanna swim.
She's gotta run.
Gimme that ball!
Lemme see the picture.
The girl ain't amused.
A sign says "stop".
A sign says "stop."
A sign says "stop" in red letters.
"Stop" is written on a sign.
A shirt with the words "I love NY" on it.
A man in a "Santa" hat.
A banner ("welcome home") hangs over the door.
A bus (number 42) turns left.
A man [left] and a woman [right].
A shop sells {apples}.
A crowd of 3,000 people.
A crowd of 1,234,567 people watches.
The clock shows 12:30.
The clock shows 12:30 and the train is late.
It is 7 o'clock in the morning.
A rock 'n' roll singer.
The temperature is 3.5 degrees.
A $5 note lies on a table.
A ticket costs $3.88, maybe more.
100% cotton shirt.
Half of it, 50%, is gone.
Black & white photo of a street.
A black&white cat.
Player #7 scores.
Number 7, number 8 and number 9.
A t-shirt with a zip-up collar.
A six-year-old girl.
A well-dressed, middle-aged man.
A man - tall and thin - waits.
A man -- tall and thin -- waits.
A man--tall and thin--waits.
A dog jumps... and falls.
A dog jumps...and falls
A dog jumps...
Wow! A huge wave!
Is this a horse?
Really?!
Three things: a cup, a plate and a fork.
A list:
A cup, a plate,
A cup; a plate; a fork.
A man/woman in a coat.
Mr. Smith walks his dog.
Dr. Jones and Mrs. Jones sit on a bench.
The U.S. flag hangs from a pole.
The U.S.A. flag hangs from a pole.
A flag of the U.S.
A man at 5 p.m. in a bar.
A picture by J. R. Smith.
St. Mary's church at dusk.
Red vs. blue in a paintball match.
Apples, pears etc. on a table.
Apples, pears, etc.
Mail me at someone@example.com now.
An e-mail to some.one stands on a screen.
A 1980's car.
A man in his 20's.
A 4x4 truck.
A 2-year-old with a 3-foot fish.
The score is 3-2.
The score is 3:2.
A 1/2 full glass.
A glass 1/2 full.
The sign reads: "no dogs".
The sign reads: no dogs!
A dog named "Rex", a cat named "Tom".
A dog named "Rex"; a cat named "Tom".
"Hello," says the sign.
A man says, "Come here!"
A man asks, "Who is it?"
A poster (with a face) and a door.
A poster (with a face).
A poster (with a face.)
A boy, who's tired, sleeps.
The one who'll win is the one that's fast.
There's a dog that's wet.
What's that?
Let's go.
A ma'am and a sir.
Y'all come back.
Women's and men's shoes.
The children's toys' boxes.
A dog with its owner, in the woods, at night.
A little girl in a pink dress going into a wooden cabin
  Two   spaces   and   a   gap .
A dog.
.
A
Dogs
A cat , a dog .
A cat ,a dog .
A cat,a dog.
A man in a hat,5 dogs.
Blond-haired boy, blue-eyed girl.
A man's best friend's ball.
The couple's dog isn't on the couple's couch.
Someone's using someone else's phone.
Should've seen that one!
They'd've come.
A cyclist passes a car; the car doesn't stop.
A kid on a swing set; another, older kid pushes.
A player wearing #10 (yellow) kicks.
A person doing a handstand; others clap, cheer, etc.
A café on a corner.
A naïve drawing of a crêpe.
A señor with a piñata.
A man in a wheelchair; a woman, standing.
The # sign and the @ sign.
An @ sign.
A dog <left> of a cat.
5 > 3 on a board.
3 + 4 = 7 on a board.
A street at night, wet, neon-lit.
Price: $20.
Price: $20
It's 20% off!
A bottle of 7-up.
No. 5 is on a jersey
A car (old, rusty, blue) in a field.
An all-you-can-eat buffet.
Two men, one woman, & a dog.
A woman in a long-sleeved shirt...
He isn't; she's.
The girl can't, won't and shouldn't jump.
A man who hasn't shaved, and hadn't, smiles.
"Can't stop" is written on a bus.
A boxer's (red) gloves.
The team's No 7.
Snow-covered peaks, a lake.
A lamp that's "broken".
A game of tug-of-war.
Someone on a half-pipe, mid-air!
""".strip("\n").split("\n")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_agrees_with_nltk_on_captions(sentence: str) -> None:
    assert tokenise(sentence) == NLTK.tokenize(sentence.lower())
    assert tokenise(sentence) == TREEBANK.tokenize(sentence.lower())


@pytest.mark.parametrize(
    "sentence",
    [
        "A 'stop' sign.",
        "The 'big' dog's 'bone'",
        "A '90s car.",
        "A b*g word.",
        "'Hello' and 'bye'.",
        "Wait.. no",
    ],
)
def test_follows_word_tokenize_where_nltk_has_two_ways(sentence: str) -> None:
    assert tokenise(sentence) == NLTK.tokenize(sentence.lower())


WORDS = st.sampled_from(
    """
    a the dog dogs man two red jumping Rex NY café t-shirt six-year-old jack-o'-lantern o'clock b/w x_y u.s.a
    cannot gonna isn't don't can't it's i'm he'd she'll they're we've dog's dogs' 1980's 3,000 12:30 3.5 1/2 7
    """.split()  # noqa: SIM905
)
PLAIN = st.sampled_from(["the", "dog", "dogs", "man", "frisbee", "red", "t-shirt", "Rex", "3,000", "7"])
PIECES = st.one_of(
    WORDS,
    PLAIN.map('"{}"'.format),
    PLAIN.map("({})".format),
    PLAIN.map("'{}'".format),
    PLAIN.map("${}".format),
    PLAIN.map("{}%".format),
    PLAIN.map("#{}".format),
    st.lists(PLAIN, min_size=1, max_size=3).map(lambda words: f'("{" ".join(words)}")'),
)
JOINTS = st.sampled_from([" ", " ", " ", "  ", ", ", " , ", "; ", ": ", " - ", " -- ", "--", "... ", "! ", "? ", " & "])
ENDS = st.sampled_from(["", ".", " .", "!", "?", "...", "?!", ' "', ")", ".)", ' "dog."'])


@st.composite
def captions(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.tuples(PIECES, JOINTS), max_size=8))
    return "".join(piece + joint for piece, joint in pieces) + draw(WORDS) + draw(ENDS)


@given(captions())
def test_agrees_with_nltk_on_generated_captions(caption: str) -> None:
    assert tokenise(caption) == NLTK.tokenize(caption.lower())


@given(st.text(alphabet="abc  .'-,1é\n", max_size=20) | captions())
@example("they cannot jump .")
@example("a dog on main st.")
@example(" a .")
@example("a b. c")
@example(".")
def test_plain_words_are_split_as_by_the_general_rules(text: str) -> None:
    text = text.lower().strip()
    words = _plain_words(text)
    if words is not None and not {"cannot", "gonna"} & set(words):
        assert words == _general(text)
    plain = text.removesuffix(".").replace(" ", "")
    assert (words is not None) == (plain.isascii() and plain.isalpha())


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=4))
def test_sentences_are_cut_one_by_one(sentences: list[str]) -> None:
    sentences = [f"{sentence} dog." for sentence in sentences]
    expected = [token for sentence in sentences for token in NLTK.tokenize(sentence.lower())]
    assert tokenise(" ".join(sentences)) == expected
    assert tokenise("\n".join(sentences)) == expected


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a dog runs. it jumps.", "a dog runs . it jumps ."),
        ('he says "stop." she stops.', "he says `` stop . '' she stops ."),
        ("a dog (wet.) it sits.", "a dog ( wet . ) it sits ."),
        ("is it? yes! it is.", "is it ? yes ! it is ."),
        ("mr. smith vs. dr. j. doe etc. in the u.s. now.", "mr. smith vs. dr. j. doe etc. in the u.s. now ."),
        ("they met mr.", "they met mr ."),
        ("they met mr. \n", "they met mr ."),
        ("is it no. 5? no. it is no. six.", "is it no. 5 ? no . it is no . six ."),
        ("a ''red'' dog", "a `` red '' dog"),
        ("a\x07dog", "a dog"),
        ('they met "mr."', "they met `` mr . ''"),
        ("i don\u2019t see the dog\u2019s \u201cbone\u201d\u2026", "i do n't see the dog 's `` bone '' ..."),
        ("red\u2013blue \u2014 or\u2014green", "red -- blue -- or -- green"),
        ("a\x00dog\x07runs\r\nfast\x7f\u200bnow\ufeff", "a dog runs fast now"),
        ("t\u2011shirt soft\u00adhyphen", "t-shirt softhyphen"),
        ("cafe\u0301", "caf\u00e9"),
        ("\u00ab oui \u00bb", "\u00ab oui \u00bb"),
        ("<start> <end> <pad>", "< start > < end > < pad >"),
        ("half \ud800 a character", "half \ufffd a character"),
        ("'it's 'a dog's' life", "' it 's ' a dog 's ' life"),
        ("d'ye want more'n that", "d 'ye want more 'n that"),
        ("a,,b", "a , , b"),
        ("", ""),
        (" \t\n", ""),
    ],
)
def test_known_cases(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split(" ") * bool(tokens)


@given(st.one_of(st.text(), st.text(alphabet=" .,:'\"`-()<>$ants3é’”\x00\n\ud800", max_size=30)))
@example("e\u00ad\u0301")
def test_any_text_gives_clean_tokens(text: str) -> None:
    tokens = tokenise(text)
    for token in tokens:
        assert token
        assert len(token.split()) == 1
        assert token == token.strip()
        assert unicodedata.is_normalized("NFC", token)
        token.encode("utf-8")
    assert tokenise(f"\n {text}\t") == tokens


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=40))
def test_nothing_but_quotes_is_lost_or_invented(text: str) -> None:
    def squeezed(parts: list[str]) -> str:
        return "".join(parts).replace("``", "''").replace('"', "''")

    assert squeezed(tokenise(text)) == squeezed(text.lower().split())


@pytest.mark.parametrize("unit", ["a", "'", "a'", ".'", "a.)", "mr.)", "-", '"', "a.b", "n't", "1,", ") ."])
def test_a_long_run_of_anything_comes_to_an_end(unit: str) -> None:
    assert tokenise(unit * 50_000)  # a pattern that goes back and forth would take hours
