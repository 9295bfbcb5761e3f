"""Ready-made rules that let calls go on unasked: looking, editing, testing and committing in the agent's own project.

They are written for the description of a call, so they cover no call of which a part cannot be read, and none that
reaches outside of the working directory. Of each program they name the options that are covered: any other is asked
about, because it may start a program, read settings or write a file.
"""

from __future__ import annotations

from coordinator.calls.guarded_paths import CREDENTIAL_PATHS
from coordinator.models.rules import RuleVerdict
from coordinator.policy.rules.command_words import DOCUMENTATION_HOSTS, SECRET_PATHS
from coordinator.policy.rules.ready_made_rule import ReadyMadeRule, dedent_and_join_continuation_lines

ALLOW = RuleVerdict.ALLOW.value
# Files that nobody reads without approval, in addition to those that are guarded in every rule that allows.
SECRET_NAMES = (
    *SECRET_PATHS, ".env*", "*.env", "secret*", "*secret.*", "*secrets.*", "*credential*", "*password*", "*.tfvars*",
    "*.tfstate*", "*.ovpn", "*.asc", "*.gpg", "*.age", "*.ppk", "*.der", "*.crt.key", "*_rsa", "*_ed25519", ".git",
    ".netrc*", ".npmrc", ".yarnrc*", ".pypirc", ".bash_history", ".zsh_history", "*history*.txt", ".terraform",
)  # fmt: skip
# Files by which agents, their hooks and the checks of a project are steered; hidden ones are left out altogether.
STEERING_NAMES = (
    "CLAUDE*.md", "AGENTS*.md", "GEMINI*.md", "QWEN.md", "copilot-instructions.md", "CODEOWNERS", "Jenkinsfile*",
    "azure-pipelines*", "bitbucket-pipelines*", "appveyor*", "cloudbuild*", "buildspec*", "codefresh*", "wercker.yml",
    "lefthook*", "githooks", "git-hooks", "husky", "*.code-workspace", "opencode.json*", "signalbox*",
    "authorized_keys",
)  # fmt: skip


def build_exclusion_terms(*names: str) -> list[str]:
    return [f"!{name}" for name in dict.fromkeys(names)]


