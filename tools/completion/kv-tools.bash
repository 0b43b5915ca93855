# bash completion of kv-server, kv-client, kv-bench and kv-doctor. What can be completed is read out
# of what the program itself prints with --help, so that nothing is written twice.

# A line for each option: its names, what its value is called, and words to choose from.
#	--log-level -l WORD error warn info
_kv_tools_options() {
	COLUMNS=100 "$1" --help 2> /dev/null | awk '
		function flush(    parts, count, i) {
			if (names == "")
				return
			line = names " " (metavar == "" ? "-" : metavar)
			# The choices stand behind the last colon, before the default.
			if (metavar == "WORD") {
				sub(/ \(default .*/, "", text)
				sub(/.*: /, "", text)
				gsub(/,/, "", text)
				line = line " " text
			}
			print line
			names = ""
		}
		/^[a-z]/ { flush(); inside = /^options:/; next }
		!inside { next }
		/^ +(-[A-Za-z], )?--/ {
			flush()
			letter = ""
			if ($1 ~ /^-[A-Za-z],$/) {
				letter = " " substr($1, 1, 2)
				$1 = ""
			}
			$0 = $0
			names = $1 letter
			metavar = $2 ~ /^[A-Z][A-Z:]*$/ ? $2 : ""
			$1 = ""
			if (metavar != "")
				$2 = ""
			text = $0
			next
		}
		{ sub(/^ +/, " "); text = text $0 }
		END { flush() }'
}

# kv-client: its commands, and the options of one.
_kv_tools_commands() {
	COLUMNS=100 "$1" --help 2> /dev/null | awk -v command="$2" '
		/^[a-z]/ { inside = /^commands:/; next }
		!inside || !/^  [a-z]/ { next }
		command == "" { print $1 }
		command == $1 {
			for (i = 2; i <= NF; i++)
				if ($i ~ /^\[?--/) {
					gsub(/[][]/, "", $i)
					print $i
				}
		}'
}

# What may follow an option: 0, and COMPREPLY is filled, if it takes a value.
_kv_tools_value() {
	local program=$1 option=$2 current=$3 line words
	line=$(_kv_tools_options "$program" | grep -E -m 1 -- "(^| )$option( |\$)") || return 1
	read -r -a words <<< "$line"
	local at=1
	[[ ${words[1]} == -? ]] && at=2
	case ${words[at]} in
	-) return 1 ;;
	FILE) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
	WORD) mapfile -t COMPREPLY < <(compgen -W "${words[*]:at+1}" -- "$current") ;;
	*) COMPREPLY=() ;;
	esac
}

# The command of kv-client among the words before the present one, if there is one yet.
_kv_tools_find_command() {
	local at word
	for ((at = 1; at < COMP_CWORD; at++)); do
		word=${COMP_WORDS[at]}
		if [[ $word != -* ]]; then
			echo "$word"
			return
		fi
		if [[ ${COMP_WORDS[at + 1]} == = ]]; then
			((at += 2))
		elif _kv_tools_value "$1" "$word" ""; then
			((at++))
		fi
	done
}

_kv_tools() {
	local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command=
	COMPREPLY=()
	# --name=value comes as three words.
	if [[ $current == = ]]; then
		current=
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	[[ ${program##*/} == kv-client ]] && command=$(_kv_tools_find_command "$program")
	case $command in
	bench | doctor)
		program=${program%kv-client}kv-$command
		command=
		;;
	esac
	if [[ -n $command ]]; then
		if [[ $previous == --output || $previous == @ ]]; then
			mapfile -t COMPREPLY < <(compgen -f -- "$current")
		elif [[ $current == @* ]]; then
			mapfile -t COMPREPLY < <(compgen -P @ -f -- "${current#@}")
		elif [[ $current == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--json
				$(_kv_tools_commands "$program" "$command")" -- "$current")
		elif [[ $command == help ]]; then
			mapfile -t COMPREPLY < <(compgen -W \
				"$(_kv_tools_commands "$program")" -- "$current")
		fi
		return
	fi
	[[ $previous == -* ]] && _kv_tools_value "$program" "$previous" "$current" && return
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W \
			"$(_kv_tools_options "$program" | grep -o -E -- '(^| )--?[A-Za-z][a-z-]*')" \
			-- "$current")
	elif [[ ${program##*/} == kv-client ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_kv_tools_commands "$program")" -- "$current")
	fi
}

complete -F _kv_tools kv-server kv-client kv-bench kv-doctor
