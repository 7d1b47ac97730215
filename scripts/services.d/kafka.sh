# One KRaft node, broker and controller in one process, from the jars that Maven Central has.
port=59092
packages='maven default-jre-headless'
patience=120 # a JVM on a busy machine
# Beside the data: new data must not mean a new download.
libraries=${state:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.services}/kafka-libs
version=3.9.1

url() { echo "kafka://127.0.0.1:$port/?partitions=3&session_timeout=2"; }

find_programs() { command -v mvn && command -v java; } >/dev/null

# Into another directory first, so that a download that was cut off is not taken for a whole one.
fetch() {
  [ -d "$libraries" ] && return 0
  local try pom=$dir/pom.xml
  cat >"$pom" <<-POM
		<project xmlns="http://maven.apache.org/POM/4.0.0">
		  <modelVersion>4.0.0</modelVersion>
		  <groupId>postroad</groupId><artifactId>kafka-libs</artifactId><version>1</version><packaging>pom</packaging>
		  <dependencies>
		    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
		    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
		  </dependencies>
		</project>
	POM
  ! declare -F say >/dev/null || say 'fetching its jars (a minute or two)'
  for try in 1 2 3; do
    rm -rf "$libraries.part"
    timeout 600 mvn --batch-mode --quiet --file "$pom" \
      org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$libraries.part" </dev/null &&
      mv "$libraries.part" "$libraries" && return 0
  done
  return 1
}

# The quorum's voters are part of what is formatted; their port is not, so the node may move to another one later.
create() {
  fetch && mkdir -p "$data" && settings || return 1
  java -cp "$libraries/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=error kafka.tools.StorageTool \
    format --cluster-id postroad-tests-node-AA --config "$data/server.properties"
}

# Topics come into being by themselves here, as they do on a server nobody has configured: the tests must see that
# the adapter does not let them. Groups form at once and may have short sessions, so that tests wait less.
#
# A client leaves the address that it was given for the one that Kafka tells. So whoever stands between names a door for
# each of them in KAFKA_DOORS, as own-port:port-to-tell.
settings() {
  local door doors='' told='' plain=''
  for door in ${KAFKA_DOORS:-}; do
    doors+=",DOOR${door%:*}://127.0.0.1:${door%:*}" told+=",DOOR${door%:*}://127.0.0.1:${door#*:}"
    plain+=",DOOR${door%:*}:PLAINTEXT"
  done
  cat >"$data/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$((port + 100))
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 100))$doors
		advertised.listeners=PLAINTEXT://127.0.0.1:$port$told
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT$plain
		controller.listener.names=CONTROLLER
		inter.broker.listener.name=PLAINTEXT
		log.dirs=$data/logs
		num.network.threads=2
		num.io.threads=2
		offsets.topic.num.partitions=1
		offsets.topic.replication.factor=1
		transaction.state.log.num.partitions=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		group.initial.rebalance.delay.ms=0
		group.min.session.timeout.ms=1000
		log.cleaner.dedupe.buffer.size=2097152
		log.retention.check.interval.ms=1000
		log.initial.task.delay.ms=1000
		log.segment.delete.delay.ms=1000
	PROPERTIES
}

launch() {
  fetch && settings || return 1
  # The quick compiler and one collector: a test server lives for minutes. A benchmark sets POSTROAD_DURABLE.
  local frugal=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC)
  [ -z "${POSTROAD_DURABLE:-}" ] || frugal=()
  spawn "$(command -v java)" -Xmx512m "${frugal[@]}" -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$libraries/*" kafka.Kafka "$data/server.properties"
}

# Its clients' port is opened last, when the node has joined its own quorum.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
