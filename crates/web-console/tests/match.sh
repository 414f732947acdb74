#!/bin/sh
# Takes the place of `zerofleet match` in tests. Writes the process id next to the run and prints a score. By the number
# of games, prints a report (64) or an error (128) and exits, or waits for the end of standard input.
runs=$5 games=$7
shift 10
echo $$ > "$runs/process"
echo "$1 against $2: 32 of $games games, 18.5 of 32 points, Elo +55 (95 % interval -20 to +130)" >&2
case $games in
    64) printf '%s\n' "$1 scores 40.5 of 64 against $2 (63.3 %)" "Elo difference +94 (95 % interval +40 to +148)" ;;
    128) echo "error: weights ${1#*@} of run first are damaged" >&2 && exit 1 ;;
    *) exec cat > /dev/null ;;
esac
