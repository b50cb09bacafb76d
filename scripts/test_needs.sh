#!/bin/sh
# Install the programs that tests/bench, tests/browser, tests/cli, tests/conformance, tests/contrib, tests/discovery, tests/e2e, tests/examples,
# tests/executors, tests/gates, tests/hooks and tests/sdk run. Packages need root and Debian; the rest goes into .venv. What is there already is left alone.
set -eu
cd "$(dirname "$0")/.."

packages="busybox chromium-headless-shell curl default-jdk-headless dnsmasq-base etcd-server fish gcc golang-go haproxy hostname iproute2 jq keepalived
libc6-dev libmono-system-net-http4.0-cil libmono-system-runtime-serialization4.0-cil libnewtonsoft-json5.0-cil libvirt-clients libvirt-daemon libvirt-dev
mono-mcs mono-runtime nftables nginx nodejs openssh-server openssl patroni pkg-config postgresql procps python3 python3-dev shellcheck slurm-client
slurmctld slurmd socat systemd util-linux
wrk zsh"
clients=.venv/clients
uv=$(command -v uv || echo .venv/bin/uv)

missing=''
for package in $packages; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null | grep -qx installed ||
    missing="$missing $package"
done
agents=$clients/resource-agents/usr/lib/ocf/resource.d/heartbeat/azure-events-az
prometheus=$clients/prometheus/usr/bin/prometheus

if [ -n "$missing" ] || [ ! -e "$agents" ] || [ ! -e "$prometheus" ]; then
  command -v apt-get > /dev/null ||
    { echo "this needs Debian's apt-get, for:$missing resource-agents prometheus" >&2; exit 1; }
fi
if [ -n "$missing" ]; then
  [ "$(id -u)" = 0 ] || { echo "run this as root, or install:$missing" >&2; exit 1; }
  (
    # No server among them is to run: tests start their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
      trap 'rm -f $policy' EXIT
      printf '#!/bin/sh\nexit 101\n' > $policy
      chmod +x $policy
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
      -o DPkg::Lock::Timeout=300 $missing > /dev/null
  )
fi

# Only the files of these: the packages would bring a cluster and a service along.
unpack() {
  download=$(mktemp -d)
  (
    cd "$download"
    apt-get download -qq "$1" 2> /dev/null || { apt-get update -qq && apt-get download -qq "$1"; }
  )
  mkdir -p "$clients"
  dpkg-deb -x "$download"/"$1"_*.deb "$clients/$1"
  rm -rf "$download"
}
[ -e "$agents" ] || unpack resource-agents
[ -e "$prometheus" ] || unpack prometheus

# Not among the packages of .venv, because it is compiled against libvirt-dev.
.venv/bin/python -c 'import libvirt' 2> /dev/null ||
  "$uv" pip install --quiet --python .venv/bin/python --require-hashes --requirements requirements/libvirt.txt

# Each with an environment of its own: what they depend on does not go with what we do.
install() {
  pins=$1
  environment=$clients/$(basename "$pins" .txt)
  if ! cmp -s "$pins" "$environment/installed.txt"; then
    "$uv" venv --quiet --clear --python .venv/bin/python "$environment"
    "$uv" pip install --quiet --python "$environment/bin/python" --require-hashes --requirements "$pins"
    cp "$pins" "$environment/installed.txt"
  fi
}
install tests/conformance/clients/ai4s-jobq.txt
install tests/e2e/openapi-python-client.txt
