# shellcheck shell=bash
# Completion of corefan, corefan-worker and corefan-worker-asyncio for bash.
# Commands and options are read from --help, so they are those of the program that is installed.

_corefan_options() { # COMMAND...: its long options, a line each; those that take a value end in '='
    "$@" --help 2>/dev/null |
        sed -nE -e 's/^ +(-[^ ,]( [^ ,]+)?, )?(--[a-z0-9-]+)(=| [^ ])?.*$/\3\4/' -e 's/ .$/=/' -e '/^--/p'
}

_corefan_commands() {
    "$1" --help 2>/dev/null | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# Words of a sweep's key: tests/cli/test_completion.py holds them to `corefan schema`.
_corefan_words() {
    case $1 in
    keys) echo job fanout delay runtimes arms clients phase rate arrivals duration wait fail stall timeout gc cores \
        rounds precision warmup processes name seed placement matrix expect ;;
    job) echo noop sleep cpu ;;
    arms) echo sequential gather gather-return-exceptions tasks taskgroup ;;
    runtimes) echo libuv asyncio uvloop ;;
    clients) echo ladder ;;
    phase) echo together staggered ;;
    arrivals) echo poisson fixed ;;
    wait) echo timerfd uv_timer ;;
    gc) echo on off freeze ;;
    cores) echo all ladder ;;
    rounds) echo auto ;;
    placement) echo compact spread ;;
    esac
}

_corefan_runs() { # PREFIX: directories that hold a run
    local run
    for run in "$1"*/run.db runs/"$1"*/run.db; do
        [[ -e $run ]] && echo "${run%/run.db}"
    done
    compgen -d -- "$1"
}

# OPTION COMMAND CURRENT: candidates for the value of an option, a line each
_corefan_values() {
    case $1 in
    --format)
        case $2 in
        run | report) printf '%s\n' text json csv junit pyperf hgrm ;;
        *) printf '%s\n' text json ;;
        esac
        ;;
    --metric) printf '%s\n' cpu wall cpu,wall ;;
    --ignore) _corefan_words keys | tr ' ' '\n' | sed -e 's/^runtimes$/runtime/' -e 's/^arms$/arm/' ;;
    --progress) printf '%s\n' auto bar plain none ;;
    --housekeeping) printf '%s\n' auto none ;;
    --workers) printf '%s\n' auto 0 1 2 ;;
    --loop) printf '%s\n' asyncio uvloop ;;
    --resume) _corefan_runs "$3" | sort -u ;;
    --out | -o | --path | --authorized-keys) compgen -d -- "$3" ;;
    --key | --coordinator-key | --python) compgen -f -- "$3" ;;
    esac
}

_corefan_arguments() { # COMMAND CURRENT
    case $1 in
    run | plan) compgen -f -X '!*.@(yaml|yml|json)' -- "$2"; compgen -d -- "$2" ;;
    report | size) _corefan_runs "$2" | sort -u ;;
    compare) { _corefan_runs "$2"; compgen -f -X '!*.json' -- "$2"; } | sort -u ;;
    list) compgen -d -- "$2" ;;
    esac
}

_corefan() {
    local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-} option=''
    local -a from=("$program")
    local at=$((COMP_CWORD - 1)) key=''
    shopt -s extglob
    # bash cuts words at '=': --set arms=ga is four of them
    if [[ $current == '=' ]]; then
        current=''
        at=$((COMP_CWORD - 1))
    elif [[ ${COMP_WORDS[at]} == '=' ]]; then
        at=$((at - 1))
    fi
    option=${COMP_WORDS[at]}
    if [[ $program == *corefan ]]; then
        if ((COMP_CWORD == 1)); then
            mapfile -t COMPREPLY < <(compgen -W "$(_corefan_commands "$program") --help --version" -- "$current")
            return
        fi
        from+=("$command")
    else
        command=worker
    fi
    if ((at >= 1)) && [[ ${COMP_WORDS[at - 1]} == '--set' && $((COMP_CWORD - at)) -ge 1 && $option != --* ]]; then
        key=$option # --set KEY=...
        mapfile -t COMPREPLY < <(compgen -W "$(_corefan_words "$key")" -- "$current")
    elif [[ $option == '--set' ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_corefan_words keys)" -S '=' -- "$current")
        compopt -o nospace 2>/dev/null
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_corefan_options "${from[@]}" | tr -d '=')" -- "$current")
    elif [[ $option == -* ]] && _corefan_takes_value "$option" "${from[@]}"; then
        mapfile -t COMPREPLY < <(compgen -W "$(_corefan_values "$option" "$command" "$current")" -- "$current")
    else
        mapfile -t COMPREPLY < <(_corefan_arguments "$command" "$current")
    fi
}

_corefan_takes_value() { # OPTION COMMAND...
    local option=$1
    shift
    [[ $option == -o ]] || _corefan_options "$@" | grep -qxF -e "$option="
}

complete -F _corefan corefan corefan-worker corefan-worker-asyncio
