#!/usr/bin/env bash
# Chains doit targets and does with each exit code what that code asks for; README.md tells why.
#
#   ./nightly.sh [TARGET...]     the targets of this example, or those that are named
#   NIGHTLY_TRIES                tries while the machine is at fault, 3
#   NIGHTLY_WAIT_S               seconds between two of them, 300
#   NIGHTLY_LOG                  events of all runs, a JSON object per line, nightly.jsonl
set -u
cd "$(dirname "$0")" || exit 2

tries=${NIGHTLY_TRIES:-3}
wait_s=${NIGHTLY_WAIT_S:-300}
log=${NIGHTLY_LOG:-nightly.jsonl}
failed= # tasks that failed tonight, a space after each
result=0

# Without a trap bash would end before doit has stopped its workers.
stopped=
trap 'stopped=yes' INT

say() { printf '%s nightly: %s\n' "$(date +%H:%M:%S)" "$*"; }

# read_json 'PYTHON' [ARG...] <JSON: runs a line of Python with the value as `it`.
read_json() { python3 -c "import json, sys; it = json.load(sys.stdin); $1" "${@:2}"; }

# Why the target would run, in a line; nothing when it is up to date.
cause() {
    local answer
    # A faulty dodo.py has no answer.  doit will say so, and end with 3.
    answer=$(gputasks why --json "$1" 2>/dev/null) || { echo "why is not known"; return; }
    read_json 'print(*[c["text"] for c in it["causes"]][:1])' <<<"$answer"
}

# The first task before this target that failed tonight, if there is one.
blocked_by() {
    [ -n "$failed" ] || return
    gputasks why --json "$1" |
        read_json 'print(*[c["name"] for c in it["causes"]
              if c["kind"] == "upstream" and c["name"] in sys.argv[1].split()][:1])' "$failed"
}

# Tasks that failed in the newest run of doit: the lines of the log after the given one.
failures() {
    tail -n "+$(($1 + 1))" "$log" | python3 -c '
import json, sys
for line in sys.stdin:
    event = json.loads(line)
    if event["kind"] == "task" and event["status"] == "failed":
        print(event["task"], event["error"].splitlines()[0].removeprefix("error: "), sep="\t")'
}

# The last line of what a failed task printed, from its record.
last_words() {
    gputasks status --json "$1" |
        read_json 'a = it[0]["attempts"] or [{}]
print(*[f["lines"][-1] for f in a[-1].get("failures", []) if f.get("lines")][:1])'
}

[ $# -gt 0 ] || set -- report count

for target in "$@"; do
    [ -z "$stopped" ] || exit 130
    why=$(cause "$target")
    if [ -z "$why" ]; then
        say "$target: up to date"
        continue
    fi
    culprit=$(blocked_by "$target")
    if [ -n "$culprit" ]; then
        say "$target: skipped, \`$culprit\` failed"
        continue
    fi
    say "$target: $why"

    try=1
    while :; do
        [ -z "$stopped" ] || exit 130
        touch "$log"
        before=$(wc -l <"$log")
        GPUTASKS_OUTPUT=json doit "$target" >>"$log"
        code=$?
        case $code in
            0) # made and verified
                say "$target: done"
                ;;
            1) # the same inputs would fail again: leave it to a person, go on with the others
                while IFS=$'\t' read -r task text; do
                    failed="$failed$task "
                    say "$target: $text"
                    say "$target: $(last_words "$task")"
                done < <(failures "$before")
                result=1
                ;;
            2) # no fault of the script: another moment may be better
                say "$target: $(failures "$before" | cut -f 2)"
                if [ "$try" -lt "$tries" ]; then
                    try=$((try + 1))
                    say "$target: try $try of $tries in $wait_s s"
                    sleep "$wait_s" || exit 130
                    continue
                fi
                exit 2
                ;;
            3) # nothing was started, and nothing will be
                say "$target: dodo.py is faulty, or has no such task"
                exit 3
                ;;
            129 | 130 | 143) # somebody wants the machine: the next night goes on from the checkpoint
                say "$target: interrupted"
                exit "$code"
                ;;
            *)
                say "$target: doit ended with $code"
                exit "$code"
                ;;
        esac
        break
    done
done

gputasks status --json | read_json 'print(*[f"""{r["task"]}: {r["outcome"]}""" for r in it], sep="\n")'
exit "$result"