NO_SECRETS = build_exclusion_terms(*SECRET_NAMES, *(path for path in CREDENTIAL_PATHS if "/" not in path))
READS_INSIDE = "\n".join(["reads inside", *NO_SECRETS])
NAMES_INSIDE = "\n".join(["inside", *NO_SECRETS])
EDITS_INSIDE = "\n".join(["writes inside", *build_exclusion_terms(".*", *STEERING_NAMES), *NO_SECRETS])
WORKS_INSIDE = "\n".join(["inside", "writes *.log", *NO_SECRETS])
# Commands that print what they are given or read, as they appear in most pipes.
PRINTING = dedent_and_join_continuation_lines("""
    ls -a|-A|-l|-h|-1|-R|-t|-r|-S|-d|-F|-i|-s|-p|-G|-n|-o|-g|--all|--human-readable|
        --group-directories-first|--color
    cat -n|-b|-A|-e|-t|-v|-s
    head|tail -n*|-c*|-#|-q|-v|-f|--lines|--bytes
    wc -l|-w|-c|-m|-L
    nl -b*|-n*|-w*
    cut -d*|-f*|-c*|-s
    sort -n|-r|-u|-k*|-t*|-h|-f|-V|-b|-g|-s
    uniq -c|-d|-u|-i !*
    tr -d|-s|-c|-C
    grep|egrep|fgrep -n|-i|-l|-L|-c|-w|-x|-v|-E|-F|-P|-o|-h|-H|-r|-s|-q|-e|-I|-A*|-B*|-C*|-m*|-#|--include|
        --exclude|--exclude-dir
    rg -n|-i|-l|-c|-w|-v|-F|-o|-S|-s|-e|-H|-N|-A*|-B*|-C*|-m*|-t|--files|--type|--no-heading|--heading|
        --count|--sort
    echo -n|-e|-E
    printf
    pwd|true|false|:
    test|[ -e|-f|-d|-s|-n|-z|-r|-w|-x|-L|-eq|-ne|-gt|-lt|-ge|-le
    sed #,#p|#p -n
    sleep
    cd
""")
LOOKING = dedent_and_join_continuation_lines("""
    find -name|-iname|-path|-ipath|-type|-maxdepth|-mindepth|-size|-mtime|-mmin|-newer|-empty|-prune|-print|
        -print0|-not|-o|-a|-or|-and
    tree -L*|-a|-d|-f|-I*|-P*|-h|-C|-i|--noreport|--dirsfirst|--gitignore
    stat -c|-t|--format|--printf
    file -b|-i|--mime|--mime-type|--brief
    du -s|-h|-d*|-c|-a|-k|-m|--max-depth
    df -h|-k|-T|-i
    diff|cmp|comm -u|-q|-w|-b|-B|-y|-i|-s|-c|-1|-2|-3|-U*|--brief|--unified|--side-by-side
    tac|rev|fold|od|md5sum|sha1sum|sha256sum|shasum -w|-c#|-a|-t*|-A*
    basename|dirname|realpath|readlink -f|-e|-m|-a|-s
    which|type -a|-t
    date !* -u|-I*
    date +* !* -u
    seq
    uname|whoami|nproc|arch -a|-s|-r|-m|-n|-p
    cargo|rustc|uv !* --version|-V
    npm|pnpm !* --version|-v
    go version !*
""")
GIT_READING = dedent_and_join_continuation_lines("""
    git status -s|-b|-v|-u*|--short|--branch|--porcelain|--ignored|--untracked-files|--no-pager|
        --no-optional-locks
    git log|show|shortlog|rev-list --no-pager|--oneline|--graph|--all|--decorate|--stat|--shortstat|
        --numstat|--name-only|--name-status|--pretty|--format|--author|--since|--until|--grep|--no-merges|
        --first-parent|--follow|--reverse|--date|--abbrev-commit|--count|-p|-n*|-#|-S*|-G*|-i|-s|-w|-M
    git diff|diff-tree --no-pager|--cached|--staged|--stat|--shortstat|--numstat|--name-only|--name-status|
        --no-color|--word-diff|--check|--summary|--diff-filter|--raw|--minimal|-p|-r|-w|-b|-M|-U*|
        --ignore-all-space
    git blame --no-pager|-L*|-w|-M|-e|-s|-l|--date
    git grep --no-pager|-n|-i|-l|-c|-w|-E|-P|-h|-v
    git ls-files|ls-tree|check-ignore --no-pager|-m|-d|-o|-r|-s|-v|-t|-z|--others|--modified|--deleted|
        --exclude-standard|--name-only|--full-tree
    git rev-parse|describe|merge-base|for-each-ref|count-objects|show-ref --no-pager|--short|--abbrev-ref|
        --show-toplevel|--is-inside-work-tree|--verify|--tags|--always|--dirty|--all|--heads|--sort|
        --format|--count|--is-ancestor|-v|-q
    git branch !* --no-pager|-a|-r|-v|-vv|-l|--all|--list|--remotes|--show-current
    git remote|tag|reflog !* --no-pager|-v|-l|--list|-n*|-#
    git stash list|show !* --no-pager|-p|--stat
    git worktree list !*
    git submodule status !*
    git !* --version
""")
TESTING = dedent_and_join_continuation_lines("""
    pytest|py.test -q|-v|-vv|-x|-s|-l|-k|-m|-n*|-r*|--lf|--ff|--nf|--sw|--last-failed|--failed-first|
        --exitfirst|--maxfail|--tb|--co|--collect-only|--durations|--no-header|--quiet|--verbose|--color|
        --cov|--cov-report=term*|--no-cov|--timeout|--reuse-db|--create-db
    unittest -v|-q|-f|-b|-k|-s|-p|-t|--verbose|--quiet|--failfast
    python|python3 manage.py test|check|showmigrations -v|--verbosity|--keepdb|--parallel|--failfast|-k|--tag
    ruff check|format --fix|--diff|--check|--select|--ignore|--quiet|-q|--statistics|--no-cache|
        --show-fixes|--preview|--exit-zero
    mypy --strict|--pretty|--ignore-missing-imports|--no-error-summary|--show-error-codes|--no-incremental
    black|isort|djangofmt --check|--check-only|--diff|-q|--quiet|-l|--line-length
    flake8|pylint|pyright --max-line-length|--select|--ignore|--count|--statistics|--show-source|--disable|
        --enable|-E|--errors-only
    tsc --noEmit|--pretty|--skipLibCheck|--incremental|-p|--project|-b|--build
    eslint --fix|--ext|--max-warnings|--quiet|--cache
    prettier --check|-c|--write|-w|-l|--list-different|--ignore-unknown
    jest -t|-i|--ci|--coverage|--runInBand|--silent|--verbose|--watchAll=false|--passWithNoTests|
        --testNamePattern|--bail|--onlyChanged
    vitest -t|--run|--coverage|--bail|--changed|--reporter=default|--reporter=verbose|--reporter=dot
    mocha -g|--grep|-b|--bail|--exit|-t|--timeout
    playwright test --project|-g|--grep|-j|--workers|--retries|--headed|--list|-x|--last-failed|
        --reporter=list|--reporter=line|--reporter=dot
    cargo build|test|check|clippy|fmt|bench|doc|tree --release|--all|--workspace|--all-targets|
        --all-features|--features|--no-default-features|-p|--package|--lib|--bin|--bins|--test|--tests|
        --example|--doc|-q|-v|--quiet|--verbose|--locked|--offline|--no-run|--no-fail-fast|--check|
        --nocapture|-D|-W
    go test|build|vet|fmt|list|doc -v|-run|-count|-race|-short|-cover|-timeout|-bench|-benchmem|-failfast|
        -json|-tags
    npm|pnpm|yarn|bun test|t -s|--silent|--watch=false|--watchAll=false|--coverage|--ci|--run|--runInBand|
        -t|--testNamePattern|--verbose|--bail
    npm|pnpm|yarn|bun run test|lint|build|typecheck|type-check|check|format|fmt|types|unit|test:unit|
        test:integration|test:e2e|lint:fix|format:check !* -s|--silent|--if-present
    yarn|pnpm lint|build|typecheck|check|format !* -s|--silent
    make|gmake|just|task|rake test|tests|check|lint|build|all|format|fmt|typecheck|unit !* -j*|-s|-k|-C
    tox|nox !* -q
    mvn|./mvnw test|compile|verify !* -q|-B|--batch-mode|--offline
    gradle|./gradlew test|check|build !* -q|--quiet|--offline
    dotnet build|test !* --no-restore|--no-build|--nologo
    swift build|test !*
    mix test|compile !*
    rspec|rubocop|phpunit|phpstan|ctest|shellcheck|hadolint|yamllint|markdownlint|mdformat -q|-v|--verbose|
        --quiet|--check
    uv|poetry|pdm|pipenv|hatch|rye run --frozen|--locked|--no-sync|--offline|-q|--quiet
    pnpm|yarn|bundle exec -s|--silent
""")
COMMITTING = dedent_and_join_continuation_lines("""
    git add -A|-u|-v|--all|--update|--no-pager
    git commit -m|-q|-a|-v|--message|--quiet|--all|--signoff|-s
    git fetch !* -q|--quiet|--tags|--no-pager
    git fetch origin|upstream !* -q|--quiet|--tags|--no-pager
""")
ASKING_SERVICES = dedent_and_join_continuation_lines("""
    gh pr view|list|diff|checks|status -L*|--limit|--state|--author|--label|--json|--name-only|
        --comments
    gh issue view|list|status -L*|--limit|--state|--author|--label|--json|--comments
    gh run view|list -L*|--limit|--branch|--status|--workflow|--json|--log|--log-failed|
        --exit-status|--job|-b
    docker ps|images|version|info !* -a|--all|-q|--quiet|--no-trunc|--format
    docker compose ps|ls|version !* -a|--all|-q|--quiet|--format
""")
PLANNING_TOOLS = "TodoWrite|TodoRead|todowrite|todoread|todo_write|update_plan|write_todos|ToolSearch"

