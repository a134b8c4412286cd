"""A very small Z-Image: its three networks in the published layout, a byte-level tokenizer, and their export."""

import json
import pathlib

import transformers
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 1024,
        "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False}
ROPE_THETA = 1e6
TRANSFORMER = {"all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 16, "dim": 128, "n_layers": 6,
               "n_refiner_layers": 1, "n_heads": 4, "n_kv_heads": 4, "norm_eps": 1e-5, "qk_norm": True,
               "cap_feat_dim": TEXT["hidden_size"], "rope_theta": 256.0, "t_scale": 1000.0, "axes_dims": [8, 12, 12],
               "axes_lens": [1536, 512, 512]}
VAE = {"in_channels": 3, "out_channels": 3, "latent_channels": 16, "block_out_channels": [32, 32, 64, 64],
       "layers_per_block": 2, "norm_num_groups": 32, "act_fn": "silu", "down_block_types": ["DownEncoderBlock2D"] * 4,
       "up_block_types": ["UpDecoderBlock2D"] * 4, "use_quant_conv": False, "use_post_quant_conv": False,
       "mid_block_add_attention": True}
SHIFT = 3.0
GUIDANCE = 2.0  # Tenon's default for this model
SCHEDULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
             "use_dynamic_shifting": False, "shift": SHIFT}
MOST_BYTES = 10_000_000  # limit on all weights, which are embedded
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
CHAT = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_tokenizer(captions, vocabulary=768):
    """Byte-level BPE with Qwen2's words, trained on captions wrapped in the chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, initial_alphabet=byte_level.alphabet())
    tokenizer.train_from_iterator([*captions, "user\n", "assistant\n"], trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    return tokenizer


def ids_of(tokenizer, caption):
    """As in the pipelines: a turn of a conversation, then the beginning of an answer."""
    return tokenizer.encode(f"<|im_start|>user\n{caption}<|im_end|>\n<|im_start|>assistant\n").ids


def make_text_encoder(tokenizer):
    rope = {"rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"}}
    return transformers.Qwen3Model(transformers.Qwen3Config(vocab_size=tokenizer.get_vocab_size(), **TEXT, **rope))


def make_transformer():
    return ZImageTransformer2DModel(**TRANSFORMER)


def make_vae():
    return AutoencoderKL(**VAE)


def count(module):
    return sum(p.numel() for p in module.parameters())


def _write(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n")


def _weights(path, module, prefix=""):
    state = {prefix + k: v.detach().bfloat16().cpu().contiguous().clone() for k, v in module.state_dict().items()}
    save_file(state, str(path), metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it private


def load_tokenizer(folder):
    return Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer/tokenizer.json"))


def load_weights(folder, vae, text, transformer):
    """Loads an exported folder into networks of the same sizes."""
    folder = pathlib.Path(folder)
    vae.load_state_dict(load_file(folder / "vae/diffusion_pytorch_model.safetensors"))
    transformer.load_state_dict(load_file(folder / "transformer/diffusion_pytorch_model.safetensors"))
    state = load_file(folder / "text_encoder/model.safetensors")
    text.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})


def export(folder, tokenizer, vae, text, transformer, scaling, shift, size, words):
    """Writes the model as a diffusers folder, weights in bf16; asserts that they are small enough to embed.

    size: side in pixels; words: all that it was trained on, by kind.
    """
    folder = pathlib.Path(folder)
    _write(folder / "vae/config.json",
           {"_class_name": "AutoencoderKL", **VAE, "scaling_factor": scaling, "shift_factor": shift,
            "sample_size": size})
    _write(folder / "transformer/config.json", {"_class_name": "ZImageTransformer2DModel", **TRANSFORMER})
    _write(folder / "text_encoder/config.json",
           {"architectures": ["Qwen3Model"], "model_type": "qwen3", "vocab_size": tokenizer.get_vocab_size(), **TEXT,
            "rope_theta": ROPE_THETA, "torch_dtype": "bfloat16"})
    _write(folder / "scheduler/scheduler_config.json", SCHEDULER)
    (folder / "tokenizer").mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer/tokenizer.json"))
    _write(folder / "tokenizer/tokenizer_config.json",
           {"tokenizer_class": "Qwen2Tokenizer", "pad_token": SPECIAL[0], "eos_token": SPECIAL[2],
            "chat_template": CHAT})
    _write(folder / "model_index.json",
           {"_class_name": "ZImagePipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
            "text_encoder": ["transformers", "Qwen3Model"], "tokenizer": ["transformers", "Qwen2Tokenizer"],
            "_tenon_defaults": {"width": size, "height": size, "steps": 8, "guidance_scale": GUIDANCE},
            "_tenon_knows": words,
            "transformer": ["diffusers", "ZImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]})
    _weights(folder / "vae/diffusion_pytorch_model.safetensors", vae)
    _weights(folder / "transformer/diffusion_pytorch_model.safetensors", transformer)
    _weights(folder / "text_encoder/model.safetensors", text, "model.")
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    assert size <= MOST_BYTES, f"{size} bytes of weights"
