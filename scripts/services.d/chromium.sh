# A browser without a window, steered over its debugging port; each test opens a context of its own in it.
port=59222
packages=chromium

url() { echo "http://127.0.0.1:$port"; }

find_programs() {
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
}

create() { mkdir -p "$data"; }

launch() {
  spawn "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --disable-dev-shm-usage \
    --remote-debugging-port="$port" --user-data-dir="$data" about:blank
}

answers() {
  local status=''
  exec 7<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /json/version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&7
  read -r -t 5 _ status _ <&7
  exec 7>&-
  [ "$status" = 200 ]
}
