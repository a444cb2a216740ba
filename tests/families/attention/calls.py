"""Calls of attention's ops, for the tests of all ops."""

import torch
from torch import Tensor

import thunderkittens
from tests.tools.calls import Call

ops = torch.ops.thunderkittens
attention, sdpa = thunderkittens.attention, thunderkittens.scaled_dot_product_attention
qkvpacked = thunderkittens.attention_qkvpacked
QKV = ((1, 33, 4, 64), (1, 33, 2, 64), (1, 33, 2, 64))
ONE = ((1, 33, 3, 2, 64),)


def _packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ends = torch.tensor([0, 20, 33], device=q.device)
    places = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 20, "max_seqlen_k": 20}
    return thunderkittens.attention(*(t.flatten(0, 1) for t in (q, k, v)), **places)


def _padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    end, first = (torch.tensor([n], device=q.device, dtype=torch.int32) for n in (25, 3))
    return attention(q, k, v, causal=True, seqused_k=end, leftpad_k=first)


def _packed_one(qkv: Tensor) -> Tensor:
    ends = torch.tensor([0, 20, 33], device=qkv.device)
    return qkvpacked(qkv.flatten(0, 1), cu_seqlens=ends, max_seqlen=20)


def _padded_one(qkv: Tensor) -> Tensor:
    end, first = (torch.tensor([n], device=qkv.device, dtype=torch.int32) for n in (25, 3))
    return qkvpacked(qkv, seqused_k=end, leftpad_k=first)


CALLS = (
    Call("attention", QKV, attention),
    Call("attention", QKV, lambda *t: attention(*t, causal=True), "causal"),
    Call("attention", QKV, lambda *t: attention(*t, return_lse=True), "lse"),
    Call("attention", QKV, lambda *t: attention(*t, window=(5, 2), softcap=3.0), "options"),
    Call("attention", (*QKV, (4,)), lambda *t: attention(*t[:3], sinks=t[3]), "sinks"),
    Call("attention", (*QKV[:2], (1, 33, 2, 24)), attention, "values"),
    Call("attention", (*QKV[:2], (1, 33, 2, 20)), attention, "no kernel"),
    Call("attention", QKV, _packed, "packed"),
    Call("attention", QKV, _padded, "padded"),
    Call("attention_qkvpacked", ONE, qkvpacked),
    Call("attention_qkvpacked", ONE, lambda t: qkvpacked(t, causal=True, return_lse=True), "lse"),
    Call("attention_qkvpacked", ONE, lambda t: qkvpacked(t, window=(5, 2), softcap=3.0), "options"),
    Call("attention_qkvpacked", (*ONE, (2,)), lambda t, s: qkvpacked(t, sinks=s), "sinks"),
    Call("attention_qkvpacked", ((1, 33, 3, 2, 20),), qkvpacked, "no kernel"),
    Call("attention_qkvpacked", ONE, _packed_one, "packed"),
    Call("attention_qkvpacked", ONE, _padded_one, "padded"),
    Call("scaled_dot_product_attention", ((1, 2, 33, 64),) * 3, sdpa),
)
SHORT_FORMS = {
    ops.attention: lambda x: (*(x(1, 5, 2, 8) for _ in "qkv"), True, 0.3),
    ops.attention_forward: lambda x: (*(x(1, 5, 2, 8) for _ in "qkv"), True, None),
    ops.attention_qkvpacked: lambda x: (x(1, 5, 3, 2, 8), True, 0.3),
    ops.attention_qkvpacked_forward: lambda x: (x(1, 5, 3, 2, 8), True, None),
}
X, STARTS = torch.ones(1, 2, 2, 8), torch.tensor([0, 2])
Y = torch.ones(1, 2, 3, 2, 8)
PACKED = {"cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS, "max_seqlen_k": 2}
WRONG_TYPES = {
    "attention: softcap must be a number, got None": lambda: attention(X, X, X, softcap=None),
    "attention: scale must be a number or None, got str '1'": (
        lambda: attention(X, X, X, scale="1", return_lse=True)
    ),
    "attention: causal must be True or False, got str 'yes'": (
        lambda: attention(X, X, X, causal="yes")
    ),
    "attention: max_seqlen_q must be an integer, got True": (
        lambda: attention(X[0], X[0], X[0], max_seqlen_q=True, **PACKED)
    ),
    "attention: max_seqlen_q must be an integer or None, got float 2.0": (
        lambda: attention(X[0], X[0], X[0], max_seqlen_q=2.0, **PACKED)
    ),
    "attention: k must be a tensor, got ndarray: torch.from_numpy makes a tensor of it": (
        lambda: attention(X, X.numpy(), X)
    ),
    "attention_qkvpacked: qkv must be a tensor, got None": lambda: qkvpacked(None),
    "attention_qkvpacked: softcap must be a number, got None": lambda: qkvpacked(Y, softcap=None),
    "attention_qkvpacked: max_seqlen must be an integer, got True": (
        lambda: qkvpacked(Y[0], cu_seqlens=STARTS, max_seqlen=True)
    ),
    "attention_qkvpacked: max_seqlen must be an integer or None, got float 2.0": (
        lambda: qkvpacked(Y[0], cu_seqlens=STARTS, max_seqlen=2.0)
    ),
    "scaled_dot_product_attention: scale must be a number or None, got str '1'": (
        lambda: sdpa(X, X, X, scale="1")
    ),
}
