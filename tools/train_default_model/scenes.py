"""The world of the default model: flat scenes of one or two coloured shapes, and sentences that describe them.

A scene is a background colour and one or two objects (shape, colour, centre, radius) on a canvas of 128 x 128 pixels.
Captions come from a small grammar with synonyms, optional parts and several word orders, so that no single sentence can
be memorised. Every object is compact and stays clear of the border and of the other object.

Held out: one (shape, colour, background) triple in ten, picked by a checksum, never occurs in training, neither alone
nor as part of a two-object scene. All evaluation prompts are about held-out triples.
"""

import random
import string
import zlib
from dataclasses import dataclass

CANVAS = 128
SHAPES = ("circle", "square", "triangle", "star", "ring")
PALETTE = {
    "red": (220, 40, 40),
    "green": (40, 160, 70),
    "blue": (40, 80, 220),
    "yellow": (245, 215, 50),
    "orange": (245, 135, 30),
    "purple": (130, 50, 170),
    "pink": (245, 140, 180),
    "cyan": (50, 200, 220),
    "black": (20, 20, 20),
    "white": (250, 250, 250),
    "gray": (128, 128, 128),
}
COLORS = tuple(PALETTE)
# Background if the caption names none: the first of these that no object has.
DEFAULT_BACKGROUNDS = ("white", "gray", "black")

SHAPE_WORDS = {
    "circle": ("circle", "circle", "circle", "disc", "disk", "dot"),
    "square": ("square", "square", "square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "ring": ("ring", "ring", "ring", "hoop"),
}
COLOR_WORDS = {"gray": ("gray", "grey"), "purple": ("purple", "purple", "violet")}
SIZE_WORDS = {"small": ("small", "small", "little", "tiny"), "large": ("large", "big", "big", "huge")}
POSITION_WORDS = {
    "left": ("on the left", "on the left side", "at the left", "to the left"),
    "right": ("on the right", "on the right side", "at the right", "to the right"),
    "top": ("at the top", "on the top", "near the top"),
    "bottom": ("at the bottom", "on the bottom", "near the bottom"),
    "center": ("in the center", "in the middle", "in the centre", "at the center"),
    "top left": ("in the top left corner", "at the top left", "in the upper left corner"),
    "top right": ("in the top right corner", "at the top right", "in the upper right corner"),
    "bottom left": ("in the bottom left corner", "at the bottom left", "in the lower left corner"),
    "bottom right": ("in the bottom right corner", "at the bottom right", "in the lower right corner"),
}
RELATION_WORDS = {
    "left of": ("left of", "to the left of", "on the left of"),
    "right of": ("right of", "to the right of", "on the right of"),
    "above": ("above", "over", "on top of"),
    "below": ("below", "under", "beneath"),
    "next to": ("next to", "beside", "and", "and", "with"),
}
OPENINGS = ("", "", "", "", "a picture of ", "an image of ", "a drawing of ", "a photo of ", "a painting of ",
            "an illustration of ", "draw ", "there is ", "a simple picture of ", "show me ")
JUNK_RATE = 0.04


@dataclass
class Thing:
    """One object: names as in SHAPES and PALETTE, size "small" / "" / "large", centre and radius in pixels."""

    shape: str
    color: str
    size: str = ""
    x: float = CANVAS / 2
    y: float = CANVAS / 2
    r: float = 30.0


@dataclass
class Scene:
    things: list
    background: str
    position: str = ""   # of a single object
    relation: str = ""   # of the first object to the second
    names_background: bool = True


def is_held_out(shape, color, background):
    """True for the tenth of all (shape, colour, background) triples that training never sees."""
    return zlib.crc32(f"{shape}/{color}/{background}".encode()) % 10 == 0


def default_background(colors):
    return next(b for b in DEFAULT_BACKGROUNDS if b not in colors)


def scene_is_held_out(scene):
    return any(is_held_out(t.shape, t.color, scene.background) for t in scene.things)


def _place_single(rng, thing, position):
    thing.r = rng.uniform(*{"small": (16, 20), "": (25, 34), "large": (40, 48)}[thing.size])
    far = max(CANVAS / 2 - thing.r * 1.15 - 4, 0)  # how far the centre can move while keeping a margin
    reach = min(far, 36)
    jitter = min(far, 5)
    thing.x += rng.uniform(-jitter, jitter)
    thing.y += rng.uniform(-jitter, jitter)
    if not position:
        thing.x += rng.uniform(-1, 1) * min(far, 12)
        thing.y += rng.uniform(-1, 1) * min(far, 12)
    thing.x += reach * (("right" in position) - ("left" in position))
    thing.y += reach * (("bottom" in position) - ("top" in position))
    thing.x = min(max(thing.x, CANVAS / 2 - far), CANVAS / 2 + far)
    thing.y = min(max(thing.y, CANVAS / 2 - far), CANVAS / 2 + far)


def _place_pair(rng, things, relation):
    for t in things:
        t.r = rng.uniform(*{"small": (14, 16), "": (18, 21), "large": (22, 24)}[t.size])
    first_low = relation in ("left of", "above") or (relation == "next to" and rng.random() < 0.5)
    low, high = (things[0], things[1]) if first_low else (things[1], things[0])
    along = "y" if relation in ("above", "below") else "x"
    across = "x" if along == "y" else "y"
    setattr(low, along, 33 + rng.uniform(-3, 3))
    setattr(high, along, 95 + rng.uniform(-3, 3))
    base = CANVAS / 2 + rng.uniform(-8, 8)
    setattr(low, across, base + rng.uniform(-4, 4))
    setattr(high, across, base + rng.uniform(-4, 4))


def draw_scene(rng, pairs=0.32):
    """A random scene, held out or not, of two objects with probability `pairs`. rng is a random.Random."""
    if rng.random() < 1 - pairs:
        thing = Thing(rng.choice(SHAPES), rng.choice(COLORS), rng.choice(("", "", "small", "large")))
        position = rng.choice(tuple(POSITION_WORDS)) if rng.random() < 0.6 else ""
        _place_single(rng, thing, position)
        scene = Scene([thing], "", position)
    else:
        sizes = ("", "", "", "small", "large")
        a = Thing(rng.choice(SHAPES), rng.choice(COLORS), rng.choice(sizes))
        b = Thing(rng.choice(SHAPES), rng.choice(COLORS), rng.choice(sizes))
        while (a.shape, a.color) == (b.shape, b.color):
            b.shape, b.color = rng.choice(SHAPES), rng.choice(COLORS)
        relation = rng.choice(tuple(RELATION_WORDS))
        _place_pair(rng, [a, b], relation)
        scene = Scene([a, b], "", "", relation)
    taken = {t.color for t in scene.things}
    scene.names_background = rng.random() < 0.75
    scene.background = (rng.choice([c for c in COLORS if c not in taken]) if scene.names_background
                        else default_background(taken))
    return scene


def training_scene(rng, pairs=0.32):
    """A random scene without any held-out triple."""
    while True:
        scene = draw_scene(rng, pairs)
        if not scene_is_held_out(scene):
            return scene


def _color_word(rng, color):
    return rng.choice(COLOR_WORDS.get(color, (color,)))


def _article(word):
    return "an" if word[0] in "aeiou" else "a"


def _thing_words(rng, thing, article=True):
    color, shape = _color_word(rng, thing.color), rng.choice(SHAPE_WORDS[thing.shape])
    size = rng.choice(SIZE_WORDS[thing.size]) + " " if thing.size else ""
    if article and not size and rng.random() < 0.04:
        return f"a {shape} that is {color}"
    words = f"{size}{color} {shape}"
    if not article:
        return words
    kind = rng.random()
    return f"{_article(words)} {words}" if kind < 0.8 else words if kind < 0.92 else f"the {words}"


def _background_after(rng, color):
    a = _article(color)
    return rng.choice((f" on {a} {color} background", f" on {a} {color} background", f" on {a} {color} background",
                       f" on {color}", f" with {a} {color} background", f" against {a} {color} background",
                       f" over {a} {color} background", f", {color} background"))


def _background_before(rng, color):
    a = _article(color)
    return rng.choice((f"{color} background with ", f"{a} {color} background with ", f"{color} background, ",
                       f"on {a} {color} background, "))


def caption(rng, scene):
    """One sentence for the scene; each call may word it differently."""
    bg = _color_word(rng, scene.background)
    if len(scene.things) == 1:
        thing = scene.things[0]
        where = rng.choice(POSITION_WORDS[scene.position]) if scene.position else ""
        if rng.random() < 0.06:  # a list of tags
            parts = [_thing_words(rng, thing, article=False)] + ([where] if where else [])
            parts += [f"{bg} background"] if scene.names_background else []
            text = ", ".join(parts)
            return _finish(rng, text)
        body = _thing_words(rng, thing) + (f" {where}" if where else "")
        if where and scene.names_background and rng.random() < 0.25:  # place after the background
            return _finish(rng, rng.choice(OPENINGS) + _thing_words(rng, thing) + _background_after(rng, bg) +
                           rng.choice((" ", ", ")) + where)
    else:
        a, b = scene.things
        body = f"{_thing_words(rng, a)} {rng.choice(RELATION_WORDS[scene.relation])} {_thing_words(rng, b)}"
    if not scene.names_background:
        return _finish(rng, rng.choice(OPENINGS) + body)
    if rng.random() < 0.25:
        return _finish(rng, _background_before(rng, bg) + body)
    return _finish(rng, rng.choice(OPENINGS) + body + _background_after(rng, bg))


def _finish(rng, text):
    if rng.random() < JUNK_RATE:  # unknown words must not confuse the model
        junk = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8)))
        text = f"{junk} {text}" if rng.random() < 0.5 else f"{text} {junk}"
    return text + ("." if rng.random() < 0.06 else "")


