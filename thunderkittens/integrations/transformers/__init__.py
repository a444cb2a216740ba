"""Models of Hugging Face's transformers on thunderkittens ops.

Example:
    from thunderkittens.integrations.transformers import apply, register

    register()
    model = AutoModelForCausalLM.from_pretrained(
        "Qwen/Qwen3-0.6B", dtype=torch.bfloat16, attn_implementation="thunderkittens"
    )
    print(apply(model))
"""

from thunderkittens.integrations.transformers._apply import apply, revert
from thunderkittens.integrations.transformers._register import register
from thunderkittens.integrations.transformers._report import Places, Report

__all__ = ["Places", "Report", "apply", "register", "revert"]
