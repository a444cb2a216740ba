"""OpenAI's completions: what a request may say, and what is answered."""

import json
import time
import uuid
from typing import Annotated

from fastapi.responses import JSONResponse
from models.sampling import Sampling
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import field_validator as validator
from pydantic_core import PydanticCustomError, from_json

_PROMPT = "must be a string or a list of tokens; several prompts are several requests"
_REFUSED = {  # entries of OpenAI's that would change the answer: what each may be, and why
    "n": (1, "one text is generated for a request"),
    "best_of": (1, "one text is generated for a request"),
    "logprobs": (None, "log-probabilities are not given"),
    "suffix": (None, "text is generated at the end alone"),
    "presence_penalty": (0, "there are no penalties"),
    "frequency_penalty": (0, "there are no penalties"),
    "logit_bias": ({}, "logits are taken as they are"),
}


class BadRequest(Exception):
    """A request that is answered with a 4xx or 5xx; the message is one sentence."""

    def __init__(self, message: str, status: int = 400, parameter: str | None = None):
        super().__init__(message)
        self.status, self.parameter = status, parameter


class StreamOptions(BaseModel):
    """What a stream has beside the text."""

    model_config = ConfigDict(strict=True, extra="forbid")
    include_usage: bool = False


class Completion(BaseModel):
    """The body of a request; what it does not understand it refuses, and null is as if absent."""

    model_config = ConfigDict(strict=True, extra="forbid")
    prompt: str | list[int]
    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1 << 24)] = 16
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None  # None: one of its own
    stop: list[Annotated[str, StringConstraints(min_length=1, max_length=256)]] = Field(
        default=[], max_length=4
    )
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    echo: bool = False
    user: str | None = None

    @validator("temperature")
    @classmethod
    def _not_nearly_greedy(cls, value: float) -> float:
        """Logits must not overflow when they are divided by it."""
        if 0 < value < 0.01:
            raise PydanticCustomError("temperature", "must be 0 or at least 0.01")
        return value

    @validator("prompt", mode="before")
    @classmethod
    def _only_prompt(cls, value: object) -> object:
        """A list of one prompt is that prompt."""
        one = isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list)
        return value[0] if one else value

    @validator("stop", mode="before")
    @classmethod
    def _stop_list(cls, value: object) -> object:
        """One string is a list, too."""
        return [value] if isinstance(value, str) else value

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p)


def read_completion(body: bytes) -> Completion:
    """The request of a body.

    Raises:
        BadRequest: It is none.
    """
    try:
        entries = from_json(body)  # which takes no half of a character, as Python's own does
    except ValueError as error:
        raise BadRequest("the body must be JSON") from error
    if not isinstance(entries, dict):
        raise BadRequest("the body must be a JSON object")
    entries = {name: value for name, value in entries.items() if value is not None}
    for name, (value, reason) in _REFUSED.items():
        given = entries.pop(name, value)
        if given != value or isinstance(given, bool):
            wanted = "absent" if value is None else json.dumps(value)
            raise BadRequest(f"{name} must be {wanted}: {reason}", parameter=name)
    try:
        return Completion.model_validate(entries)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["loc"][0] == "prompt" and first["type"] != "missing":  # a union says it twice
            raise BadRequest(f"prompt: {_PROMPT}", parameter="prompt") from error
        name = ".".join(str(part) for part in first["loc"])[:64]
        raise BadRequest(f"{name}: {_said(first)}", parameter=name) from error


def _said(found: dict) -> str:
    """Pydantic's message as the rest of a sentence."""
    if found["type"] == "extra_forbidden":
        return "there is no such parameter"
    message = str(found["msg"])
    return message[:1].lower() + message[1:]


def error_response(error: BadRequest) -> JSONResponse:
    """An error in OpenAI's form."""
    headers = {}
    if error.status in (429, 503):
        headers["Retry-After"] = "1"
    if error.status in (408, 413):  # the rest of the body is not read
        headers["Connection"] = "close"
    return JSONResponse(error_entries(error), error.status, headers)


def error_entries(error: BadRequest) -> dict:
    """The same, for a stream that has begun."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    kind = "rate_limit_error" if error.status == 429 else kind
    entries = {"message": str(error), "type": kind, "param": error.parameter, "code": None}
    return {"error": entries}


class Answer:
    """What is sent back of one completion: whole, or a chunk at a time."""

    def __init__(self, model: str):
        self.head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def of(self, text: str, reason: str | None = None, usage: dict | None = None) -> dict:
        """A text, why it ended, if it did, and what it took, if that is asked for."""
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        return {**self.head, "choices": [choice], **({"usage": usage} if usage else {})}

    def usage(self, prompt: int, generated: int) -> dict:
        """The tokens that were read and generated."""
        total = prompt + generated
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": total,
        }


def event(entries: dict | str) -> bytes:
    """A server-sent event."""
    text = entries if isinstance(entries, str) else json.dumps(entries, ensure_ascii=False)
    return f"data: {text}\n\n".encode()