def lexicon():
    """Every word the grammar can produce, sorted: each gets its own token."""
    rng = random.Random(0)
    words = set()
    for table in (SHAPE_WORDS, COLOR_WORDS, SIZE_WORDS, POSITION_WORDS, RELATION_WORDS):
        for phrases in table.values():
            words.update(w for p in phrases for w in p.split())
    words.update(w for p in OPENINGS for w in p.split())
    words.update(COLORS)
    for _ in range(20000):
        scene = draw_scene(rng)
        text = caption(random.Random(rng.random()), scene)
        words.update(w for w in text.replace(",", " ").replace(".", " ").split() if w in _GRAMMAR_WORDS)
    return sorted(words)


def vocabulary():
    """The words of the lexicon by kind, as the model's index lists them for users."""
    def of(*tables):
        return {w for table in tables for phrases in table.values() for p in phrases for w in p.split()}

    kinds = {"shapes": of(SHAPE_WORDS), "colors": of(COLOR_WORDS) | set(COLORS), "sizes": of(SIZE_WORDS)}
    kinds["places"] = of(POSITION_WORDS, RELATION_WORDS) - {"the", "of", "to", "and", "with"}
    kinds["others"] = set(lexicon()).difference(*kinds.values())
    return {kind: sorted(words) for kind, words in kinds.items()}


_GRAMMAR_WORDS = {"a", "an", "the", "that", "is", "on", "with", "against", "over", "background"}
