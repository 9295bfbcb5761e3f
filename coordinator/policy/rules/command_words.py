"""Lists of commands by what they do: follow their arguments, or only read, check or test. For policy.suggestions."""

from __future__ import annotations

import re

from coordinator.calls.programs import iterate_clustered_options


def split_text_into_word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options behind which a command names a program, a plugin or settings that it then runs.
RUNS_OPTION_NAMES = tuple(
    f"--{name}"
    for name in split_text_into_word_set("""
        pre compress-program open-files-in-pager ext-diff textconv upload-pack exec execdir ok okdir toolexec plugin
        plugins require import loader rulesdir config config-file config-path rcfile rootdir confcutdir override-ini
        basetemp init-hook load-plugins python-executable python interpreter shell script-shell command cmd run
        globalSetup globalTeardown setupFiles resolve-plugins-relative-to parser preset transform reporter reporters
        runner hostname-bin output to-file to-files shellcmd
    """)
)
RUNS_OPTION = re.compile(rf"--?({'|'.join(name[2:] for name in RUNS_OPTION_NAMES)})(=.*)?")
RUNS_SHORT_OPTION = {  # by program
    "git": re.compile(r"-[a-zA-Z]*O.*"),
    "pytest": re.compile(r"-[a-zA-Z]*[pco].*"),
    "sort": re.compile(r"-[a-zA-Z]*[oT].*"),
    "eslint": re.compile(r"-[cof].*"),
    "jest": re.compile(r"-c.*"),
    "mocha": re.compile(r"-[r].*"),
    "tsc": re.compile(r"-[p].*"),
}
TAKES_NO_OPERAND = split_text_into_word_set("uniq date")  # the second file behind `uniq` is overwritten
PRINTED_LINES = re.compile(r"(\d+|\$)(,(\d+|\$))?p")  # `sed -n 1,80p`


def prefix_subcommands_with_program(program: str, text: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in text.split())


