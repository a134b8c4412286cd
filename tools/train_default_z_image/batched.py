"""The forward passes of small_z_image's networks over a whole batch at once, as training needs.

The library's transformer takes lists of pictures and texts and processes them one by one; these functions use its
modules and weights on tensors of fixed shapes, so that a step can be recorded as a CUDA graph. `check` compares them.
"""

import torch
import torch.nn.functional as F

MULTIPLE = 32  # texts are padded to a multiple of this with a learned vector, which takes part in attention


def _turn_halves(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def text_states(text, ids):
    """Hidden states [B, L, D] before the last layer. What follows a text's end in ids [B, L] has no effect."""
    h = text.embed_tokens(ids)
    cos, sin = (t[:, None] for t in text.rotary_emb(h, torch.arange(ids.shape[1], device=ids.device)[None]))
    for layer in text.layers[:-1]:
        h = _text_layer(layer, h, cos, sin)
    return h


def _text_layer(layer, h, cos, sin):
    y, attn = layer.input_layernorm(h), layer.self_attn
    shape = (*h.shape[:2], -1, attn.head_dim)
    q = attn.q_norm(attn.q_proj(y).view(shape)).transpose(1, 2)
    k = attn.k_norm(attn.k_proj(y).view(shape)).transpose(1, 2)
    v = attn.v_proj(y).view(shape).transpose(1, 2)
    q, k = _turn_halves(q, cos, sin).to(v.dtype), _turn_halves(k, cos, sin).to(v.dtype)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    h = h + attn.o_proj(mixed.transpose(1, 2).flatten(2))
    return h + layer.mlp(layer.post_attention_layernorm(h))


def _angles(net, positions):
    """Angles [.., head / 2] of positions [.., 3] = (frame, row, column)."""
    parts = []
    for axis, size in enumerate(net.axes_dims):
        rates = net.rope_theta ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
        parts.append(positions[..., axis, None].float() * rates)
    return torch.cat(parts, -1)


def _turn_pairs(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def _attention(attn, x, mask, angles):
    q, k, v = (part(x).unflatten(-1, (attn.heads, -1)) for part in (attn.to_q, attn.to_k, attn.to_v))
    cos, sin = angles.cos().unsqueeze(2), angles.sin().unsqueeze(2)
    q, k = _turn_pairs(attn.norm_q(q), cos, sin).to(v.dtype), _turn_pairs(attn.norm_k(k), cos, sin).to(v.dtype)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return attn.to_out[0](F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


def _block(block, x, mask, angles, condition=None):
    scale_a = scale_m = gate_a = gate_m = 1.0
    if condition is not None:
        scale_a, gate_a, scale_m, gate_m = block.adaLN_modulation(condition).unsqueeze(1).chunk(4, 2)
        scale_a, scale_m, gate_a, gate_m = 1 + scale_a, 1 + scale_m, gate_a.tanh(), gate_m.tanh()
    x = x + gate_a * block.attention_norm2(_attention(block.attention, block.attention_norm1(x) * scale_a, mask, angles))
    return x + gate_m * block.ffn_norm2(block.feed_forward(block.ffn_norm1(x) * scale_m))


def compile_blocks():
    """Compiles the blocks with torch.compile: worth it from a few thousand steps."""
    global _text_layer, _block
    torch._dynamo.config.cache_size_limit = 64
    _text_layer, _block = torch.compile(_text_layer, dynamic=False), torch.compile(_block, dynamic=False)


def filled_up(lengths):
    """Rows of the texts after padding."""
    return (lengths + MULTIPLE - 1) // MULTIPLE * MULTIPLE


def predict(net, x, t, states, lengths, equal=False):
    """The output of ZImageTransformer2DModel for latents x [B, C, h, w] at times t [B], texts of lengths [B] in states.

    (h / 2) (w / 2) must be a multiple of 32. `equal`: every text fills all rows of states, so nothing is masked.
    """
    batch, channels, height, width = x.shape
    rows, columns, longest = height // 2, width // 2, states.shape[1]
    condition = net.t_embedder(t * net.t_scale)
    tokens = x.view(batch, channels, rows, 2, columns, 2).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    picture = net.all_x_embedder["2-1"](tokens)
    place = torch.arange(longest, device=x.device)
    words = torch.where((place < lengths[:, None])[..., None], net.cap_embedder(states), net.cap_pad_token)
    filled = filled_up(lengths)
    seen = None if equal else (place < filled[:, None])[:, None, None]

    zeros = torch.zeros_like(place)
    word_angles = _angles(net, torch.stack([1 + place, zeros, zeros], -1))[None].expand(batch, -1, -1)
    grid = torch.stack(torch.meshgrid(torch.arange(rows, device=x.device), torch.arange(columns, device=x.device),
                                      indexing="ij"), -1).flatten(0, 1)[None].expand(batch, -1, -1)
    frame = (filled + 1)[:, None, None].expand(-1, rows * columns, -1)
    picture_angles = _angles(net, torch.cat([frame, grid], -1))
    for block in net.noise_refiner:
        picture = _block(block, picture, None, picture_angles, condition)
    for block in net.context_refiner:
        words = _block(block, words, seen, word_angles)
    both = torch.cat([picture.to(words.dtype), words], 1)
    angles = torch.cat([picture_angles, word_angles], 1)
    mask = None if equal else torch.cat([seen.new_ones(batch, 1, 1, rows * columns), seen], -1)
    for block in net.layers:
        both = _block(block, both, mask, angles, condition)
    out = net.all_final_layer["2-1"](both[:, :rows * columns], condition)
    return out.view(batch, rows, columns, 2, 2, channels).permute(0, 5, 1, 3, 2, 4).reshape(x.shape)


@torch.no_grad()
def check(text, net, ids, lengths, latent_shape):
    """Raises if these functions differ from the libraries' modules in f32: texts ids [B, L] of lengths [B]."""
    x = torch.randn(len(ids), *latent_shape, device=ids.device)
    t = torch.linspace(0.1, 0.9, len(ids), device=ids.device)
    states = text_states(text, ids)
    wanted = [text(input_ids=row[None, :n], output_hidden_states=True).hidden_states[-2][0]
              for row, n in zip(ids, lengths.tolist())]
    torch.testing.assert_close(torch.cat([s[:n] for s, n in zip(states, lengths.tolist())]), torch.cat(wanted),
                               rtol=1e-3, atol=1e-4)
    full = net([one[:, None] for one in x], t, wanted)[0]
    torch.testing.assert_close(predict(net, x, t, states, lengths), torch.stack([one[:, 0] for one in full]),
                               rtol=1e-3, atol=1e-4)
