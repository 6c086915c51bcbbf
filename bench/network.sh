#!/usr/bin/env bash
# Runs a command under Open MPI on virtual hosts of this machine: network namespaces, joined by a switch whose links carry
# RATE in each direction. Each host runs one process. Messages go through real TCP; only the latency differs from a network
# of machines: it is the kernel's, 15-40 us.
#
#   bench/network.sh HOSTS RATE COMMAND...     for example: bench/network.sh 4 1gbit ./lockstep bench ps --servers 1 -b 16M -e 16M
#
# Needs root and iproute2 (ip, tc). Changes nothing outside its own namespaces and removes them at the end.
set -euo pipefail

fail() {
  echo "network.sh: $1" >&2
  exit 2
}

[[ $# -ge 3 && $1 =~ ^[0-9]+$ && $1 -ge 1 && $1 -le 64 ]] || fail "usage: network.sh HOSTS RATE COMMAND...; HOSTS from 1 to 64"
[[ $EUID -eq 0 ]] || fail "making network namespaces needs root; run it as root, or under: unshare -r -n -m"
for program in ip tc mpirun.openmpi; do
  command -v "$program" >/dev/null || fail "no $program here; apt-get install iproute2 openmpi-bin"
done
hosts=$1 rate=$2
shift 2

name=ls$$
switch=${name}sw
work=$(mktemp -d)

tear_down() {
  for ((i = 0; i < hosts; ++i)); do ip netns del "$name$i" 2>/dev/null || true; done
  ip netns del "$switch" 2>/dev/null || true
  rm -rf "$work"
}
trap tear_down EXIT
trap 'exit 130' INT TERM

# The burst holds some milliseconds of traffic; with a smaller one, packets of 64 KiB do not fit and the rate collapses.
shape() { ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "$rate" burst 512k latency 20ms; }

ip netns add "$switch" 2>"$work/error" || fail "cannot make a network namespace: $(cat "$work/error")"
ip -n "$switch" link set lo up
ip -n "$switch" link add br0 type bridge stp_state 0 forward_delay 0
ip -n "$switch" link set br0 up
addresses=()
for ((i = 0; i < hosts; ++i)); do
  host=$name$i
  ip netns add "$host"
  ip -n "$host" link set lo up
  ip -n "$switch" link add "p$i" type veth peer name eth0 netns "$host"
  ip -n "$switch" link set "p$i" master br0 up
  ip -n "$host" addr add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "$host" link set eth0 up
  shape "$host" eth0 || fail "cannot shape the links to '$rate'; write the rate as for tc, for example 1gbit"
  shape "$switch" "p$i"
  ip netns exec "$host" sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_retries2=5
  addresses+=("10.77.0.$((i + 1)):1")
done

# mpirun calls this instead of ssh. Each host gets its own name; otherwise MPI would take all hosts for one.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
address=\$1
shift
host=$name\$((\${address##*.} - 1))
exec ip netns exec "\$host" unshare --uts /bin/sh -c "hostname \$host; export HOSTNAME=\$host; \$*"
AGENT
chmod +x "$work/agent"

# Long messages are sent in pieces: a whole one would delay the answers on the same connection.
ip netns exec "${name}0" unshare --uts sh -c "hostname ${name}0; exec \"\$@\"" sh \
  mpirun.openmpi --allow-run-as-root -np "$hosts" --host "$(IFS=,; echo "${addresses[*]}")" --map-by ppr:1:node --bind-to none \
  --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 \
  --mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1 \
  --mca btl_tcp_rdma_pipeline_frag_size 131072 --mca btl_tcp_sndbuf 524288 --mca btl_tcp_rcvbuf 1048576 \
  "$@"
