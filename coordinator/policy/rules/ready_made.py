"""Ready-made rules: what most people want to be asked about, each a sentence and one switch.

A switch that is on is an ordinary rule, at the top of the list, with the name of its switch. People may edit it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coordinator.calls.guarded_paths import CREDENTIAL_PATHS, SETTINGS_PATHS
from coordinator.models.rules import RuleVerdict
from coordinator.policy.rules.call_history import NEW_HOSTS
from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES
from coordinator.policy.rules.ready_made_rule import ReadyMadeRule, dedent_and_join_continuation_lines
from coordinator.policy.rules.terms import IGNORE_UNREADABLE, WITHOUT_SANDBOX
from coordinator.policy.rules.tool_rules import DecisionRule

READY_MADE_RULES: tuple[ReadyMadeRule, ...] = (
    ReadyMadeRule(
        "publishes",
        "publishes or deploys: git push, gh release, npm publish, docker push, terraform apply, kubectl apply",
        "Publishes or deploys",
        runs=dedent_and_join_continuation_lines("""
            git push|send-pack
            git subtree|lfs push
            git svn dcommit
            git send-email
            hub push
            gh release create|upload|edit|delete
            gh pr merge
            gh repo create|delete|edit
            gh workflow run
            gh api -X|--method|-f|-F|--field|--raw-field|--input
            glab release create|upload
            npm|pnpm|yarn|bun publish
            yarn npm publish
            npm|pnpm|yarn|bun run deploy*|publish*|release*
            make|just|task|rake deploy*|publish*|release*
            lerna publish
            changeset publish
            semantic-release
            npm|pnpm unpublish|deprecate|dist-tag
            cargo publish|yank
            twine upload
            uv|poetry|flit|hatch|pdm publish
            gem push|yank
            mvn deploy
            gradle|gradlew publish
            dotnet nuget push
            docker|podman|nerdctl push
            docker|podman image push
            docker buildx build --push
            docker compose push
            skopeo|crane copy|push
            terraform|tofu|terragrunt apply|destroy|import
            pulumi up|destroy
            cdk deploy|destroy
            kubectl|oc apply|delete|create|replace|patch|scale|rollout|edit|set
            helm install|upgrade|uninstall|rollback|push
            argocd app sync|delete
            ansible-playbook
            serverless|sls deploy|remove
            vercel deploy|promote
            netlify|firebase|wrangler|fly|flyctl|eas deploy
            heroku releases|pg|ps
            gcloud|az|aws deploy
            aws s3 sync|cp|rm|mv
            aws cloudformation deploy
            gcloud app|run|functions deploy
        """),
    ),
    ReadyMadeRule(
        "deletes-outside",
        "deletes files outside the working directory",
        "Deletes outside its directory",
        touches="deletes outside\n!/tmp\n!/var/tmp",
    ),
    ReadyMadeRule(
        "credentials",
        "touches credentials: .env files, ~/.ssh, cloud credentials, key files",
        "Touches credentials",
        touches="\n".join(CREDENTIAL_PATHS),
    ),
    ReadyMadeRule(
        "prints-credentials",
        "prints credentials: gh auth token, gpg --export-secret-keys, aws configure get, the system's keychain",
        "Prints credentials",
        runs=dedent_and_join_continuation_lines("""
            gh auth token
            gh auth status --show-token
            gpg|gpg2 --export-secret-keys|--export-secret-subkeys
            security find-generic-password|find-internet-password|dump-keychain|export
            secret-tool lookup|search
            aws configure get|export-credentials
            aws sts get-session-token|assume-role
            aws secretsmanager get-secret-value
            aws ssm get-parameter|get-parameters --with-decryption
            gcloud auth print-access-token|print-identity-token
            gcloud secrets versions access
            az account get-access-token
            az keyvault secret show
            kubectl get|describe secret|secrets|secret/*
            kubectl config view --raw
            vault read|print
            vault kv get
            op read|item
            bw get|export
            pass show
            git credential fill
            npm token
        """),
        unreadable=IGNORE_UNREADABLE,
    ),
    ReadyMadeRule(
        "rewrites-history",
        "rewrites history: force push, hard reset, rebase, or a push to a protected branch",
        "Rewrites history or pushes to a protected branch",
        runs=dedent_and_join_continuation_lines("""
            git push --force|--force-with-lease|--force-if-includes|-f|--mirror|--delete|-d|--prune
            git push * +*
            git push * :*
            git push * main|master|trunk|production|release*
            git push * *:main|*:master|*:trunk|*:production|*:release*
            git push * refs/heads/main|refs/heads/master|refs/heads/trunk|refs/heads/production|refs/heads/release*
            git push * *:refs/heads/main|*:refs/heads/master|*:refs/heads/trunk|*:refs/heads/production
            git push * *:refs/heads/release*
            git reset --hard
            git rebase|filter-branch|filter-repo
            git commit --amend
            git update-ref
            git branch -D|-f|--force|-M
            git checkout|switch -B|-C
            git tag -d|-f|--delete|--force
            git reflog expire|delete
            git gc --prune
            git stash drop|clear
            git checkout -f|--force
            git clean -f|--force
            bfg
        """),
    ),
    ReadyMadeRule(
        "installs",
        "installs packages",
        "Installs packages",
        runs=dedent_and_join_continuation_lines("""
            npm|pnpm|yarn|bun install|i|add|ci|update|upgrade|link
            npx|bunx|pnpx|uvx|pipx
            pnpm|yarn dlx
            pip|pip3|pip3.* install|download
            uv add|sync
            uv pip install|sync
            uv tool install|run
            poetry|pdm|rye add|install|update
            pipenv install|update
            conda|mamba|micromamba install|create|update
            cargo install|add
            go install|get
            gem|bundle install|update
            composer require|install|update
            brew install|upgrade|reinstall|tap
            apt|apt-get|dnf|yum|zypper|apk install|add|upgrade
            pacman -S*|-U*
            snap|flatpak install
            dotnet add
            dotnet tool install
            deno install|add
            claude|codex|gemini mcp add
            claude plugin install
            code --install-extension
        """),
    ),
    ReadyMadeRule(
        "network",
        "reaches a host of the network",
        "Reaches the network",
        reaches="*\n!localhost\n!127.*\n!::1\n!0.0.0.0",
    ),
    ReadyMadeRule(
        "new-hosts",
        "reaches a host of the network that nobody has approved in its project before",
        "Reaches a new host",
        reaches=f"{NEW_HOSTS}\n!localhost\n!127.*\n!::1\n!0.0.0.0",
    ),
    ReadyMadeRule(
        "own-settings",
        "changes the settings of agents, their hooks, or of Signalbox itself",
        "Changes the settings of an agent or of Signalbox",
        touches="\n".join(f"writes|deletes {path}" for path in SETTINGS_PATHS),
    ),
    ReadyMadeRule(
        "connects",
        "connects or disconnects an agent, or changes its hooks with a command",
        "Connects or disconnects an agent",
        runs=dedent_and_join_continuation_lines("""
            signalbox connect|disconnect|runner
            git config core.hooksPath
            git config * core.hooksPath|alias.*|core.sshCommand|core.pager|core.editor
            git -c=core.hooksPath=*
            claude config|mcp|plugin|hooks
            codex|gemini|opencode mcp|config
        """),
    ),
    ReadyMadeRule(
        "without-sandbox",
        "leaves its sandbox, or starts an agent that asks nobody",
        "Leaves its sandbox or asks nobody",
        runs=WITHOUT_SANDBOX,
        unreadable=IGNORE_UNREADABLE,
    ),
    ReadyMadeRule(
        "outside-project",
        "reads or writes anything outside the working directory",
        "Reaches outside its directory",
        touches="outside\n!/tmp\n!/var/tmp\n!/dev",
    ),
    ReadyMadeRule(
        "same-call",
        "makes the same call 5 times in 10 minutes",
        "Repeats a call",
        repeats="same call 5 times in 10 minutes",
    ),
    ReadyMadeRule(
        "same-error",
        "goes on after it met the same error 4 times in 10 minutes",
        "Meets an error again and again",
        repeats="same error 4 times in 10 minutes",
    ),
)
BY_NAME = {rule.name: rule for rule in (*READY_MADE_RULES, *ALLOWING_RULES)}


def rules_with_ready_made_switched(
    rules: Iterable[DecisionRule], name: str, *, is_on: bool
) -> list[DecisionRule]:
    """Return the rules with the ready-made one, or without it. What is on already stays as people edited it.

    One that asks comes behind the denials with which the list begins: no call that they deny is asked about instead.
    One that allows comes behind every rule that denies, or asks about some calls.
    """
    listed = list(rules)
    present = [rule for rule in listed if rule.ready_made == name]
    if is_on and present:
        listed = [replace(rule, is_off=False) if rule in present else rule for rule in listed]
    elif is_on:
        added = BY_NAME[name]
        place = (
            find_position_for_allow_rule(listed) if added.is_allowing else count_leading_deny_rules(listed)
        )
        listed.insert(place, added.build_rule(1))
    elif not is_on:
        listed = [rule for rule in listed if rule.ready_made != name]
    return [replace(rule, number=number) for number, rule in enumerate(listed, 1)]


def count_leading_deny_rules(rules: Sequence[DecisionRule]) -> int:
    """Return with how many rules that deny the list begins."""
    return next((place for place, rule in enumerate(rules) if rule.verdict != RuleVerdict.DENY), len(rules))


def find_position_for_allow_rule(rules: Sequence[DecisionRule]) -> int:
    """Return how many rules come before the position of one that allows.

    A rule that asks about every call of its tools may come after it: it would leave nothing to allow.
    """
    return max(
        (
            place
            for place, rule in enumerate(rules, 1)
            if rule.verdict == RuleVerdict.DENY
            or (rule.verdict == RuleVerdict.ASK and rule.is_limited_to_some_calls)
        ),
        default=0,
    )
