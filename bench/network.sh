#!/usr/bin/env bash
# Runs a command under Open MPI on virtual hosts of this machine: network namespaces, joined by a switch whose links carry
# RATE in each direction. Each host runs one process. Messages go through real TCP; only the latency differs from a network
# of machines: it is the kernel's, 15-40 us. With MPI=mpich it runs under MPICH, which may hang at its end after long messages.
#
#   bench/network.sh [--slow WHAT=RATE] HOSTS RATE COMMAND...
#
#   bench/network.sh 4 1gbit ./lockstep bench ps --servers 1 -b 16M -e 16M
#   bench/network.sh --slow 3=100mbit 8 1gbit ./lockstep bench pairs       # the link of host 3 is slow
#   bench/network.sh --slow 2-5=100mbit 8 1gbit ./lockstep bench pairs     # only between hosts 2 and 5
#
# After a pause a link sends 512 KB at once, before RATE holds; BURST=128k makes that less, for exact times of short messages.
#
# Needs root and iproute2 (ip, tc). Changes nothing outside its own namespaces and removes them at the end.
set -euo pipefail

fail() {
  echo "network.sh: $1" >&2
  exit 2
}

slow= slow_rate=
usage="usage: network.sh [--slow HOST=RATE | --slow HOST-HOST=RATE] HOSTS RATE COMMAND...; HOSTS from 1 to 64, numbered from 0"
if [[ ${1-} == --slow ]]; then
  [[ ${2-} =~ ^((0|[1-9][0-9]?)(-(0|[1-9][0-9]?))?)=([a-z0-9.]+)$ ]] || fail "--slow ${2-}: $usage"
  slow=${BASH_REMATCH[1]} slow_rate=${BASH_REMATCH[5]}
  shift 2
fi
[[ $# -ge 3 && $1 =~ ^[0-9]+$ && $1 -ge 1 && $1 -le 64 ]] || fail "$usage"
for host in ${slow/-/ }; do [[ $host -lt $1 ]] || fail "--slow $slow: there is no host $host; hosts are 0 to $(($1 - 1))"; done
[[ $slow != *-* || ${slow%-*} -ne ${slow#*-} ]] || fail "--slow $slow: name two different hosts"
[[ $EUID -eq 0 ]] || fail "making network namespaces needs root; run it as root, or under: unshare -r -n -m"
mpi=${MPI-openmpi}
[[ $mpi == openmpi || $mpi == mpich ]] || fail "MPI=$mpi: choose openmpi or mpich"
for program in ip tc "mpirun.$mpi"; do
  command -v "$program" >/dev/null || fail "no $program here; apt-get install iproute2 openmpi-bin mpich"
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

# What a link sends at once after a pause. Packets of 64 KiB must fit several times, or the rate collapses.
burst=${BURST-512k}

shape() { ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst $burst latency 20ms; }

# What host $1 sends passes through a queue of its own per class, here one; slow_pair adds another.
shape_host() {
  ip netns exec "$1" tc qdisc replace dev eth0 root handle 1: htb default 1 && add_queue "$1" 1 "$2"
}
add_queue() {
  ip netns exec "$1" tc class add dev eth0 parent 1: classid "1:$2" htb rate "$3" burst $burst cburst $burst quantum 65536 &&
    ip netns exec "$1" tc qdisc add dev eth0 parent "1:$2" bfifo limit 2m
}

# What host $1 sends to host $2 passes through a slow queue of its own.
slow_pair() {
  add_queue "$name$1" 2 "$slow_rate"
  ip netns exec "$name$1" tc filter add dev eth0 parent 1: protocol ip u32 match ip dst "10.77.0.$(($2 + 1))/32" flowid 1:2
}

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
  own=$rate
  [[ $slow != "$i" ]] || own=$slow_rate
  shape_host "$host" "$own" || fail "cannot shape the links to '$own'; write the rate as for tc, for example 1gbit"
  shape "$switch" "p$i" "$own"
  ip netns exec "$host" sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_retries2=5
  addresses+=("10.77.0.$((i + 1)):1")
done

if [[ $slow == *-* ]]; then
  { slow_pair "${slow%-*}" "${slow#*-}" && slow_pair "${slow#*-}" "${slow%-*}"; } ||
    fail "cannot shape the link of hosts $slow to '$slow_rate'; write the rate as for tc, for example 100mbit"
fi

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

all=$(IFS=,; echo "${addresses[*]}")
if [[ $mpi == openmpi ]]; then
  # Long messages are sent in pieces: a whole one would delay the answers on the same connection.
  start=(mpirun.openmpi --allow-run-as-root -np "$hosts" --host "$all" --map-by ppr:1:node --bind-to none
    --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0
    --mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1
    --mca btl_tcp_rdma_pipeline_frag_size 131072 --mca btl_tcp_sndbuf 524288 --mca btl_tcp_rcvbuf 1048576)
else
  # The hosts share a kernel, but must not share memory. MPICH 4.0.2 may hang in MPI_Finalize after long messages.
  start=(mpirun.mpich -launcher ssh -launcher-exec "$work/agent" -iface eth0 -n "$hosts" -ppn 1 -hosts "${all//:1/}"
    -genv UCX_TLS tcp -genv UCX_NET_DEVICES eth0)
fi
ip netns exec "${name}0" unshare --uts sh -c "hostname ${name}0; exec \"\$@\"" sh "${start[@]}" "$@"
