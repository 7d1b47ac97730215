# Google's emulator, as the Cloud SDK brings it.
port=58085
packages='default-jdk-headless google-cloud-cli-pubsub-emulator'

url() { echo "pubsub://postroad-test?emulator=127.0.0.1:$port"; }

emulator_jar() {
  local sdk
  for sdk in "${CLOUDSDK_ROOT_DIR:-}" /usr/lib/google-cloud-sdk /usr/local/google-cloud-sdk /opt/google-cloud-sdk "$HOME/google-cloud-sdk"; do
    ls "$sdk"/platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar 2>/dev/null && return
  done
  return 1
}

find_programs() {
  jar=$(emulator_jar | tail -1)
  [ -n "$jar" ] && command -v java && command -v javac
} >/dev/null

create() {
  mkdir -p "$data" && find_programs || return 1
  javac -cp "$jar" -d "$data/shim" "$here"/services.d/pubsub/*.java &&
    rm "$data/shim/com/google/cloud/pubsub/testing/v1/MessageBacklog.class"
}

launch() {
  # The quick compiler, one collector and little memory: a test server lives for minutes. A benchmark sets
  # POSTROAD_DURABLE, and measures what clients cost, not how an emulator with a full memory looks for room.
  local options=(-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
  [ -z "${POSTROAD_DURABLE:-}" ] || options=(-Xmx4g)
  spawn java "${options[@]}" -cp "$data/shim:$jar" \
    com.google.cloud.pubsub.testing.v1.Launcher "$port"
}

answers() {
  listens "$port" || return 1
  local answer
  exec 7<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET / HTTP/1.0\r\n\r\n' >&7
  read -r -t 5 _ answer _ <&7
  exec 7>&-
  [ "$answer" = 200 ]
}
