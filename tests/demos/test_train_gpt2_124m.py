"""The trainer without Python and torch at GPT-2 124M's sizes, beside PyTorch in float64."""

import pytest
import torch
from models.gpt2 import Config
from one_step import Problem, Step
from trainers import DTYPES

# Products of 768 with this deviation do to their input what those of 64 in test_train_gpt2_model.py
# do with 0.15.
DEVIATION = 0.15 * (64 / 768) ** 0.5
GPT2_124M = Problem(
    Config(50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12), DEVIATION, 2, 1, "cuda"
)
# What stands for it where there is no GPU: of one batch, and of a depth and width of its own.
SMALL = Problem(Config(103, n_positions=24, n_embd=128, n_layer=3, n_head=2), 0.106, 1, 1)
CASES = [("simulator", SMALL, dtype) for dtype in DTYPES]
CASES += [pytest.param("gpu", GPT2_124M, dtype, marks=pytest.mark.gpu) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("where", "problem", "dtype"), CASES, ids=lambda it: it if isinstance(it, str) else "model"
)
def test_logits_losses_and_gradients(tmp_path, where, problem, dtype):
    step = Step(where, problem, tmp_path, dtype)
    step.check_logits_and_losses()
    step.check_every_gradient()
    torch.cuda.empty_cache()
