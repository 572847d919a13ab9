#!/usr/bin/env bash
# A SLURM cluster on this one machine, for tests: two CPU nodes, a node with four cores in the
# partition few, and in each of the partitions gpu and spare one node with two GPUs (device files with no driver behind them). Memory and time limits are enforced, and faults noticed within
# seconds.
#
#   cluster.sh install            Debian's packages, with apt-get
#   cluster.sh start | stop       needs root; stop also deletes the cluster's folder
#   cluster.sh run COMMAND ...    start, run the command, stop whatever happened
#   cluster.sh slurmd NODE        start the daemon of one node (again)
#
# Everything stands in one folder; /etc/slurm gets links to its configuration, since SLURM_CONF does
# not reach the srun inside the jobs.
set -euo pipefail

folder=${BEIRGRID_SLURM:-/tmp/beirgrid-slurm}
configuration=(slurm.conf gres.conf cgroup.conf)
nodes=(cpu1 cpu2 gpu1 gpu2 few1)

say() { echo "cluster.sh: $*" >&2; }

install() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    slurmctld slurmd slurm-client munge > /dev/null
}

# Why there can be no cluster here; nothing if there can be.
missing() {
  if [ "$(id -u)" != 0 ]; then
    echo "starting SLURM's daemons needs root"
    return
  fi
  local tool
  for tool in slurmctld slurmd squeue munged; do
    command -v $tool > /dev/null || { echo "there is no $tool (tests/slurm/cluster.sh install)"; return; }
  done
  if [ -e /etc/slurm/slurm.conf ] && [ ! -L /etc/slurm/slurm.conf ]; then
    echo "this machine belongs to a SLURM cluster already (/etc/slurm/slurm.conf)"
  fi
}

configure() {
  local host
  host=$(hostname -s)
  mkdir -p "$folder"/{state,log,pid,spool,gpu,munge}
  chmod 755 "$folder" "$folder"/*
  mknod "$folder/gpu/0" c 1 3 # as /dev/null
  mknod "$folder/gpu/1" c 1 3
  cat > "$folder/slurm.conf" << CONF
ClusterName=beirgrid
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/pid/slurmctld.pid
SlurmdPidFile=$folder/pid/%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/%n.log
MailProg=/bin/true

# No cgroups, so that it runs in a container: memory is sampled, every second.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,bf_interval=5,batch_sched_delay=0
DefMemPerCPU=500

# What sites have in minutes, in seconds. Finished jobs stay in squeue for an hour: a test counts them at its end.
SlurmdTimeout=10
KillWait=2
OverTimeLimit=0
ReturnToService=2
MinJobAge=3600
# Jobs that no node of their partition can run are refused, rather than pending for ever.
EnforcePartLimits=ALL

# No accounting, the harder case: sacct knows nothing.
AccountingStorageType=accounting_storage/none

# More CPUs and memory than the machine has: the jobs of a tiny grid use little of what they ask for.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=DEFAULT CPUs=8 RealMemory=64000
NodeName=cpu[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[27001-27002]
NodeName=gpu[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[27003-27004] Gres=gpu:2
NodeName=few1 NodeHostname=$host NodeAddr=127.0.0.1 Port=27005 CPUs=4
PartitionName=cpu Nodes=cpu[1-2] Default=YES MaxTime=1-0 State=UP
PartitionName=gpu Nodes=gpu1 MaxTime=1-0 State=UP
PartitionName=few Nodes=few1 MaxTime=1-0 State=UP
PartitionName=spare Nodes=gpu2 MaxTime=1-0 State=UP
CONF
  echo "NodeName=gpu[1-2] Name=gpu File=$folder/gpu/[0-1]" > "$folder/gres.conf"
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' > "$folder/cgroup.conf" # read, not used
  mkdir -p /etc/slurm
  ln -sf "${configuration[@]/#/$folder/}" /etc/slurm/
}

start_munge() {
  local munge=$folder/munge
  head -c 1024 /dev/urandom > "$munge/key"
  chmod 400 "$munge/key"
  chown -R munge:munge "$munge"
  setpriv --reuid=munge --regid=munge --clear-groups munged --key-file="$munge/key" \
    --socket="$munge/socket" --pid-file="$munge/pid" --log-file="$munge/log" --seed-file="$munge/seed"
}

ready() { [ "$(sinfo --noheader --Node --format=%T | sort | uniq -c | tr -d ' \n')" = "${#nodes[@]}idle" ]; }

start_slurmd() {
  mkdir -p "$folder/spool/$1"
  slurmd -N "$1"
}

# Make the folder, and name the process that it belongs to. While that lives, no other starts a cluster there. What a
# killed one left is stopped first.
claim() {
  local lock
  exec {lock}> "$folder.lock"
  flock "$lock"
  if [ -e "$folder" ]; then
    ! kill -0 "$(cat "$folder/owner")" 2> /dev/null ||
      { say "$folder exists: a cluster runs, or was not stopped (cluster.sh stop)"; exit 1; }
    stop
  fi
  mkdir "$folder"
  echo $$ > "$folder/owner"
  exec {lock}>&-
}

start() {
  local reason
  reason=$(missing)
  [ -z "$reason" ] || { say "$reason"; exit 1; }
  claim
  launch
  cp "$folder/pid/slurmctld.pid" "$folder/owner"
}

launch() {
  local node
  configure
  start_munge
  slurmctld
  for node in "${nodes[@]}"; do start_slurmd "$node"; done
  for _ in $(seq 100); do
    if ready 2> /dev/null; then
      sinfo --Node --format='%N %P %T %c %m %G' >&2
      return
    fi
    sleep 0.2
  done
  say "the nodes did not come up"
  tail -n 20 "$folder"/log/* >&2
  exit 1
}

# End the process of a pid file, politely first.
end() {
  [ -s "$1" ] || return 0
  local pid
  pid=$(cat "$1")
  kill "$pid" 2> /dev/null || return 0
  for _ in $(seq 50); do
    kill -0 "$pid" 2> /dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2> /dev/null || true
}

# What jobs left running when their node was killed.
strays() {
  local environment
  for environment in $(grep -lsz '^SLURM_CLUSTER_NAME=beirgrid$' /proc/[0-9]*/environ); do
    environment=${environment#/proc/}
    kill -KILL "${environment%/environ}" 2> /dev/null || true
  done
}

stop() {
  [ -e "$folder" ] || return 0
  local node
  timeout 20 scancel --user="$(id -un)" 2> /dev/null || true
  for _ in $(seq 50); do
    [ -n "$(timeout 20 squeue --noheader 2> /dev/null)" ] || break
    sleep 0.2
  done
  for node in "${nodes[@]}"; do end "$folder/pid/$node.pid"; done
  end "$folder/pid/slurmctld.pid"
  strays
  end "$folder/munge/pid"
  (cd /etc/slurm && rm -f "${configuration[@]}")
  rm -rf "$folder"
}

run() {
  local reason
  reason=$(missing)
  if [ -n "$reason" ]; then
    say "skipped: $reason"
    exit 0
  fi
  claim
  trap stop EXIT
  launch
  "$@"
}

case ${1:-} in
  install | start | stop) "$1" ;;
  slurmd) start_slurmd "$2" ;;
  run) shift && run "$@" ;;
  *) sed -n '2,/^set/p' "$0" | sed '$d' >&2; exit 2 ;;
esac
