# PostgreSQL refuses to run as root, hence the account.
port=55432
packages=postgresql
account=postgres
stop_signal=INT # fast shutdown: do not wait for clients

url() { echo "postgresql://postgres@127.0.0.1:$port/postroad"; }

find_programs() {
  local candidate
  for candidate in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) "$(dirname "$(command -v postgres)" 2>/dev/null)"; do
    [ -x "$candidate/postgres" ] && [ -x "$candidate/initdb" ] && bin=$candidate && return 0
  done
  return 1
}

create() { as_account "$bin/initdb" --no-sync --pgdata="$data" --username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8; }

launch() {
  # We know that nothing of ours runs here; a left-over lock file may name a pid that someone else has by now.
  rm -f "$data/postmaster.pid"
  # Test data must outlive a killed server, not a power cut. A benchmark sets POSTROAD_DURABLE, and gets a server as one
  # would run it: a quarter of the memory for its pages, instead of 128 MB.
  local settings=(-c fsync=off -c full_page_writes=off)
  [ -z "${POSTROAD_DURABLE:-}" ] || settings=(-c shared_buffers="$(awk '/^MemTotal:/ {print int($2 / 4)}' /proc/meminfo)kB")
  spawn "$bin/postgres" -D "$data" -c port="$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c max_connections=200 -c max_prepared_transactions=4 -c log_min_messages=fatal -c log_checkpoints=off "${settings[@]}"
}

ask() { "$bin/psql" --host=127.0.0.1 --port="$port" --username=postgres --no-psqlrc --quiet --tuples-only "$@"; }

answers() {
  ask --command='select 1' || return 1
  [ -n "$(ask --command="select 1 from pg_database where datname = 'postroad'" | tr -d ' \n')" ] ||
    ask --command='create database postroad'
}
