"""Known programs and their arguments: which are options with a value, paths, addresses or plain text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

READ, WRITE, DELETE, LIST, TOUCH = "reads", "writes", "deletes", "lists", "touches"


def split_option_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options that take the next word, for programs with sub-commands: the word is neither the sub-command nor an operand.
VALUE_OPTIONS: dict[str, frozenset[str]] = {
    "git": split_option_names(
        "-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source -m"
        " --message -F --file"
        " --author --date -S -G --format --pretty --since --until --grep --depth -b -B --branch"
        " --reference -o --origin"
        " -u --upload-pack --receive-pack --exec -n --max-count -s --strategy -X --onto --cleanup"
    ),
    "gh": split_option_names(
        "-R --repo -t --title -b --body -F --body-file -f --field --raw-field -H --header -q --jq"
        " -X --method -B --base -l"
        " --label -a --assignee --json -L --limit -m --milestone -n --notes --target --hostname -S"
        " --search -s --state"
    ),
    "docker": split_option_names(
        "-c --context -H --host -l --log-level --config -f --file -p --project-name --profile"
    ),
    "podman": split_option_names("-c --connection --url --log-level --root"),
    "kubectl": split_option_names(
        "-n --namespace --context --kubeconfig -s --server --user --cluster --token --as"
        " --request-timeout -f --filename"
        " -o --output -l --selector -c --container"
    ),
    "helm": split_option_names("-n --namespace --kube-context --kubeconfig -f --values --set"),
    "npm": split_option_names("--prefix -w --workspace --registry --tag --otp --loglevel -C"),
    "pnpm": split_option_names("-C --dir --filter -F --registry --tag"),
    "yarn": split_option_names("--cwd --registry --tag"),
    "bun": split_option_names("--cwd --registry"),
    "cargo": split_option_names(
        "--manifest-path --config -Z -C --color --target -p --package --features --registry -j"
    ),
    "go": split_option_names("-C -o -run -tags -p -ldflags -timeout -count"),
    "make": split_option_names("-C --directory -f --file --makefile -I -j -l -o -W"),
    "pip": split_option_names(
        "--proxy --timeout --cache-dir --log --python --index-url -i --extra-index-url -r"
        " --requirement -t --target -c"
    ),
    "uv": split_option_names(
        "--project --directory --cache-dir --config-file --python -p --index-url --with --extra --group"
    ),
    "poetry": split_option_names("-C --directory -P --project --repository -r"),
    "terraform": split_option_names("-chdir"),
    "aws": split_option_names("--profile --region --endpoint-url --output --query --ca-bundle"),
    "gcloud": split_option_names("--project --account --configuration --format --zone --region"),
    "systemctl": split_option_names("-H --host -M --machine -t --type"),
    "apt": split_option_names("-o -c -t --target-release"),
    "apt-get": split_option_names("-o -c -t --target-release"),
    "twine": split_option_names("-r --repository --repository-url -u -p"),
    "python": split_option_names("-m -W -X -c"),
    "node": split_option_names("-e --eval -p --print -r --require"),
    "ruby": split_option_names("-e -r -I"),
    "perl": split_option_names("-e -E"),
    "curl": split_option_names(
        "-X --request -H --header -d --data --data-raw --data-ascii --data-binary --data-urlencode --json -u --user -A"
        " --user-agent -e --referer -b --cookie -c --cookie-jar -m --max-time --connect-timeout --retry --retry-delay"
        " --retry-max-time -w --write-out -F --form --form-string --resolve --connect-to -x --proxy --preproxy --socks4"
        " --socks4a --socks5 --socks5-hostname --url --url-query -o --output --output-dir -T --upload-file -K --config"
        " -E --cert --cert-type --key --key-type --pass --cacert --capath --crlfile --ciphers --tls13-ciphers --tls-max"
        " --pinnedpubkey -r --range -C --continue-at -z --time-cond -D --dump-header --interface --dns-servers"
        " --doh-url --limit-rate --rate --max-redirs --max-filesize --keepalive-time --local-port --noproxy --proto"
        " --proto-default --proto-redir --proxy-user --proxy-header --trace --trace-ascii --trace-config --stderr"
        " --unix-socket --abstract-unix-socket --etag-save --etag-compare --expect100-timeout --netrc-file"
        " --oauth2-bearer --aws-sigv4 --alt-svc --hsts --request-target -y --speed-time -Y --speed-limit -Q --quote"
        " -P --ftp-port --parallel-max --variable --libcurl --engine --random-file --egd-file --delegation"
        " --service-name --krb"
    ),
    "wget": split_option_names(
        "-t --tries -T --timeout --header --post-data --post-file --body-data --body-file --method -U --user-agent"
        " --user --password -O --output-document -P --directory-prefix -o --output-file -a --append-output -i"
        " --input-file -B --base --config -e --execute -l --level -A --accept -R --reject -D --domains"
        " --exclude-domains -I --include-directories -X --exclude-directories -w --wait --waitretry --limit-rate -Q"
        " --quota --bind-address --load-cookies --save-cookies --certificate --private-key --ca-certificate"
        " --ca-directory --referer"
        " --http-user --http-password --proxy-user --proxy-password --start-pos --max-redirect --dns-timeout"
        " --connect-timeout --read-timeout"
    ),
    "grep": split_option_names("-e -A -B -C -m --max-count --include --exclude --exclude-dir -d"),
    "rg": split_option_names("-e -A -B -C -m --max-count -g --glob -t --type -T -r --replace -M --sort -j"),
    "sed": split_option_names("-e -l"),
    "head": split_option_names("-n -c --lines --bytes"),
    "tail": split_option_names("-n -c --lines --bytes --pid -s"),
    "find": split_option_names(
        "-name -iname -type -maxdepth -mindepth -mtime -size -path -ipath -perm -user -group"
    ),
    "chmod": frozenset(),
    "ls": split_option_names("-I --ignore -w -T"),
    "cut": split_option_names("-d -f -c -b"),
    "sort": split_option_names("-k -t -S --parallel"),
    "tar": split_option_names("--exclude -b -C --directory -f --file"),
    "jq": split_option_names("--arg --argjson --indent"),
    "du": split_option_names("-d --max-depth --exclude"),
    "tree": split_option_names("-L -I -P"),
    "diff": split_option_names("-U -C -x --label"),
    "xxd": split_option_names("-l -s -c"),
    "stat": split_option_names("-c -f --format"),
    "touch": split_option_names("-d -t --date"),
    "mkdir": split_option_names("-m --mode"),
    "install": split_option_names("-m -o -g --mode --owner --group"),
    "truncate": split_option_names("-s --size"),
    "rsync": split_option_names("-e --rsh --exclude --include"),
    "scp": split_option_names("-P -o -l -c"),
    "ssh": split_option_names("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -P -Q -R -S -W -w"),
    "ping": split_option_names("-c -i -W -w -s -I -t -m -Q"),
    "openssl": split_option_names("-connect -proxy -in -out -key -cert -CAfile -servername"),
    "nc": split_option_names("-w -p -s -x -X -q -i -I -O -P -T -V"),
}
VALUE_OPTIONS |= {
    "pip3": VALUE_OPTIONS["pip"],
    "python3": VALUE_OPTIONS["python"],
    "gmake": VALUE_OPTIONS["make"],
}
VALUE_OPTIONS |= dict.fromkeys(("ncat", "netcat"), VALUE_OPTIONS["nc"])
VALUE_OPTIONS |= dict.fromkeys(("egrep", "fgrep", "zgrep"), VALUE_OPTIONS["grep"]) | {
    "ag": VALUE_OPTIONS["rg"]
}
# Options that take no value, where the word behind them would else be taken for one.
FLAG_OPTIONS: dict[str, frozenset[str]] = {
    "sed": split_option_names("-n -E -r -s -u"),
    "git": split_option_names("--no-pager -p --paginate --no-optional-locks"),
    "ssh": split_option_names(
        "-4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -tt -V -v -vv -vvv -X -x -Y -y"
    ),
    "ping": split_option_names("-4 -6 -n -q"),
    "nc": split_option_names("-4 -6 -z -v -vz -zv -n -u -l -k"),
}
# Options whose value is the working directory of what the program does.
FOLDER_OPTIONS: dict[str, frozenset[str]] = {
    "git": split_option_names("-C --work-tree"),
    "make": split_option_names("-C --directory"),
    "gmake": split_option_names("-C --directory"),
    "npm": split_option_names("--prefix -C"),
    "pnpm": split_option_names("-C --dir"),
    "yarn": split_option_names("--cwd"),
    "cargo": split_option_names("-C"),
    "go": split_option_names("-C"),
    "uv": split_option_names("--directory --project"),
    "poetry": split_option_names("-C --directory -P --project"),
    "tar": split_option_names("-C --directory"),
    "terraform": split_option_names("-chdir"),
}
# Whose first operand says what they do.
SUB_COMMAND_PROGRAMS = frozenset(VALUE_OPTIONS) - split_option_names(
    "curl wget grep egrep fgrep zgrep rg ag sed head tail find chmod ls cut sort tar jq du tree"
    " diff xxd stat touch mkdir"
    " ping nc ncat netcat"
    " install truncate rsync scp ssh python python3 node ruby perl make gmake"
) | {
    "brew",
    "gem",
    "composer",
    "mvn",
    "gradle",
    "heroku",
    "vercel",
    "netlify",
    "fly",
    "flyctl",
    "wrangler",
}


@dataclass(frozen=True, slots=True)
class FileProgram:
    """What a program does with its operands, which are paths.

    use: with each operand. last: with the last of several, where that differs. skips: how many operands before are no
    paths (a pattern, a mode). skip_unless: options in whose presence none is skipped. switches: options that change
    the use of each operand. values: what it does with the path behind an option.
    """

    use: str
    last: str = ""
    skips: int = 0
    skip_unless: frozenset[str] = frozenset()
    switches: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    is_default_here: bool = False  # without an operand it means the working directory


_PATTERN_GIVEN = split_option_names("-e --regexp -f --file --files")


def map_names_to_file_program(names: str, program: FileProgram) -> dict[str, FileProgram]:
    return dict.fromkeys(names.split(), program)


FILE_PROGRAMS: dict[str, FileProgram] = {
    **map_names_to_file_program(
        "cat head tail less more bat wc cut uniq nl od xxd hexdump strings tac rev fold fmt cmp"
        " diff file md5sum sha1sum"
        " sha256sum sha512sum shasum cksum column comm join paste tail zcat zless bzcat xzcat"
        " base64 source . open xdg-open"
        " view csvlook",
        FileProgram(READ),
    ),
    **map_names_to_file_program(
        "ls tree du stat realpath readlink dir exa eza lsd", FileProgram(LIST, is_default_here=True)
    ),
    **map_names_to_file_program("test [ df", FileProgram(LIST)),
    **map_names_to_file_program(
        "grep egrep fgrep zgrep rg ag ack",
        FileProgram(READ, skips=1, skip_unless=_PATTERN_GIVEN, values={"-f": READ}),
    ),
    "sed": FileProgram(
        READ,
        skips=1,
        skip_unless=split_option_names("-e -f --expression --file"),
        switches={"-i": WRITE, "--in-place": WRITE},
        values={"-f": READ},
    ),
    **map_names_to_file_program(
        "awk gawk mawk", FileProgram(READ, skips=1, skip_unless=split_option_names("-f"), values={"-f": READ})
    ),
    "jq": FileProgram(READ, skips=1, skip_unless=split_option_names("-f --from-file"), values={"-f": READ}),
    "yq": FileProgram(READ, skips=1, switches={"-i": WRITE}),
    "perl": FileProgram(READ, switches={"-i": WRITE}),
    "sort": FileProgram(READ, values={"-o": WRITE, "--output": WRITE, "-T": WRITE}),
    **map_names_to_file_program("tee touch mkdir truncate mkfifo sponge", FileProgram(WRITE)),
    **map_names_to_file_program(
        "chmod chown chgrp", FileProgram(WRITE, skips=1, values={"--reference": READ})
    ),
    **map_names_to_file_program("nano vim vi emacs ed code", FileProgram(WRITE)),
    "cp": FileProgram(READ, last=WRITE, values={"-t": WRITE, "--target-directory": WRITE}),
    "install": FileProgram(READ, last=WRITE, values={"-t": WRITE}),
    "ln": FileProgram(READ, last=WRITE, values={"-t": WRITE}),
    "rsync": FileProgram(READ, last=WRITE),
    "scp": FileProgram(READ, last=WRITE, values={"-i": READ}),
    "mv": FileProgram(DELETE, last=WRITE, values={"-t": WRITE}),
    **map_names_to_file_program("rm rmdir unlink shred srm trash trash-put rimraf", FileProgram(DELETE)),
    **map_names_to_file_program("gzip gunzip bzip2 xz zstd", FileProgram(WRITE)),
    "zip": FileProgram(READ, values={}),
    "unzip": FileProgram(READ, values={"-d": WRITE}),
    "tar": FileProgram(TOUCH, values={"-f": TOUCH, "--file": TOUCH}),
    "patch": FileProgram(WRITE, values={"-i": READ, "-o": WRITE}),
    **map_names_to_file_program("mkfs wipefs fdisk parted", FileProgram(WRITE)),
    "cd": FileProgram(LIST),
    "pushd": FileProgram(LIST),
    "curl": FileProgram(
        "",
        values={
            "-o": WRITE,
            "--output": WRITE,
            "-T": READ,
            "--upload-file": READ,
            "-K": READ,
            "--config": READ,
            "-c": WRITE,
            "--cookie-jar": WRITE,
            "--cert": READ,
            "--key": READ,
            "-E": READ,
            "--output-dir": WRITE,
        },
    ),
    "wget": FileProgram(
        "",
        values={
            "-O": WRITE,
            "--output-document": WRITE,
            "-P": WRITE,
            "-o": WRITE,
            "-i": READ,
            "--post-file": READ,
        },
    ),
    "ssh": FileProgram("", values={"-i": READ, "-F": READ}),
    # Whose operands are no paths
    **map_names_to_file_program(
        "echo printf true false : exit return read export unset declare local typeset readonly"
        " sleep kill pkill killall tr"
        " seq date whoami id uname hostname ps pgrep env which type command alias set shift wait"
        " jobs trap expr basename"
        " dirname yes ping dig nslookup host nc ncat telnet eval exec brew apt apt-get dnf yum apk"
        " pacman gem pip pip3"
        " systemctl service journalctl make gmake just tox nox",
        FileProgram(""),
    ),
}
GREP_PROGRAMS = split_option_names("grep egrep fgrep")  # others leave hidden files out
# Sub-commands that change nothing in the folder of `git -C`.
GIT_READING = split_option_names(
    "status log diff show blame grep ls-files ls-tree rev-parse describe shortlog merge-base rev-list cat-file"
    " check-ignore count-objects for-each-ref diff-tree name-rev show-ref whatchanged"
)
# Options that take a value in some sub-commands, and none in those that read.
GIT_FLAGS = split_option_names("-m -b -B -s -u -o -X --pretty")
# Options that may be used without a value: a word after them that looks like an option is one.
OPTIONAL_VALUES: dict[str, frozenset[str]] = {
    "git": (GIT_FLAGS - {"-m"}) | {"--format"},
    "make": split_option_names("-j -l"),
    "gmake": split_option_names("-j -l"),
}
GIT_FILE_USES: dict[str, str] = {
    "status": LIST,
    "commit": READ,
    "diff-tree": READ,
    "add": READ,
    "rm": DELETE,
    "mv": WRITE,
    "restore": WRITE,
    "checkout": TOUCH,
    "diff": READ,
    "show": READ,
    "blame": READ,
    "log": READ,
    "cat-file": READ,
    "grep": READ,
    "clean": DELETE,
    "apply": READ,
    "init": WRITE,
    "ls-files": LIST,
    "clone": WRITE,
    "archive": READ,
    "worktree": WRITE,
    "check-ignore": LIST,
    "hash-object": READ,
}
# Programs that reach a host named by an operand without `://`.
HOST_PROGRAMS = split_option_names(
    "curl wget http https xh httpie ping dig nslookup host nc ncat netcat telnet ssh ftp sftp lftp whois traceroute"
    " lynx w3m links elinks"
)
# Of which every option with a value is known, so that each word that is no value is an address.
URL_PROGRAMS = split_option_names("curl wget")
IMAGE_PROGRAMS = split_option_names("docker podman nerdctl skopeo crane")  # `registry.example/image`
HTTP_PROGRAMS = split_option_names("http https xh httpie")
HTTP_METHODS = split_option_names("get head post put patch delete options")  # the first operand of `http`
# Options whose value names hosts, separated by blanks, commas or colons.
HOST_OPTIONS: dict[str, frozenset[str]] = {
    "curl": split_option_names(
        "--url --connect-to --resolve -x --proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname --doh-url"
        " --dns-servers"
    ),
    "wget": split_option_names("-B --base"),
    "ssh": split_option_names("-J"),
    "openssl": split_option_names("-connect -proxy"),
    "nc": split_option_names("-x"),
    "ncat": split_option_names("--proxy"),
}
# Options whose value is a file that holds addresses.
ADDRESS_FILE_OPTIONS: dict[str, frozenset[str]] = {
    "curl": split_option_names("-K --config"),
    "wget": split_option_names("-i --input-file --config -e --execute"),
    "aria2c": split_option_names("-i --input-file"),
}
PROXY_VARIABLES = split_option_names("http_proxy https_proxy all_proxy ftp_proxy")  # in small letters
REMOTE_PATH_PROGRAMS = split_option_names("scp rsync sftp")  # `host:path`
# Options whose value is text for people, by program: neither path nor address.
TEXT_OPTIONS: dict[str, frozenset[str]] = {
    "git": split_option_names("-m --message --author --date --grep -S -G --format --pretty --since --until"),
    "gh": split_option_names(
        "-t --title -b --body -f --field --raw-field -n --notes -q --jq -H --header -S --search --json"
    ),
    "curl": split_option_names(
        "-H --header -d --data --data-raw --data-urlencode -A --user-agent -e --referer -w -u --user"
    ),
    "wget": split_option_names("--header --post-data -U --user-agent"),
    "rg": split_option_names("-e -g --glob -r --replace"),
    "grep": split_option_names("-e --include --exclude --exclude-dir"),
    "sed": split_option_names("-e --expression"),
    "python": split_option_names("-c -m -W -X"),
    "python3": split_option_names("-c -m -W -X"),
    "node": split_option_names("-e -p --eval --print"),
    "perl": split_option_names("-e -E"),
    "ruby": split_option_names("-e"),
    "find": split_option_names("-name -iname -path -ipath -regex -perm -printf"),
}
# Options with which agents start without their sandbox, or without asking.
AGENT_GUARD_OPTIONS: dict[str, frozenset[str]] = {
    "claude": split_option_names("--dangerously-skip-permissions --allow-dangerously-skip-permissions"),
    "codex": split_option_names("--yolo --dangerously-bypass-approvals-and-sandbox --full-auto"),
    "gemini": split_option_names("--yolo -y"),
    "qwen": split_option_names("--yolo -y"),
    "copilot": split_option_names("--allow-all-tools --allow-all"),
    "cursor-agent": split_option_names("-f --force"),
    "goose": split_option_names("--no-confirm"),
}
# Options that do so with some values, by program: `codex -s danger-full-access`.
AGENT_GUARD_VALUES: dict[str, dict[str, frozenset[str]]] = {
    "claude": {"--permission-mode": split_option_names("bypassPermissions dontAsk")},
    "codex": {
        "-s": split_option_names("danger-full-access"),
        "--sandbox": split_option_names("danger-full-access"),
        "-a": split_option_names("never"),
        "--ask-for-approval": split_option_names("never"),
        "-c": split_option_names("sandbox_mode=danger-full-access approval_policy=never"),
        "--config": split_option_names("sandbox_mode=danger-full-access approval_policy=never"),
    },
    "gemini": {"--approval-mode": split_option_names("yolo"), "--sandbox": split_option_names("false")},
    "qwen": {"--approval-mode": split_option_names("yolo")},
}
TEXT_OPERANDS = split_option_names("echo printf expr seq")


def iterate_clustered_options(text: str) -> Iterator[tuple[str, str]]:
    """Yield each option that a word gives, with the rest of the word: `-rfx` gives `-r`, `-f` and `-x`."""
    if text.startswith("--"):
        name, _, value = text.partition("=")
        yield name, value
        return
    name, equals, value = text.partition("=")
    if equals:
        yield name, value
    yield text, ""
    for index, letter in enumerate(text[1:], 1):
        yield f"-{letter}", text[index + 1 :]
