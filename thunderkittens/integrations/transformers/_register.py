"""`register`: our attention under a name that transformers' models can be loaded with."""

from thunderkittens.integrations.transformers._apply import library

NAME = "thunderkittens"
_OLDEST = "5.17"  # of those tested; 5.0 calls its mask functions with other arguments


def register() -> None:
    """Lets models of transformers be loaded with `attn_implementation="thunderkittens"`.

    As `from_pretrained`, `from_config` and `set_attn_implementation` take it: all their attention
    is then `thunderkittens.attention`, and `attention_decode` where up to 16 new tokens meet a
    cache. Twice is as good as once; other models are not touched.

    Masks:
        Transformers' masks are understood, not stored: causal, two-sided and sliding-window ones,
        over caches of any kind (a static cache's length stays on the device), padding before or
        behind each sequence, packed sequences by `position_ids` or by `cu_seq_lens_q` and `_k`.
        A row that is padding itself sees what nobody should read. All others are computed by torch
        with the very mask: holes in the padding, chunks, blocks of image tokens, tensors of four
        dimensions, and packed sequences without `cu_seq_lens` under torch.compile. So are dropout
        in training, a position bias, and `output_attentions`, which gives weights as eager does. On
        a GPU each reason is said once, and an error under THUNDERKITTENS_STRICT=1.

        Of an attention_mask two flags are read from the device, once a forward and kind of mask;
        none under torch.compile or while a CUDA graph is captured, where a hole in it is an error
        that the device raises. Packed `position_ids` cost two reads; `cu_seq_lens` none.

    Raises:
        ImportError: transformers is missing, or older than 5.17.

    Numerics:
        As `attention`: scores and softmax in float32.

    Example:
        >>> from thunderkittens.integrations.transformers import register
        >>> from transformers import AutoModelForCausalLM, LlamaConfig
        >>> register()
        >>> sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2)
        >>> config = LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=100)
        >>> model = AutoModelForCausalLM.from_config(config, attn_implementation="thunderkittens")
    """
    transformers = library("register", _OLDEST)
    from thunderkittens.integrations.transformers._attention import attend
    from thunderkittens.integrations.transformers._masks import describe

    transformers.AttentionInterface.register(NAME, attend)
    transformers.AttentionMaskInterface.register(NAME, describe)
