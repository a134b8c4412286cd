"""The three networks of the default model, in Stable Diffusion 1.5's layout but very small, and their export."""

import json
import pathlib

from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel

from scenes import CANVAS, vocabulary
from tokenizer import LENGTH

TEXT_WIDTH = 96
GUIDANCE = 1.5  # flat colours need little; far above 3 they burn out
NOISE_SCHEDULE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
                  "num_train_timesteps": 1000}


def make_vae():
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(24, 32, 48, 48), layers_per_block=2, norm_num_groups=8, latent_channels=4,
        sample_size=CANVAS)


def make_unet():
    return UNet2DConditionModel(
        sample_size=CANVAS // 8, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(32, 48, 64, 64),
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        cross_attention_dim=TEXT_WIDTH, attention_head_dim=2, norm_num_groups=16)


def make_text_encoder(tokenizer):
    return CLIPTextModel(CLIPTextConfig(
        vocab_size=len(tokenizer.vocab), hidden_size=TEXT_WIDTH, intermediate_size=4 * TEXT_WIDTH,
        num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=LENGTH, hidden_act="quick_gelu",
        projection_dim=TEXT_WIDTH, bos_token_id=tokenizer.start, eos_token_id=tokenizer.end,
        pad_token_id=tokenizer.end))


def count(module):
    return sum(p.numel() for p in module.parameters())


def _half(state, prefix=""):
    """fp16 tensors; newer versions of transformers lack the `text_model.` prefix that the layout requires."""
    out = {}
    for name, tensor in state.items():
        if name.endswith("position_ids"):
            continue
        if prefix and not name.startswith(prefix):
            name = prefix + name
        out[name] = tensor.detach().half().cpu().contiguous()
    return out


def _write_json(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n")


def _config(module, class_name, drop=()):
    values = {k: v for k, v in dict(module.config).items() if not k.startswith("_") and v is not None and k not in drop}
    return {"_class_name": class_name, **values}


def export(folder, tokenizer, vae, text, unet, scaling_factor):
    """Writes the model as a diffusers folder, weights in fp16."""
    folder = pathlib.Path(folder)
    tokenizer.save(folder / "tokenizer")
    for name, module, cls in (("vae", vae, "AutoencoderKL"), ("unet", unet, "UNet2DConditionModel")):
        config = _config(module, cls)
        if name == "vae":
            config["scaling_factor"] = scaling_factor
        _write_json(folder / name / "config.json", config)
        save_file(_half(module.state_dict()), str(folder / name / "diffusion_pytorch_model.safetensors"),
                  metadata={"format": "pt"})
    config = text.config
    _write_json(folder / "text_encoder" / "config.json", {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "attention_dropout": 0.0,
        **{k: getattr(config, k) for k in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
            "vocab_size", "hidden_act", "layer_norm_eps", "projection_dim", "bos_token_id", "eos_token_id",
            "pad_token_id")}, "torch_dtype": "float16"})
    save_file(_half(text.state_dict(), "text_model."), str(folder / "text_encoder" / "model.safetensors"),
              metadata={"format": "pt"})
    _write_json(folder / "scheduler" / "scheduler_config.json", {
        "_class_name": "PNDMScheduler", **NOISE_SCHEDULE, "set_alpha_to_one": False, "skip_prk_steps": True,
        "steps_offset": 1, "clip_sample": False, "trained_betas": None})
    _write_json(folder / "model_index.json", {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.42.1",
        "feature_extractor": [None, None], "requires_safety_checker": False, "safety_checker": [None, None],
        "scheduler": ["diffusers", "PNDMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "_tenon_defaults": {"width": CANVAS, "height": CANVAS, "steps": 20, "guidance_scale": GUIDANCE},
        "_tenon_knows": vocabulary()})
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o644)  # safetensors makes them private


def load_weights(folder, vae, text=None, unet=None):
    """Reads the weights of an exported folder into fresh modules; returns the scaling factor."""
    folder = pathlib.Path(folder)
    vae.load_state_dict(load_file(str(folder / "vae" / "diffusion_pytorch_model.safetensors")))
    if unet is not None:
        unet.load_state_dict(load_file(str(folder / "unet" / "diffusion_pytorch_model.safetensors")))
    if text is not None:
        state = load_file(str(folder / "text_encoder" / "model.safetensors"))
        if not any(name.startswith("text_model.") for name in text.state_dict()):
            state = {name.removeprefix("text_model."): tensor for name, tensor in state.items()}
        text.load_state_dict(state, strict=False)
    return json.loads((folder / "vae" / "config.json").read_text())["scaling_factor"]
