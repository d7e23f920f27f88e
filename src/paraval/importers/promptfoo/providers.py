"""promptfoo's providers, as models of the registry or as commands."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.importers.promptfoo.source import Source, as_list

COMPATIBLE: dict[str, tuple[str, str | None]] = {
    "azure": ("https://HOST/openai/v1", "AZURE_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "ollama": ("http://localhost:11434/v1", None),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "togetherai": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "fireworks": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "hyperbolic": ("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    "nvidia": ("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "github": ("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "litellm": ("http://localhost:4000", "LITELLM_API_KEY"),
    "llama": ("http://localhost:8080/v1", None),
    "localai": ("http://localhost:8080/v1", None),
    "vllm": ("http://localhost:8000/v1", None),
    "lmstudio": ("http://localhost:1234/v1", None),
}
"""Services with OpenAI's protocol: their URLs and the usual variables of their keys."""

_SUBTYPES = ("chat", "responses", "messages", "completion", "embedding", "embeddings", "chatkit")
# fmt: off
_NO_CHAT = (
    "image", "realtime", "assistant", "moderation", "transcription", "video", "tts", "speech",
    "audio", "agents", "codex-sdk", "codex-app-server", "claude-agent-sdk", "claude-code", "live",
    "imagen", "chatkit",
)
_SENT = (
    "temperature", "max_tokens", "max_completion_tokens", "max_output_tokens", "top_p", "top_k",
    "stop", "stop_sequences", "seed", "frequency_penalty", "presence_penalty", "response_format",
    "reasoning_effort", "reasoning", "thinking", "tool_choice", "verbosity", "text", "effort",
    "service_tier", "instructions", "parallel_tool_calls", "output_config",
)
_REQUEST = {name: name for name in _SENT} | {
    "maxTokens": "max_tokens", "maxOutputTokens": "max_tokens", "topP": "top_p", "topK": "top_k",
}
# fmt: on
"""Settings that are sent to the model: promptfoo's name -> the request's."""
_CONNECTION = frozenset(
    (
        "apiBaseUrl",
        "apiHost",
        "apiKeyEnvar",
        "apiKey",
        "tools",
        "functions",
        "passthrough",
        "base_url",
    )
)
CALLER = "call_provider.py"
"""Calls a Python provider as a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What an axis value stands for: a model of the registry, or a command."""

    name: str
    model: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    command: Mapping[str, Any] | None = None
    prompts: tuple[str, ...] = ()
    """Labels of the only prompts it gets; () for all."""


def read_provider(written: Any, path: str, source: Source, to: Path) -> Provider | None:
    """Read one provider; None if it has no equivalent, which is then listed."""
    if isinstance(written, dict) and "id" not in written and len(written) == 1:
        ((name, inner),) = written.items()
        written = {"id": name, **(inner if isinstance(inner, dict) else {})}
    settings = {"id": written} if isinstance(written, str) else written
    if not isinstance(settings, dict) or not isinstance(settings.get("id"), str):
        source.leave_out(path, "not a provider's id")
        return None
    known = ("id", "label", "config", "prompts", "description")
    source.leave_out_rest(settings, known, path, {"delay": "use limits of the model"})
    identity: str = settings["id"]
    config = source.values(settings.get("config"), f"{path}.config")
    config = config if isinstance(config, dict) else {}
    label = settings.get("label")
    own = tuple(map(str, as_list(settings.get("prompts"))))
    command = _command(identity, config, source, to)
    if command is not None:
        name = label or re.sub(r"^(file://|exec:\s*|python:)", "", identity)
        return Provider(name=str(name), command=command, prompts=own)
    model = _model(identity, path, source)
    if model is None:
        return None
    for key, why in _apply(config, model).items():
        source.leave_out(f"{path}.config.{key}", why)
    tools = [
        tool
        for key in ("tools", "functions")
        for tool in _tools(config.get(key), f"{path}.config.{key}", source)
    ]
    name = str(label or model["model"])
    return Provider(name=name, model=model, tools=tuple(tools), prompts=own)


def _model(identity: str, path: str, source: Source) -> dict[str, Any] | None:
    service, _, rest = identity.partition(":")
    subtype, _, inner = rest.partition(":")
    if service in ("http", "https", "ws", "wss", "file", "exec") or not rest:
        source.leave_out(path, f"{identity}: write it as a command or a Python function (target)")
        return None
    if subtype in _NO_CHAT or service in ("bedrock", "vertex", "sagemaker", "replicate"):
        why = "only chat models with OpenAI's or Anthropic's protocol; or use a Python function"
        if "sdk" in subtype or "code" in subtype:
            why = "an agent: use target: {agent: ...}"
        source.leave_out(path, f"{identity}: {why}")
        return None
    name = inner if subtype in _SUBTYPES and inner else rest
    if service == "anthropic":
        return {"provider": "anthropic", "model": name}
    if service == "openai":
        kind = "openai-responses" if subtype == "responses" else "openai"
        return {"provider": kind, "model": name}
    if service in ("azure", "azureopenai"):
        service = "azure"
    if service in COMPATIBLE:
        url, key = COMPATIBLE[service]
        model = {"provider": "openai", "model": name, "base_url": url}
        return {**model, "api_key_env": key} if key else model
    source.leave_out(path, f"{identity}: not a model that paraval can call; use a Python function")
    return None


