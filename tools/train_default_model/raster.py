"""Draws batches of scenes with antialiased edges, from signed distance functions, on any torch device.

A batch is described by plain tensors: `things` [B, K, 6] holds (shape index or -1 for none, x, y, radius, rotation,
unused) in pixels and radians, `colors` [B, K, 3] and `background` [B, 3] hold sRGB in 0..1.
"""

import math

import torch

from scenes import CANVAS, PALETTE, SHAPES

SQUARE_HALF_SIDE = 0.86   # all lengths are relative to the object's radius
TRIANGLE_RADIUS = 1.15
STAR_RADIUS = 1.15
STAR_INNER = 0.46         # inner radius over outer radius
RING_MIDDLE = 0.79        # radius of the middle of the band
RING_HALF_WIDTH = 0.21


def _polygon(px, py, vertices):
    """Signed distance to a closed polygon; vertices is a list of (x, y) tensors that broadcast against px, py."""
    best, sign = None, torch.ones_like(px)
    for i, (vx, vy) in enumerate(vertices):
        ux, uy = vertices[i - 1]
        ex, ey, wx, wy = ux - vx, uy - vy, px - vx, py - vy
        t = ((wx * ex + wy * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        d = (wx - ex * t) ** 2 + (wy - ey * t) ** 2
        best = d if best is None else torch.minimum(best, d)
        c1, c2, c3 = py >= vy, py < uy, ex * wy > ey * wx
        flip = (c1 & c2 & c3) | ~(c1 | c2 | c3)
        sign = torch.where(flip, -sign, sign)
    return sign * best.sqrt()


def _star_vertices(points, outer, inner, radius):
    out = []
    n = points * (1 if inner is None else 2)
    for i in range(n):
        angle = -math.pi / 2 + 2 * math.pi * i / n
        scale = outer if inner is None or i % 2 == 0 else outer * inner
        out.append((radius * scale * math.cos(angle), radius * scale * math.sin(angle)))
    return out


def coverage(shape, x, y, radius, rotation, size):
    """Coverage of each pixel by the object, [B, size, size]; the arguments are [B] tensors."""
    b = shape.shape[0]
    axis = torch.arange(size, device=shape.device, dtype=torch.float32) + 0.5
    view = (b, 1, 1)
    dx, dy = axis.view(1, 1, size) - x.view(view), axis.view(1, size, 1) - y.view(view)
    cos, sin, r = rotation.cos().view(view), rotation.sin().view(view), radius.view(view)
    px, py = dx * cos + dy * sin, dy * cos - dx * sin
    length = (px * px + py * py).sqrt()
    qx, qy = px.abs() - SQUARE_HALF_SIDE * r, py.abs() - SQUARE_HALF_SIDE * r
    square = (qx.clamp(min=0) ** 2 + qy.clamp(min=0) ** 2).sqrt() + torch.maximum(qx, qy).clamp(max=0)
    distances = (
        length - r,
        square,
        _polygon(px, py, _star_vertices(3, TRIANGLE_RADIUS, None, r)),
        _polygon(px, py, _star_vertices(5, STAR_RADIUS, STAR_INNER, r)),
        (length - RING_MIDDLE * r).abs() - RING_HALF_WIDTH * r,
    )
    distance = torch.full_like(px, 1e3)
    for index, d in enumerate(distances):
        distance = torch.where(shape.view(view) == index, d, distance)
    return (0.5 - distance).clamp(0, 1)


def draw(things, colors, background, size=CANVAS):
    """RGB in 0..1, [B, 3, size, size]."""
    image = background.view(-1, 3, 1, 1).expand(-1, -1, size, size)
    for k in range(things.shape[1]):
        shape, x, y, r, rotation = things[:, k, :5].unbind(-1)
        cover = coverage(shape, x, y, r, rotation, size).unsqueeze(1)
        image = image + (colors[:, k].view(-1, 3, 1, 1) - image) * cover
    return image


def palette_tensor(device):
    return torch.tensor(list(PALETTE.values()), dtype=torch.float32, device=device) / 255


def draw_described(rows, device):
    """Draws scenes given as rows of (background, then shape, colour, x, y, radius for two objects), see pack_scene."""
    rows = rows.to(device=device, dtype=torch.float32)
    palette = palette_tensor(device)
    b = rows.shape[0]
    things = torch.zeros(b, 2, 6, device=device)
    colors = torch.zeros(b, 2, 3, device=device)
    for k in range(2):
        part = rows[:, 1 + 5 * k:6 + 5 * k]
        things[:, k, 0] = part[:, 0]
        things[:, k, 1:4] = part[:, 2:5]
        colors[:, k] = palette[part[:, 1].long()]
    return draw(things, colors, palette[rows[:, 0].long()])


def pack_scene(scene):
    """The numbers of a scene in the form that draw_described reads: 11 floats."""
    names = list(PALETTE)
    row = [names.index(scene.background)]
    for k in range(2):
        if k < len(scene.things):
            t = scene.things[k]
            row += [SHAPES.index(t.shape), names.index(t.color), t.x, t.y, t.r]
        else:
            row += [-1, 0, 0, 0, 1]
    return row


def random_images(count, size, device):
    """Pictures for the autoencoder, more varied than the captions: any colour and place, some rotated or cut off."""
    def uniform(*shape, low=0.0, high=1.0):
        return low + (high - low) * torch.rand(*shape, device=device)

    palette = palette_tensor(device)
    things = torch.zeros(count, 2, 6, device=device)
    things[..., 0] = torch.randint(len(SHAPES), (count, 2), device=device).float()
    absent = uniform(count, 2) > torch.tensor([0.97, 0.4], device=device)
    things[..., 0] = torch.where(absent, -torch.ones_like(things[..., 0]), things[..., 0])
    things[..., 1:3] = uniform(count, 2, 2, low=0, high=size)
    things[..., 3] = 13 + 36 * uniform(count, 2) ** 2
    turned = uniform(count, 2) < 0.15
    things[..., 4] = torch.where(turned, uniform(count, 2, high=2 * math.pi), torch.zeros_like(things[..., 4]))

    def pick(*shape):
        named = palette[torch.randint(len(palette), shape, device=device)]
        return torch.where(uniform(*shape, 1) < 0.8, named, uniform(*shape, 3))

    return draw(things, pick(count, 2), pick(count), size)