ALLOWING_RULES: tuple[ReadyMadeRule, ...] = (
    ReadyMadeRule(
        "reads-files",
        "read and search files of its project",
        "Reads files of its project",
        tool="kind:read|kind:search",
        verdict=ALLOW,
        touches=READS_INSIDE,
        caution="A search of a folder below the project reads every file in it. A search of the whole project without a"
        " file type is asked about.",
    ),
    ReadyMadeRule(
        "looks-around",
        "look around in its project: ls, cat, grep, find, git status, git diff, git log",
        "Looks around in its project",
        tool="kind:command",
        verdict=ALLOW,
        runs="\n".join([PRINTING, LOOKING, GIT_READING]),
        touches=READS_INSIDE,
        caution="What git has recorded is printed, also of files that are gone. A search of a folder below the project"
        " reads every file in it.",
    ),
    ReadyMadeRule(
        "edits-files",
        "edit files of its project, but no hidden file, no settings of agents, hooks or checks (CI), no credentials",
        "Edits files of its project",
        tool="kind:write",
        verdict=ALLOW,
        touches=EDITS_INSIDE,
        caution="Tests, scripts and build files are files of the project: whoever runs them next runs what the agent"
        " wrote.",
    ),
    ReadyMadeRule(
        "runs-checks",
        "run the project's tests, linters and builds: pytest, ruff, npm test, cargo test, make build",
        "Runs tests, linters and builds",
        tool="kind:command",
        verdict=ALLOW,
        runs="\n".join([PRINTING, "git diff|status --stat|--short|-s", TESTING]),
        touches=WORKS_INSIDE,
        caution="Tests and builds run code of the project, and nobody reads what that does. An agent that also edits"
        " files writes this code itself, so only a sandbox limits it.",
    ),
    ReadyMadeRule(
        "commits",
        "commit in its project, and fetch from its remote: git add, git commit -m, git fetch origin",
        "Commits in its project",
        tool="kind:command",
        verdict=ALLOW,
        runs="\n".join([PRINTING, GIT_READING, COMMITTING]),
        touches=READS_INSIDE,
        caution="Hooks of the repository run with each commit. Nothing is pushed.",
    ),
    ReadyMadeRule(
        "asks-services",
        "look at pull requests, issues, runs of checks and containers: gh pr view, gh run list, docker ps",
        "Looks at pull requests and containers",
        tool="kind:command",
        verdict=ALLOW,
        runs="\n".join([PRINTING, ASKING_SERVICES]),
        touches=NAMES_INSIDE,
        caution="gh uses the account of whoever is signed in on the agent's machine.",
    ),
    ReadyMadeRule(
        "reads-documentation",
        "read public documentation: docs.python.org, developer.mozilla.org, docs.rs and others that the rule lists",
        "Reads public documentation",
        tool="kind:fetch",
        verdict=ALLOW,
        reaches="\n".join(sorted(DOCUMENTATION_HOSTS)),
        caution="The address that is fetched can carry words of the agent to these sites.",
    ),
    ReadyMadeRule(
        "keeps-tasks",
        "keep its own list of tasks",
        "Keeps its list of tasks",
        tool=PLANNING_TOOLS,
        verdict=ALLOW,
        caution="These tools change nothing outside of the agent.",
    ),
)
