#!/usr/bin/env bash
# A private server, as scripts/services.d describes it, that may be stopped and started at will:
#
#   server.sh NAME DIRECTORY PORT create|launch|answers|url|stop_signal|programs
#   server.sh NAME DIRECTORY PORT FUNCTION ARGUMENTS…     whatever else the description offers
#
# `launch` becomes the server, so that whoever called has its pid; it dies with its parent.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)
name=$1 dir=$2 port_wanted=$3 action=$4
account='' stop_signal=TERM
# shellcheck source=/dev/null
. "$here/services.d/$name.sh"
port=$port_wanted data=$dir/data
[ "$(id -u)" = 0 ] || account=''
switch=()
[ -z "$account" ] || switch=(--reuid="$account" --regid="$account" --init-groups)

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

as_account() { setpriv "${switch[@]}" -- "$@"; }

spawn() {
  cd "$data" || exit 1
  exec setpriv "${switch[@]}" --pdeathsig "$stop_signal" -- "$@" </dev/null
}

find_programs || { echo "$name is not installed: $packages" >&2; exit 3; }
case $action in
  create)
    [ -z "$account" ] || chown "$account" "$dir"
    create
    ;;
  stop_signal) echo "$stop_signal" ;;
  programs) ;;
  *) "$action" "${@:5}" ;;
esac
