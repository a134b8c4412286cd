"""The two training loops: first the autoencoder, then UNet and text encoder together on its latents."""

import math
import time

import torch
import torch.nn.functional as F

import raster
from networks import NOISE_SCHEDULE

EMPTY_CAPTION_RATE = 0.1   # the unconditional half of classifier-free guidance
SNR_CAP = 20.0             # loss weight min(SNR, cap) / SNR: the last traces of noise matter little
VAE_KL_WEIGHT = 1e-3
VAE_GRADIENT_WEIGHT = 0.5
VAE_EDGE_FOCUS = 6.0
VAE_EXTRA_NOISE = 0.1      # the decoder also learns latents that are off by up to this fraction of their spread


class Budget:
    """Progress 0..1 by steps or by seconds, whichever runs out first; also the learning-rate curve."""

    def __init__(self, steps, seconds):
        self.steps, self.seconds, self.begin, self.step = steps, seconds, time.time(), 0

    def progress(self):
        return min(1.0, max(self.step / self.steps, (time.time() - self.begin) / self.seconds))

    def rate(self, peak, warmup=200):
        return peak * min(1.0, (self.step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * self.progress()))

    def done(self):
        return self.step > 0 and self.progress() >= 1.0


class StepRunner:
    """Runs step() eagerly a few times, then records it as a CUDA graph and replays that (always eagerly on a CPU)."""

    def __init__(self, step, device, log):
        self.step, self.log, self.calls, self.graph = step, log, 0, None
        self.use_graph = device.type == "cuda"
        self.side = torch.cuda.Stream() if self.use_graph else None

    def __call__(self):
        self.calls += 1
        if not self.use_graph:
            return self.step()
        if self.calls <= 5:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.step()
            torch.cuda.current_stream().wait_stream(self.side)
            return None
        if self.graph is None:
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    self.step()
            except RuntimeError as error:
                self.log(f"no CUDA graph ({error}); going on without")
                self.use_graph = False
                torch.cuda.synchronize()
                return self.step()
            self.graph = graph
        return self.graph.replay()


class Average:
    """Exponential moving average of the parameters of several modules, kept as plain tensors."""

    def __init__(self, parameters, decay, device):
        self.live = list(parameters)
        self.kept = [p.detach().clone() for p in self.live]
        self.weight = torch.ones((), device=device)
        self.decay = decay

    def set_weight(self, step):
        """Weight of the live value at this step: large in the beginning, 1 - decay later."""
        self.weight.fill_(1 - min(self.decay, (step + 1) / (step + 10)))

    def update(self):
        change = torch._foreach_sub([p.detach() for p in self.live], self.kept)
        torch._foreach_mul_(change, self.weight)
        torch._foreach_add_(self.kept, change)

    def swap(self):
        """Swaps live and averaged values (before and after an evaluation)."""
        for live, kept in zip(self.live, self.kept):
            held = live.detach().clone()
            live.data.copy_(kept)
            kept.copy_(held)


def make_optimizer(parameters, device, decay):
    rate = torch.tensor(0.0, device=device) if device.type == "cuda" else 0.0
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=decay,
                             capturable=device.type == "cuda", foreach=True)


def descend(loss, parameters, optimizer, average):
    """One update by the gradient of a loss, clipped to a norm of 1; zeroes the gradients afterwards."""
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    average.update()


def _set_rate(optimizer, rate):
    for group in optimizer.param_groups:
        if torch.is_tensor(group["lr"]):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _differences(x):
    return x[..., :, 1:] - x[..., :, :-1], x[..., 1:, :] - x[..., :-1, :]


def _edge_weights(x):
    """1 in flat areas, 1 + VAE_EDGE_FOCUS within two pixels of an edge: [B, 1, H, W]."""
    dx, dy = _differences(x)
    edge = torch.maximum(F.pad(dx.abs().amax(1, keepdim=True), (0, 1)),
                         F.pad(dy.abs().amax(1, keepdim=True), (0, 0, 0, 1)))
    return 1 + VAE_EDGE_FOCUS * F.max_pool2d((edge > 0.02).float(), 5, 1, 2)


def train_vae(vae, images, device, steps, seconds, batch, peak, log):
    """Trains on a pool of byte pictures [N, 3, H, W] on the device.

    L1 on pixels, weighted more near edges, L1 on pixel differences, a light KL term, and noise on the latents that the
    decoder must learn to tolerate.
    """
    log(f"vae: {images.shape[0]} pictures of {images.shape[-1]} x {images.shape[-2]}")
    parameters = list(vae.parameters())
    optimizer = make_optimizer(parameters, device, 1e-4)
    average = Average(parameters, 0.999, device)
    shown = torch.zeros(3, device=device)

    def step():
        pick = torch.randint(images.shape[0], (batch,), device=device)
        x = images[pick].float() / 127.5 - 1
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            moments = vae.quant_conv(vae.encoder(x)).float()
            mean, logvar = moments.chunk(2, 1)
            logvar = logvar.clamp(-30, 20)
            noise = torch.randn_like(mean) * (0.5 * logvar).exp()
            extra = VAE_EXTRA_NOISE * mean.detach().std() * torch.rand(batch, 1, 1, 1, device=device)
            z = mean + noise + extra * torch.randn_like(mean)
            y = vae.decoder(vae.post_quant_conv(z)).float()
        kl = 0.5 * (mean * mean + logvar.exp() - 1 - logvar).sum() / x.numel()
        off = (y - x).abs()
        edge = sum((a - b).abs().mean() for a, b in zip(_differences(y), _differences(x)))
        loss = (off * _edge_weights(x)).mean() + VAE_GRADIENT_WEIGHT * edge + VAE_KL_WEIGHT * kl
        descend(loss, parameters, optimizer, average)
        shown.copy_(torch.stack([off.mean(), edge, kl]).detach())

    for p in parameters:
        p.grad = torch.zeros_like(p)
    run(StepRunner(step, device, log), Budget(steps, seconds), optimizer, average, peak, shown, "vae l1/gradient/kl",
        device, log)
    average.swap()


