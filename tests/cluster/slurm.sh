#!/bin/sh
# A Slurm on this machine alone, for tests: `slurm.sh start DIR [NODES]`, `slurm.sh stop DIR`. Needs root, on Debian or Ubuntu.
#
# NODES slurmd run here (1, else 2), with two stand-ins for GPUs between them: devices of other kinds that Slurm hands
# out by number. Partitions: cpu, gpu, and prio, whose jobs preempt those of the others (they go back into the queue).
# Exit code 77: it can't be set up here, for the reason that the last line says.
set -eu

action=$1 dir=$2 nodes=${3:-1}
conf=/etc/slurm
mark="# of bigbird-dna's tests"

refuse() { echo "$1" >&2; exit 77; }

# What was set up in a directory, and the configuration, which all commands of Slurm look for in one place.
stop() {
    for name in slurmd-a slurmd-b slurmctld; do
        [ ! -s "$1/run/$name.pid" ] || kill "$(cat "$1/run/$name.pid")" 2>/dev/null || true
    done
    [ ! -s "$1/munge/pid" ] || kill "$(cat "$1/munge/pid")" 2>/dev/null || true
    if grep -qs "^$mark" $conf/slurm.conf; then rm -f $conf/slurm.conf $conf/gres.conf; fi
}

said() { sed -n "s|^$1||p" $conf/slurm.conf; }

if [ "$action" = stop ]; then stop "$dir"; exit 0; fi

[ "$(id -u)" -eq 0 ] || refuse "setting up Slurm needs root"
if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    command -v apt-get >/dev/null || refuse "Slurm is installed by apt-get, which isn't here"
    quick="-qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10"
    # shellcheck disable=SC2086
    { apt-get $quick update && DEBIAN_FRONTEND=noninteractive apt-get $quick install -y --no-install-recommends \
        slurm-wlm slurm-client munge; } >"$dir.apt.log" 2>&1 \
        || refuse "apt-get can't install slurm-wlm and munge (see $dir.apt.log)"
fi
if [ -e $conf/slurm.conf ]; then
    grep -q "^$mark" $conf/slurm.conf || refuse "$conf/slurm.conf is of another Slurm"
    owner=$(said "$mark, process ")
    if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then refuse "process $owner has a Slurm of tests here"; fi
    stop "$(said SlurmctldPidFile= | sed 's|/run/slurmctld.pid$||')"
    sleep 2
fi

host=$(uname -n)
mkdir -p "$dir/state" "$dir/spool" "$dir/log" "$dir/run" "$dir/munge" $conf
chmod 711 "$dir/munge"
dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
chmod 600 "$dir/munge/key"

cat >$conf/slurm.conf <<EOF
$mark, process $PPID
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=15
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmctldPort=16817
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
GresTypes=gpu
DefMemPerCPU=1000
JobRequeue=1
KillWait=5
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EOF
# CPUs and memory are made up: what jobs ask for is scheduled, and nothing keeps them to it.
if [ "$nodes" -eq 1 ]; then
    echo "NodeName=a NodeHostname=$host NodeAddr=127.0.0.1 Port=16818 CPUs=8 RealMemory=256000 Gres=gpu:standin:2"
    printf 'NodeName=a Name=gpu Type=standin File=/dev/%s\n' null zero >$conf/gres.conf
else
    for node in a:16818:null b:16819:zero; do
        IFS=: read -r name port device <<EOF
$node
EOF
        echo "NodeName=$name NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=8 RealMemory=256000 Gres=gpu:standin:1"
        echo "NodeName=$name Name=gpu Type=standin File=/dev/$device" >&3
    done 3>$conf/gres.conf
fi >>$conf/slurm.conf
cat >>$conf/slurm.conf <<EOF
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=gpu Nodes=ALL MaxTime=1-00:00:00 State=UP PriorityTier=1
PartitionName=prio Nodes=ALL MaxTime=1-00:00:00 State=UP PriorityTier=100
EOF

{ munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" \
    && slurmctld -c && slurmd -N a && { [ "$nodes" -eq 1 ] || slurmd -N b; }; } \
    || { stop "$dir"; refuse "the daemons of Slurm don't start (logs in $dir/log)"; }

tries=60
until [ "$(sinfo --noheader --Node --partition gpu --states idle 2>/dev/null | wc -l)" -eq "$nodes" ]; do
    tries=$((tries - 1))
    if [ $tries -eq 0 ]; then
        sinfo --long --Node >&2 || true
        stop "$dir"
        refuse "the nodes of Slurm don't become idle (logs in $dir/log)"
    fi
    sleep 1
done
sinfo