# Commands that only read, whatever words follow.
READING = (
    split_text_into_word_set("""
        ls cat head tail wc grep egrep fgrep rg ag echo pwd sort cut uniq nl file stat du df diff cmp tree basename
        dirname realpath readlink which type date od true false test [ sleep tr column comm md5sum sha1sum
        sha256sum find sed : seq tac rev fold printf
    """)
    | prefix_subcommands_with_program(
        "git",
        "status log diff show blame grep ls-files ls-tree rev-parse describe shortlog merge-base rev-list"
        " check-ignore diff-tree for-each-ref count-objects",
    )
    | prefix_subcommands_with_program("git stash", "list show")
    | prefix_subcommands_with_program("git worktree", "list")
)
# Those of them that do nothing else with any option but the dangerous ones.
ANY_OPTION_HEADS = READING - split_text_into_word_set("sed date printf type which :")
# Commands that check, test or build the project, or add to it, whatever plain words follow.
CHECKING = (
    split_text_into_word_set("""
        pytest ruff mypy pyright black isort flake8 pylint eslint prettier tsc jest vitest mocha djangofmt mdformat
        shellcheck hadolint yamllint markdownlint rspec rubocop phpunit phpstan ctest unittest compileall json.tool
        mkdir touch
    """)
    | prefix_subcommands_with_program("git", "add commit")
    | prefix_subcommands_with_program("playwright", "test")
    | prefix_subcommands_with_program("cargo", "build check test clippy fmt bench doc tree nextest")
    | prefix_subcommands_with_program("go", "build test vet fmt list doc")
    | prefix_subcommands_with_program("npm", "test ls outdated view")
    | prefix_subcommands_with_program("pnpm", "test ls outdated")
    | prefix_subcommands_with_program("yarn", "test")
    | prefix_subcommands_with_program("bun", "test")
    | prefix_subcommands_with_program("deno", "test check lint fmt")
    | prefix_subcommands_with_program("dotnet", "build test")
    | prefix_subcommands_with_program("mvn", "test compile verify")
    | prefix_subcommands_with_program("gradle", "test check build")
    | prefix_subcommands_with_program("swift", "build test")
    | prefix_subcommands_with_program("python manage.py", "test check showmigrations")
    | prefix_subcommands_with_program("python3 manage.py", "test check showmigrations")
)
# Those of them that change the project instead of checking it.
CHANGING = split_text_into_word_set("mkdir touch") | prefix_subcommands_with_program("git", "add commit")
# Programs that start another one of the project, and change nothing but its environment.
STARTING = (
    prefix_subcommands_with_program("uv", "run")
    | prefix_subcommands_with_program("poetry", "run")
    | prefix_subcommands_with_program("pdm", "run")
    | prefix_subcommands_with_program("pipenv", "run")
    | prefix_subcommands_with_program("hatch", "run")
    | prefix_subcommands_with_program("rye", "run")
    | prefix_subcommands_with_program("pnpm", "exec")
    | prefix_subcommands_with_program("yarn", "exec")
    | prefix_subcommands_with_program("bundle", "exec")
)
STARTING_OPTIONS = split_text_into_word_set(
    "--frozen --locked --no-sync --offline -q --quiet --silent -s -C --dir --filter"
)
# Commands that are allowed with exactly their own words: those of programs that may do anything else but only look, and
# what the project itself has named.
EXACTLY = (
    prefix_subcommands_with_program("docker", "ps images version info")
    | prefix_subcommands_with_program("docker compose", "ps ls version")
    | prefix_subcommands_with_program("gh pr", "view list diff checks status")
    | prefix_subcommands_with_program("gh issue", "view list status")
    | prefix_subcommands_with_program("gh run", "view list")
    | prefix_subcommands_with_program("git", "branch fetch remote tag")
    | prefix_subcommands_with_program("terraform", "validate fmt version")
    | prefix_subcommands_with_program("helm", "lint version")
    | prefix_subcommands_with_program("go", "version env")
    | prefix_subcommands_with_program("cargo", "run")
    | prefix_subcommands_with_program("npm", "run")
    | prefix_subcommands_with_program("pnpm", "run")
    | prefix_subcommands_with_program("yarn", "run lint build typecheck")
    | prefix_subcommands_with_program("bun", "run")
    | prefix_subcommands_with_program("pre-commit", "run")
    | split_text_into_word_set("curl jq make just task tox nox rake")
)
SCRIPT_PROGRAMS = re.compile(r"(python|pypy)[0-9.]*|node|ruby|php")
HARMFUL_WORDS = re.compile(
    r"(?i)(^|[^a-z])(deploy|publish|release|prod|production|drop|delete|destroy|purge|wipe|reset|flush|rollback|upload"
    r"|push|uninstall|kill|nuke|truncate|migrate|downgrade|apply|force|sync|login|token|secrets?|passwords?"
    r"|credentials?|env|flushdb|shell|exec|eval)([^a-z]|$)"
)
# What no suggestion and no offer ever allows, as lines of rules.
NEVER_ALLOWED = (
    "rm|rimraf|trash -r|-R|--recursive|-f|--force",
    "shred|wipefs|mkfs*|dd|fdisk|parted|truncate",
    "sed|gsed|perl|yq|ruby -i*|--in-place*",
    "find|gfind -exec",
    "find|gfind -execdir",
    "find|gfind -ok",
    "find|gfind -okdir",
    "find|gfind -delete",
    "find|gfind -fprint*|-fls",
    "fd|fdfind -x|-X|--exec|--exec-batch",
    "xargs",
    "parallel",
    "sudo",
    "doas",
    "su",
    "pkexec",
    "run0",
    "eval",
    "git push --force|--force-with-lease|--force-if-includes|-f|--mirror|--delete|-d|--prune",
    "git push * +*",
    "git push * :*",
    "git reset --hard",
    "git clean",
    "git filter-branch|filter-repo|update-ref",
    "git config",
    "git -c",
    "git --exec-path",
    "mise|direnv trust|allow",
    "env -S|--split-string",
)
SECRET_PATHS = (".env.*", "secrets.*", "*.secret", ".secrets", "id_*", ".ssh", ".aws", ".gnupg", ".kube")
# Hosts that everybody reads, and where a request reveals nothing to somebody who waits for it.
DOCUMENTATION_HOSTS = split_text_into_word_set("""
    docs.python.org docs.djangoproject.com docs.pytest.org docs.astral.sh docs.sqlalchemy.org fastapi.tiangolo.com
    developer.mozilla.org nodejs.org www.typescriptlang.org react.dev nextjs.org vuejs.org vite.dev tailwindcss.com
    doc.rust-lang.org docs.rs go.dev pkg.go.dev docs.oracle.com learn.microsoft.com kubernetes.io docs.docker.com
    www.postgresql.org sqlite.org www.sqlite.org htmx.org modelcontextprotocol.io docs.anthropic.com code.claude.com
    docs.github.com docs.gitlab.com git-scm.com www.w3.org datatracker.ietf.org peps.python.org playwright.dev
""")
LOCAL_HOSTS = split_text_into_word_set("localhost 127.0.0.1 ::1 0.0.0.0")
# Variables by which a program is made to start another, or to read other code.
STARTS_PROGRAMS = re.compile(
    r"PATH|LD_.*|DYLD_.*|.*_?(EDITOR|PAGER|SHELL|BROWSER|ASKPASS|COMMAND|OPTIONS|OPTS|FLAGS|WRAPPER|PRELOAD|HOME|SSH)"
    r"|PYTHON(PATH|STARTUP|HOME|BREAKPOINT|INSPECT|USERBASE|EXECUTABLE)|NODE_(OPTIONS|PATH)|RUBY(OPT|LIB)|PERL5(OPT|LIB|DB)"
    r"|BASH_ENV|ENV|IFS|PS4|PROMPT_COMMAND|GIT_.*|RUSTC.*|CARGO_.*|GO(FLAGS|PATH|ROOT|TOOLCHAIN)|CC|CXX|MAKEFLAGS"
    r"|.*(TOKEN|SECRET|PASSWORD|KEY|PROXY|_URL)|.*REGISTRY|npm_config_.*|PIP_.*|UV_.*|JAVA_TOOL_OPTIONS|TMPDIR|HOME",
    re.IGNORECASE,
)
# Options of programs, in addition to RUNS_OPTION, with which nothing is suggested.
DANGEROUS_OPTIONS: dict[str, frozenset[str]] = {
    "git": split_text_into_word_set(
        "-c --config-env --git-dir --work-tree --exec-path --no-verify --amend -f --force --hard -D -d --delete"
        " --upload-pack --author --trailer --edit -e -O --no-index"
    ),
    "git commit": split_text_into_word_set("-n"),
    "go": split_text_into_word_set(
        "-o -exec -toolexec -vettool -overlay -modfile -ldflags -gcflags -asmflags"
    ),
    "cargo": split_text_into_word_set(
        "--config -Z --target-dir --out-dir --artifact-dir --fix --manifest-path"
    ),
    "find": split_text_into_word_set(
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from"
    ),
    "sort": split_text_into_word_set("-o -T --temporary-directory --files0-from --random-source"),
    "wc": split_text_into_word_set("--files0-from"),
    "du": split_text_into_word_set("--files0-from -X --exclude-from"),
    "ag": split_text_into_word_set("--pager --path-to-ignore -p"),
    "rg": split_text_into_word_set("--ignore-file -f --file --search-zip -z"),
    "file": split_text_into_word_set("-C --compile -m --magic-file -f --files-from"),
    "diff": split_text_into_word_set("--from-file --to-file -X --exclude-from"),
    "tree": split_text_into_word_set("-o --fromfile"),
    "date": split_text_into_word_set("-s --set"),
    "printf": split_text_into_word_set("-v"),
    "curl": split_text_into_word_set(
        "-o -O -T -d -F -X -K -u -x -b -c -E -H -L --data --data-raw --data-binary --form --request --upload-file"
        " --output --config --user --proxy --cookie --cookie-jar --cert --key --header --location --json --unix-socket"
        " --resolve --connect-to --next"
    ),
    "jq": split_text_into_word_set("-n -f -L -R --null-input --from-file --rawfile --slurpfile"),
    "prettier": split_text_into_word_set("--plugin --config"),
}
CLUSTERED_OPTIONS = split_text_into_word_set("git sort curl tree jq")  # `-am` is `-a -m`
# Options that RUNS_OPTION takes for ones that start a program, and that do not.
HARMLESS_OPTIONS: dict[str, frozenset[str]] = {
    "go": split_text_into_word_set("-run"),
    "vitest": split_text_into_word_set("--run"),
    "tsc": split_text_into_word_set("-p --project"),
    "playwright": split_text_into_word_set("--reporter=list --reporter=line --reporter=dot"),
    "jest": split_text_into_word_set("--reporters=default"),
}


def can_option_run_or_write(program: str, text: str) -> bool:
    """Say whether an option of a program names another program, settings or a file to write."""
    name = text.partition("=")[0]
    dangerous = DANGEROUS_OPTIONS.get(program, frozenset())
    spellings = {name}
    if program in CLUSTERED_OPTIONS and not name.startswith("--"):
        spellings |= {option for option, _ in iterate_clustered_options(text)}
    is_shortened = (
        name.startswith("--")
        and len(name) > len("--xy")
        and any(option.startswith(name) and option != name for option in (*dangerous, *RUNS_OPTION_NAMES))
    )
    if spellings & dangerous or is_shortened:
        return True
    if {text, name} & HARMLESS_OPTIONS.get(program, frozenset()):
        return False
    short = RUNS_SHORT_OPTION.get(program)
    return RUNS_OPTION.fullmatch(text) is not None or (
        short is not None and short.fullmatch(text) is not None
    )
