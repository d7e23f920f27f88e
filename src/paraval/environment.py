"""The environment of a child process: made from nothing, so that secrets stay here.

Commands, isolated workers and grader commands get this; what else they need is named in the suite.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

PASSED_ALWAYS = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
    }
)
"""What programs need to find their way, and every LC_*. Not TERM: a child has no terminal."""

PROXY_VARIABLES = (
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
)
"""What programs need that are to reach a provider from where there is no other way out."""


def child_environment(
    env: Mapping[str, str],
    pass_env: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Allowed names and `pass_env` as they are here, then `env`, then `extra`: later ones win."""
    names = {name for name in os.environ if name in PASSED_ALWAYS or name.startswith("LC_")}
    names.update(name for name in pass_env if name in os.environ)
    inherited = {name: os.environ[name] for name in sorted(names)}
    return {**inherited, **env, **(extra or {})}
