"""Which commands do what their arguments say, and which only read, check or test: for policy.shapes."""

from __future__ import annotations

import re


def split_command_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Commands that delete, send, install, or run what they are given, and every keyword and builtin of shells that may
# stand before another command. Below them, subcommands that do.
EXACT_ONLY = split_command_words("""
    rm rmdir shred dd mkfs mv cp ln install tee truncate sudo su doas sh bash zsh dash fish eval exec source . env
    xargs parallel nohup setsid time timeout watch ssh scp sftp rsync nc ncat socat telnet curl wget http ftp kill
    pkill killall chmod chown chgrp mount umount systemctl service crontab at apt apt-get dnf yum brew snap pip pip3
    gem awk gawk mawk perl ruby php lua node deno bun sed find fd export set unset alias trap printf read psql mysql
    nice ionice chrt taskset command builtin stdbuf busybox flock strace ltrace gdb unshare chroot
    xvfb-run systemd-run systemd-inhibit setpriv runuser caffeinate unbuffer script scriptreplay expect entr watchexec
    inotifywait daemonize start-stop-daemon chpst s6-setuidgid gosu su-exec tini dumb-init pkexec run0 sg newgrp
    capsh prlimit numactl cgexec nsenter firejail bwrap proot fakeroot fakechroot eatmydata torsocks torify
    proxychains proxychains4 tsocks dbus-run-session dbus-launch ssh-agent sshpass autossh mosh screen tmux byobu
    batch sem rush gnu-parallel hyperfine perf valgrind heaptrack rr ltrace catchsegv coverage direnv dotenv
    doppler op chamber aws-vault envdir foreman honcho nodemon watchman concurrently cross-env dotenvx with-env
    tsx ts-node deno-run bunx rlwrap ptyprocess faketime libtool cpulimit choom ld.so linux32 linux64 setarch
    i386 x86_64 uname26 arch wine wine64 mono dotnet java scala groovy rscript julia racket guile tclsh wish osascript
    swift runghc ghci stack cabal elixir mix erl iex pwsh-preview wsl runas start forfiles cscript wscript mshta
    rundll32 regsvr32 psexec schtasks launchctl sandbox-exec trickle pv setcap crash ccache distcc sccache
    bash5 rbash ksh mksh csh tcsh nu xonsh elvish ash pdsh clush dsh ansible-playbook salt make-kpkg sponge
    logrotate run-parts lxc lxc-attach nix nix-shell guix flatpak snap-run vagrant hatch pdm pixi rye mise asdf
    pipenv pyenv rbenv nvm volta conda mamba micromamba
    if then else elif fi do done for while until case esac select in function coproc ! { } [[ ]] ( ) repeat foreach
    end begin and or not switch break continue return exit declare local typeset readonly let shift getopts wait
    jobs fg bg disown enable hash bind complete compgen shopt ulimit umask pushd popd mapfile readarray
    sqlite3 mongo redis-cli aws gcloud az terraform ansible helm vault gpg openssl passwd useradd osascript open
    xdg-open powershell pwsh cmd tar zip unzip docker podman kubectl gh npx uvx pipx
""")
_OF_PACKAGES = split_command_words("publish install i ci add remove uninstall exec dlx x config login link")
EXACT_ONLY_WORDS = {
    "git": split_command_words("""
        push reset clean rebase filter-branch config remote submodule update-ref gc prune reflog worktree checkout
        switch restore branch tag stash clone fetch pull merge cherry-pick revert am apply rm mv init
    """),
    "npm": _OF_PACKAGES,
    "yarn": _OF_PACKAGES,
    "pnpm": _OF_PACKAGES,
    "cargo": split_command_words("install publish login yank run"),
    "go": split_command_words("install get generate run"),
    "uv": split_command_words("pip add remove publish tool sync"),
    "poetry": split_command_words("add remove publish config"),
}
# Whose second word says what they do; the word behind "run" belongs to that, too (npm run build, uv run pytest).
SUBCOMMANDS = split_command_words("git npm yarn pnpm cargo go uv poetry make just tox nox")
RUN_SOMETHING = split_command_words("npm yarn pnpm uv poetry")
RUNS_NAMED = split_command_words("run run-script")
INTERPRETERS = re.compile(r"python[0-9.]*")
NO_MODULES = split_command_words(
    "pip timeit http.server runpy venv"
)  # of Python, that do what they are given
# Options behind which a command names a program, a plugin or settings that it then runs.
RUNS_OPTION = re.compile(
    r"--?(pre|compress-program|open-files-in-pager|ext-diff|textconv|upload-pack|exec|execdir|ok|okdir|toolexec"
    r"|plugins?|require|import|loader|rulesdir|config(-file|-path)?|rcfile|rootdir|confcutdir|override-ini|basetemp"
    r"|init-hook|load-plugins|python-executable|python|interpreter|shell|script-shell|command|cmd|run|globalSetup"
    r"|globalTeardown|setupFiles|resolve-plugins-relative-to|parser|preset|transform|reporters?|runner|hostname-bin"
    r"|output|to-files?|shellcmd)(=.*)?"
)
RUNS_SHORT_OPTION = {  # by program
    "git": re.compile(r"-[a-zA-Z]*O.*"),
    "pytest": re.compile(r"-[a-zA-Z]*[pco].*"),
    "sort": re.compile(r"-[a-zA-Z]*[oT].*"),
    "eslint": re.compile(r"-[cof].*"),
    "jest": re.compile(r"-c.*"),
    "mocha": re.compile(r"-[r].*"),
    "tsc": re.compile(r"-[p].*"),
}
TAKES_OPTIONS_ONLY = split_command_words("uniq")  # the second file behind it is overwritten
READS_QUOTED = split_command_words("grep egrep fgrep rg ag echo") | {"git log", "git grep", "git commit"}


def prefix_subcommands(program: str, words: str) -> frozenset[str]:
    return frozenset(f"{program} {word}" for word in words.split())


# Commands that read, check or test, whatever plain words follow.
VARIES = (
    split_command_words("""
        ls cat head tail wc grep egrep fgrep rg ag echo cd pwd sort cut file stat du df diff cmp tree basename
        dirname realpath readlink which type mkdir touch date nl od strings pytest ruff mypy black isort flake8 pylint
        eslint prettier tsc jest vitest mocha djangofmt mdformat shellcheck
    """)
    | prefix_subcommands(
        "git",
        "status log diff show add commit blame grep ls-files ls-tree rev-parse describe shortlog cat-file",
    )
    | prefix_subcommands("cargo", "build check test clippy fmt bench doc tree")
    | prefix_subcommands("go", "build test vet fmt list doc")
    | prefix_subcommands("npm", "test ls outdated view")
    | prefix_subcommands("python -m", "pytest unittest mypy ruff black isort json.tool compileall")
    | prefix_subcommands("uv run", "pytest ruff mypy black")
    | prefix_subcommands("poetry run", "pytest ruff mypy black")
)
