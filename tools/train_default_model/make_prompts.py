"""Writes tests/grader/prompts.txt: 100 prompts about held-out (shape, colour, background) triples, with fixed seeds.

80 are about one object, 20 about two and their relation. Fields, separated by tabs: seed, prompt, background, objects,
relation. Never edit the list to suit a model.
"""

import random

import grading
import scenes

HEADER = """\
# 100 prompts that the default model was never trained on: every one shows at least one (shape, colour, background)
# triple that training left out. Written by tools/train_default_model/make_prompts.py.
# seed <tab> prompt <tab> background <tab> objects, "; " between them <tab> relation of the first to the second
"""


def main():
    rng = random.Random(20)
    scenes.JUNK_RATE = 0.0
    wanted = {1: 80, 2: 20}
    lines, seen = [], set()
    while any(wanted.values()):
        scene = scenes.draw_scene(rng)
        count = len(scene.things)
        text = scenes.caption(rng, scene)
        if not wanted[count] or not scenes.scene_is_held_out(scene) or text in seen:
            continue
        if not scene.names_background or scene.relation == "next to":
            continue
        wanted[count] -= 1
        seen.add(text)
        objects = "; ".join(f"{t.color} {t.shape}" for t in scene.things)
        lines.append("\t".join((str(1000 + len(lines)), text, scene.background, objects, scene.relation)))
    grading.PROMPTS.write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
