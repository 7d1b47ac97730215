port=53306
packages=mariadb-server
PATH=$PATH:/usr/sbin

url() { echo "mysql://root@127.0.0.1:$port/postroad"; }

find_programs() { command -v mariadbd && command -v mariadb-install-db && command -v mariadb; } >/dev/null

# A server that starts removes what others left in its folder for temporary tables, also what another still needs.
temporary() { mkdir -p "$data.tmp" && echo "$data.tmp"; }

create() {
  TMPDIR=$(temporary) mariadb-install-db --no-defaults --datadir="$data" --user="$(id -un)" \
    --auth-root-authentication-method=normal --skip-test-db
}

launch() {
  # Test data must outlive a killed server, not a power cut; a benchmark sets POSTROAD_DURABLE.
  local sync=(--innodb-flush-method=nosync --innodb-flush-log-at-trx-commit=2 --sync-frm=OFF)
  [ -z "${POSTROAD_DURABLE:-}" ] || sync=()
  # The socket's name is relative to the data directory: a full path may be longer than a socket's may.
  spawn "$(command -v mariadbd)" --no-defaults --user="$(id -un)" --datadir="$data" --port="$port" \
    --tmpdir="$(temporary)" --bind-address=127.0.0.1 --socket=mariadb.sock --pid-file="$data/mariadb.pid" \
    --character-set-server=utf8mb4 --max-connections=200 --performance-schema=off "${sync[@]}"
}

answers() {
  mariadb --no-defaults --host=127.0.0.1 --port="$port" --user=root --protocol=tcp --connect-timeout=5 \
    --execute='create database if not exists postroad'
}
