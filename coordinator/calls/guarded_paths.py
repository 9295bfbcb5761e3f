"""Files that hold credentials, and files by which an agent or Signalbox is guarded.

No allow rule covers one of them unless it names it: who may write an agent's settings can switch its hooks off. The
patterns are written as rules write paths (policy.rules.terms).
"""

from __future__ import annotations

CREDENTIAL_PATHS: tuple[str, ...] = (
    ".env", ".env.local", ".env.*.local", ".env.production", ".env.development", ".env.staging", ".env.test",
    ".envrc",
    "~/.ssh", "~/.aws", "~/.azure", "~/.config/gcloud", "~/.config/gh", "~/.kube", "~/.gnupg", "~/.docker/config.json",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".vault-token", ".pgpass", ".my.cnf",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.keystore",
    "credentials.json", "service-account*.json", "terraform.tfstate", "/etc/shadow", "/etc/sudoers",
    "/proc/*/environ", "/run/secrets",
)  # fmt: skip
SETTINGS_PATHS: tuple[str, ...] = (
    "**/.claude/settings.json", "**/.claude/settings.local.json", "**/.claude/hooks",
    "**/.claude/managed-settings.json",
    "~/.claude", ".claude.json", ".mcp.json", "**/.codex", "**/.gemini/settings.json", "~/.gemini",
    "**/.cursor/hooks.json", "**/.cursor/mcp.json", "**/.qwen/settings.json", "**/.copilot", "**/.github/hooks",
    "opencode.json", "opencode.jsonc", "**/.opencode", "~/.config/opencode", "~/.config/goose", "~/.config/kilo",
    "**/.git/hooks", "**/.git/config", "~/.gitconfig", "**/.husky", "~/.config/signalbox", "**/.signalbox",
    "signalbox.sqlite3", "signalbox.sqlite3-wal",
)  # fmt: skip
GUARDED_PATHS = CREDENTIAL_PATHS + SETTINGS_PATHS