def _apply(config: Mapping[str, Any], model: dict[str, Any]) -> dict[str, str]:
    """Add a provider's settings to its model; return those without effect, with the reason."""
    left: dict[str, str] = {}
    options: dict[str, Any] = {}
    for key, value in config.items():
        if key in _REQUEST:
            options[_REQUEST[key]] = value
        elif key == "passthrough" and isinstance(value, dict):
            options.update(value)
        elif key in ("apiBaseUrl", "base_url"):
            model["base_url"] = value
        elif key == "apiHost":
            azure = model.get("api_key_env") == "AZURE_API_KEY"
            model["base_url"] = f"https://{value}/openai/v1" if azure else f"https://{value}/v1"
        elif key == "apiKeyEnvar":
            model["api_key_env"] = value
        elif key == "apiKey":
            named = re.fullmatch(r"\$\{(\w+)\}", str(value))
            if named:
                model["api_key_env"] = named[1]
            else:
                left[key] = "keys are never written to a suite; name a variable in api_key_env"
        elif key not in _CONNECTION:
            left[key] = "not a setting of the request; add it to the model's options if it is"
    if model["provider"] == "openai-responses" and "max_tokens" in options:
        options["max_output_tokens"] = options.pop("max_tokens")
    if options:
        model["options"] = options
    return left


def _tools(written: Any, path: str, source: Source) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for at, tool in enumerate(written if isinstance(written, list) else []):
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or "name" not in function:
            source.leave_out(f"{path}[{at}]", "only functions are tools")
            continue
        parameters = function.get("parameters") or function.get("input_schema")
        keys = {key: function.get(key) for key in ("name", "description")}
        keys["parameters"] = parameters
        found.append({key: value for key, value in keys.items() if value is not None})
    return tuple(found)


def _command(
    identity: str, config: Mapping[str, Any], source: Source, to: Path
) -> dict[str, Any] | None:
    """Return the command target of `echo`, `exec:` and Python providers."""
    context = '{{"vars": {input}}}'
    here = os.path.relpath(source.folder, to)
    if identity == "echo":
        return {"command": ["printf", "%s", "{prompt}"], "cwd": ".", "output": "stdout"}
    options = _literal(json.dumps({"config": config}))
    if identity.startswith("exec:"):
        words = [_literal(word) for word in shlex.split(identity.removeprefix("exec:"))]
        _note_environment(source)
        return {"command": [*words, "{prompt}", options, context], "cwd": here, "output": "stdout"}
    script = re.fullmatch(r"(?:file://|python:)(.+?\.py)(?::(\w+))?", identity)
    if script is None:
        return None
    source.files[CALLER] = CALLER_TEXT
    _note_environment(source)
    words = [f"{script[1]}:{script[2] or 'call_api'}", "{prompt}", options, context]
    return {
        "command": ["{python}", f"{{suite}}/{CALLER}", *words],
        "cwd": here,
        "output": "json",
    }


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _note_environment(source: Source) -> None:
    source.notes["Commands get only the variables that you name: pass_env: [OPENAI_API_KEY]."] = (
        None
    )


CALLER_TEXT = '''\
"""Calls a function of a promptfoo Python provider: FILE:FUNCTION PROMPT OPTIONS CONTEXT."""

import asyncio
import contextlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path

where, prompt, options, context = sys.argv[1:]
file, _, name = where.rpartition(":")
sys.path.insert(0, str(Path(file).resolve().parent))
spec = importlib.util.spec_from_file_location("provider", file)
module = importlib.util.module_from_spec(spec)
with contextlib.redirect_stdout(sys.stderr):
    spec.loader.exec_module(module)
    answer = getattr(module, name)(prompt, json.loads(options), json.loads(context))
    if inspect.isawaitable(answer):
        answer = asyncio.run(answer)
if answer.get("error"):
    sys.exit(str(answer["error"]))
output = answer.get("output")
tokens = answer.get("tokenUsage") or {}
names = {"prompt": "input_tokens", "completion": "output_tokens"}
result = {
    "text": output if isinstance(output, str) else json.dumps(output),
    "usage": {names[key]: tokens[key] for key in names if tokens.get(key) is not None},
    "metadata": answer.get("metadata") or {},
}
if answer.get("cost") is not None:
    result["cost_usd"] = answer["cost"]
print(json.dumps(result))
'''
