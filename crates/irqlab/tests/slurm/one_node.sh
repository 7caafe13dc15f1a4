#!/bin/sh
# one_node.sh IRQLAB SLURM SPEC: executes a sweep of 24 tasks as a job array of a Slurm with one node, disturbs it, and
# leaves the merged results of the array and of a local run in the working directory. Then collects from the node as a fleet.
#
# A test starts it as root in namespaces of its own for mounts, processes, the network and the host's name. So no port, no
# process and no file of the machine is touched, and all daemons end with the script. SLURM: the directory with Debian's
# packages, unpacked.
set -eu
irqlab=$1 slurm=$2 spec=$3
work=$PWD
plugins=$(echo "$slurm"/usr/lib/*/slurm-wlm)
libraries=${plugins%/*}
# Debian has some libraries of Slurm below /lib.
export LD_LIBRARY_PATH="$libraries:$plugins:$slurm/lib/${libraries##*/}" SLURM_CONF="$work/slurm.conf"
export PATH="${irqlab%/*}:$slurm/usr/bin:$slurm/usr/sbin:$PATH"

# wait_for SECONDS TEXT COMMAND...: waits until the command succeeds.
wait_for() {
    tries=$(($1 * 10)) text=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            echo "waited in vain: $text" >&2
            squeue --long >&2
            tail -n 20 ./*.log >&2
            exit 1
        fi
        sleep 0.1
    done
}

results() { find sweep/tasks -mindepth 1 -maxdepth 1 ! -name '.*' | wc -l; }
has_results() { [ "$(results)" -ge "$1" ]; }
node_is_idle() { sinfo --noheader --format=%t | grep -qx idle; }
is_idle() { [ -z "$(squeue --noheader)" ]; }
# The index of a task that Slurm executes now.
running_index() { squeue --noheader --states=R --format=%K | head -n 1; }
cancel_running() { index=$(running_index) && [ -n "$index" ] && scancel "${job}_$index"; }
put_running_back() {
    index=$(running_index) && [ -n "$index" ] && scontrol requeue "${job}_$index" && requeued=${job}_$index
}
# The script of a task becomes irqlab.
kill_running() { kill -KILL "$(pgrep --oldest --exact irqlab)"; }
is_pending() { squeue --noheader --states=PD --array --format=%F_%K | grep -qx "$requeued"; }

mount -t tmpfs none /run
mkdir -p /run/munge state spool
chmod 755 /run/munge
ip link set lo up
# getaddrinfo(3) with AI_ADDRCONFIG finds no address on a host that has only 127.0.0.1.
ip address add 192.0.2.1/32 dev lo
hostname irqlab-node
echo '127.0.0.1 localhost irqlab-node' >hosts
mount --bind hosts /etc/hosts

cat >slurm.conf <<CONF
ClusterName=irqlab
SlurmctldHost=irqlab-node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
CredType=cred/munge
PluginDir=$plugins
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
MpiDefault=none
KillWait=2
MinJobAge=10
SlurmdTimeout=15
SlurmdParameters=config_overrides
NodeName=irqlab-node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=p Nodes=irqlab-node Default=YES MaxTime=INFINITE State=UP
CONF

dd if=/dev/urandom of=munge.key bs=128 count=1 2>/dev/null
chmod 600 munge.key
munged --foreground --force --num-threads=2 --socket=/run/munge/socket --key-file="$work/munge.key" \
    --pid-file=/run/munge/pid --seed-file=/run/munge/seed --log-file="$work/munged.log" &
start_controller() {
    slurmctld-wlm -D >>slurmctld.log 2>&1 &
    controller=$!
}
wait_for 10 "munge's socket" test -S /run/munge/socket
start_controller
slurmd-wlm -D -d "$slurm/usr/sbin/slurmstepd-wlm" >slurmd.log 2>&1 &
wait_for 20 "a node that is idle" node_is_idle

irqlab sweep plan "$spec" -o sweep
irqlab sweep plan "$spec" -o local
irqlab sweep submit slurm sweep --time 5m >job.sh
sbatch --parsable job.sh >job
job=$(cat job)

# The array is disturbed in every way that loses a task: cancelled while it waits and while it runs, put back into the
# queue, killed; and the controller is started again.
wait_for 30 "the first results" has_results 2
scancel "${job}_[20-22]"
wait_for 20 "a running task to cancel" cancel_running
wait_for 20 "a running task to put back" put_running_back
wait_for 20 "a running task to kill" kill_running
kill "$controller"
wait "$controller" || true
start_controller
wait_for 20 "the restarted controller" scontrol ping
# Slurm lets a task that was put back wait for two minutes.
wait_for 20 "the task in the queue" is_pending
scontrol update "JobId=$requeued" StartTime=now
wait_for 300 "the end of the array" is_idle
irqlab sweep status sweep --json >disturbed.json

# What is missing is submitted again.
for _ in 1 2 3; do
    irqlab sweep retry sweep
    irqlab sweep status sweep --json >status.json
    missing=$(sed -n 's/.*"missing_indexes": "\(.*\)".*/\1/p' status.json)
    [ -n "$missing" ] || break
    sbatch --parsable --array="$missing" job.sh
    wait_for 300 "the end of the array" is_idle
done
irqlab sweep merge sweep -o data
irqlab sweep run local
irqlab sweep merge local -o local-data

# A fleet of this node and of one that Slurm does not know.
printf '%s\n' irqlab-node nowhere >hosts.txt
code=0
irqlab fleet collect hosts.txt -o fleet --via srun --irqlab "$irqlab" -- noise -d 500ms -c 0 || code=$?
echo "$code" >fleet-code.txt