def byte_images(make, count, chunk=1024):
    """A pool of pictures as bytes: make(n, offset) draws n of them in 0..1."""
    return torch.cat([(make(min(chunk, count - i), i) * 255).round().byte() for i in range(0, count, chunk)])


def run(runner, budget, optimizer, average, peak, shown, title, device, log, snapshot=None):
    """Calls runner (a StepRunner, or a function that chooses among several) for each step of the budget."""
    while not budget.done():
        _set_rate(optimizer, budget.rate(peak))
        average.set_weight(budget.step)
        runner()
        budget.step += 1
        if budget.step % 50 == 0 and device.type == "cuda":
            torch.cuda.synchronize()  # makes the budget's clock accurate
        if budget.step % max(1, min(500, budget.steps // 10)) == 0:
            values = " ".join(f"{v:.5f}" for v in shown.tolist())
            log(f"{title}: step {budget.step}  {values}  progress {budget.progress():.3f}")
        if snapshot and budget.progress() > 0.6:  # a snapshot in case the run fails later
            average.swap()
            snapshot()
            average.swap()
            snapshot = None
    log(f"{title}: {budget.step} steps in {time.time() - budget.begin:.0f} s")


@torch.no_grad()
def encode_all(vae, rows, device, batch=512):
    """Latent means [N, 4, h, w] of described scenes, in the autoencoder's own scale."""
    out = []
    for i in range(0, rows.shape[0], batch):
        x = raster.draw_described(rows[i:i + batch], device) * 2 - 1
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            mean = vae.quant_conv(vae.encoder(x))[:, :4]
        out.append(mean.float())
    return torch.cat(out)


@torch.no_grad()
def level_channels(vae, latents):
    """Gives every latent channel mean 0 and the same spread by rewriting the two 1x1 convolutions around them.

    Returns the new latents and that spread, whose inverse is the scaling factor.
    """
    mean, std = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    spread = std.mean()
    gain = spread / std
    quant, post = vae.quant_conv, vae.post_quant_conv
    quant.weight[:4] *= gain.view(4, 1, 1, 1)
    quant.bias[:4] = (quant.bias[:4] - mean) * gain
    quant.bias[4:] += 2 * gain.log()
    post.bias += (post.weight[:, :, 0, 0] @ mean)
    post.weight /= gain.view(1, 4, 1, 1)
    return (latents - mean.view(1, 4, 1, 1)) * gain.view(1, 4, 1, 1), float(spread)


def alphas(device):
    low, high = NOISE_SCHEDULE["beta_start"] ** 0.5, NOISE_SCHEDULE["beta_end"] ** 0.5
    betas = torch.linspace(low, high, NOISE_SCHEDULE["num_train_timesteps"], dtype=torch.float64) ** 2
    return (1 - betas).cumprod(0).float().to(device)


def train_denoiser(unet, text, latents, tokens, empty, device, steps, seconds, batch, peak, log,
                   snapshot=None, high_noise=0.0, decay=0.9995):
    """Predicts the noise in scaled latents [N, 4, h, w] from one of the scene's captions, tokens [N, C, 77].

    A fraction `high_noise` of the samples is drawn from the noisiest 600 steps, where the layout is decided.
    """
    parameters = [*unet.parameters(), *text.parameters()]
    optimizer = make_optimizer(parameters, device, 1e-3)
    average = Average(parameters, decay, device)
    table = alphas(device)
    weights = (table / (1 - table)).clamp(max=SNR_CAP) / (table / (1 - table))
    shown = torch.zeros(1, device=device)

    def step():
        pick = torch.randint(latents.shape[0], (batch,), device=device)
        wording = torch.randint(tokens.shape[1], (batch,), device=device)
        drop = torch.rand(batch, 1, device=device) < EMPTY_CAPTION_RATE
        ids = torch.where(drop, empty, tokens[pick, wording].long())
        t = torch.randint(table.shape[0], (batch,), device=device)
        noisy_only = torch.rand(batch, device=device) < high_noise
        t = torch.where(noisy_only, 400 + t * 6 // 10, t)
        x, a = latents[pick].float(), table[t].view(-1, 1, 1, 1)
        noise = torch.randn_like(x)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            context = text(input_ids=ids).last_hidden_state
            predicted = unet(noisy, t, encoder_hidden_states=context, return_dict=False)[0]
        loss = (F.mse_loss(predicted.float(), noise, reduction="none").mean((1, 2, 3)) * weights[t]).mean()
        descend(loss, parameters, optimizer, average)
        shown.copy_(loss.detach().view(1))

    for p in parameters:
        p.grad = torch.zeros_like(p)
    run(StepRunner(step, device, log), Budget(steps, seconds), optimizer, average, peak, shown, "denoiser loss", device,
        log, snapshot)
    average.swap()
