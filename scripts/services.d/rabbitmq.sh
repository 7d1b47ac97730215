# A node of its own: name, data, ports, port mapper and cookie are all apart from those of any other RabbitMQ here.
port=55672
packages=rabbitmq-server
patience=90

management() { echo $((port + 100)); }

url() { echo "amqp://guest:guest@127.0.0.1:$port/?management=http://127.0.0.1:$(management)"; }

# Not the one in /usr/sbin, which wants to be root and to become another user.
find_programs() {
  bin=/usr/lib/rabbitmq/bin
  [ -x $bin/rabbitmq-server ] || bin=$(dirname "$(command -v rabbitmq-server)" 2>/dev/null)
  [ -x "$bin/rabbitmq-server" ] && [ -x "$bin/rabbitmqctl" ] && command -v epmd
} >/dev/null

create() {
  mkdir -p "$data" && echo '[rabbitmq_management].' >"$data/enabled_plugins"
}

# For the server and for rabbitmqctl alike.
node_environment() {
  printf '%s\n' "HOME=$data" "RABBITMQ_NODENAME=postroad-$port@localhost" \
    "RABBITMQ_MNESIA_BASE=$data/mnesia" "RABBITMQ_LOG_BASE=$data/log" "RABBITMQ_CONFIG_FILE=$data/rabbitmq.conf" \
    "RABBITMQ_ENABLED_PLUGINS_FILE=$data/enabled_plugins" "RABBITMQ_CONF_ENV_FILE=/dev/null" \
    "RABBITMQ_PID_FILE=$data/node.pid" "RABBITMQ_DIST_PORT=$((port + 200))" \
    "ERL_EPMD_PORT=$((port + 300))" 'ERL_EPMD_ADDRESS=127.0.0.1'
}

launch() {
  # Counts are a second old, not five, so that tests wait less for them.
  cat >"$data/rabbitmq.conf" <<-CONF
		listeners.tcp.1 = 127.0.0.1:$port
		management.tcp.ip = 127.0.0.1
		management.tcp.port = $(management)
		collect_statistics_interval = 1000
		management.sample_retention_policies.global.minute = 1
		management.sample_retention_policies.basic.minute = 1
		management.sample_retention_policies.detailed.minute = 1
		vm_memory_high_watermark.absolute = 1GB
		disk_free_limit.absolute = 50MB
		log.file.level = warning
		log.console = false
	CONF
  # Idle schedulers that spin would take the processor from the tests.
  local frugal='+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}'
  # A node needs Erlang's port mapper. This one ends with the node, instead of staying behind as a daemon.
  # shellcheck disable=SC2016  # expanded by the inner shell
  local together='
    epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & mapper=$!
    "$0" & node=$!
    trap "kill -TERM $node" TERM INT
    while kill -0 $node 2>/dev/null; do wait $node; done
    kill $mapper'
  local environment
  mapfile -t environment < <(node_environment)
  spawn env "${environment[@]}" RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$frugal" \
    bash -c "$together" "$bin/rabbitmq-server"
}

control() {
  local environment
  mapfile -t environment < <(node_environment)
  env "${environment[@]}" "$bin/rabbitmqctl" "$@"
}

answers() {
  local status
  exec 7<>"/dev/tcp/127.0.0.1/$(management)" || return 1
  printf 'GET /api/health/checks/port-listener/%s HTTP/1.0\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n' "$port" >&7
  read -r -t 5 _ status _ <&7
  exec 7>&-
  [ "$status" = 200 ]
}
