# Bash completion for churon. Commands and flags come from the program's own --help, so that they are never
# behind it; model names from the store.

_churon_words() { # TEXT-OF-HELP PATTERN
    grep -oE -- "$2" <<<"$1" | sort -u
}

_churon_models() {
    local store=${CHURON_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/churon}
    compgen -G "$store/models/*" | sed 's|.*/||'
}

_churon() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command=${COMP_WORDS[1]}
    local -a choices
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t choices < <(_churon_words "$("$program" --help 2>/dev/null)" '^  [a-z]+  ' | tr -d ' '
            printf '%s\n' --help --version)
    elif [[ $word == -* ]]; then
        mapfile -t choices < <(_churon_words "$("$program" "$command" --help 2>/dev/null)" '--[a-z][a-z0-9-]*')
    else
        mapfile -t choices < <(_churon_models)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "${choices[*]}" -- "$word")
}

complete -o filenames -F _churon churon
