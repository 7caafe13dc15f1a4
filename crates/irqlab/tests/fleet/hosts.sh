#!/bin/sh
# hosts.sh IRQLAB SSHD COUNT JOBS DURATION: a fleet of COUNT hosts, each an sshd with an address, a key and a directory of
# its own. Collects from them, JOBS at a time, each for DURATION, and leaves the fleet's directory and its report in the working directory.
#
# All hosts share this machine's kernel and CPUs. So they wait for one another with the measurement, and not with the
# connection. On two hosts (three of 12 and more), a load runs during the measurement: it sends datagrams to a port that
# nobody reads. One host has an older irqlab. One more host has no sshd.
#
# A test starts it as root in namespaces of its own for mounts, processes and the network. So no port, no process and no
# file of the machine is touched, and all daemons end with the script. SSHD: the directory with Debian's openssh-server,
# unpacked.
set -eu
irqlab=$1 sshd=$2 count=$3 jobs=$4 duration=$5
work=$PWD
older=127.0.0.$((count + 1))
absent=127.0.0.$((count + 2))

mount -t tmpfs none /run
mkdir -m 755 /run/sshd
ip link set lo up
# sshd wants its user, and refuses root if that account is locked.
grep -v '^sshd:' /etc/passwd >passwd
echo 'sshd:x:74:65534:sshd:/run/sshd:/usr/sbin/nologin' >>passwd
mount --bind passwd /etc/passwd
echo 'root:*:19000:0:99999:7:::' >shadow
mount --bind shadow /etc/shadow

ssh-keygen -q -t ed25519 -N '' -f client
ssh-keygen -q -t ed25519 -N '' -f host_key
cat >ssh_config <<CONF
Host *
    Port 2222
    User root
    IdentityFile $work/client
    IdentitiesOnly yes
    UserKnownHostsFile $work/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
CONF

# The program of each host. The load ends with the measurement.
cat >program <<'PROGRAM'
#!/bin/bash
directory=${0%/*}
if [ -e "$directory/older" ]; then
    if [ "$1" = --version ]; then echo "irqlab 0.0.9"; exit; fi
    echo "error: unrecognized subcommand '$1'" >&2
    exit 2
fi
exec 9>"$directory/../measure.lock"
flock 9
load=()
if [ -e "$directory/loaded" ]; then
    for _ in 1 2 3; do
        nice -n -5 bash -c 'exec 3<>/dev/udp/127.0.0.1/9; while :; do echo >&3; done' >/dev/null 2>&1 9>&- &
        load+=($!)
    done
fi
"$directory/irqlab-of-this-version" "$@"
code=$?
[ ${#load[@]} -eq 0 ] || kill "${load[@]}"
exit $code
PROGRAM

libraries=$(echo "$sshd"/usr/lib/*-linux-gnu)
# OpenSSH 9.8 and later execute these programs of the package.
parts=
for part in Session Auth; do
    file=$sshd/usr/lib/openssh/sshd-$(echo "$part" | tr SA sa)
    [ ! -x "$file" ] || parts="$parts
Sshd${part}Path $file"
done
for number in $(seq "$count"); do
    address=127.0.0.$((number + 1)) directory=$work/host$number
    mkdir -p "$directory/tmp" "$directory/run"
    cp program "$directory/irqlab"
    chmod 755 "$directory/irqlab"
    ln -s "$irqlab" "$directory/irqlab-of-this-version"
    cat >"$directory/sshd_config" <<CONF
ListenAddress $address
Port 2222
HostKey $work/host_key
AuthorizedKeysFile $work/client.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
$parts
SetEnv TMPDIR=$directory/tmp XDG_RUNTIME_DIR=$directory/run PATH=$directory:/usr/bin:/bin:/usr/sbin:/sbin
CONF
    LD_LIBRARY_PATH=$libraries "$sshd/usr/sbin/sshd" -D -e -f "$directory/sshd_config" 2>"$directory/log" &
    echo "$address" >>hosts.txt
    echo "[$address]:2222 $(cut -d' ' -f1-2 host_key.pub)" >>known_hosts
done
echo "$absent" >>hosts.txt
for number in 2 $((count - 1)) $([ "$count" -lt 12 ] || echo $((count / 2))); do
    touch "$work/host$number/loaded"
    echo "127.0.0.$((number + 1))" >>loaded.txt
done
touch "$work/host$count/older"
echo "$older" >older.txt
echo "$absent" >absent.txt

answers() { ssh -F ssh_config -o BatchMode=yes "$older" true; }
tries=100
until answers 2>/dev/null; do
    tries=$((tries - 1))
    if [ "$tries" -le 0 ]; then
        answers || cat host*/log >&2
        exit 1
    fi
    sleep 0.1
done

# The hosts wait for one another before they answer.
code=0
started=$(date +%s)
"$irqlab" fleet collect hosts.txt -o fleet --jobs "$jobs" -F ssh_config --irqlab irqlab --connect-limit 10m \
    -- handlers -d "$duration" || code=$?
echo "$code" >code.txt
echo "collected in $(($(date +%s) - started)) s" >&2
# The second time, only the hosts that are missing are tried.
code=0
"$irqlab" fleet collect hosts.txt -o fleet --jobs "$jobs" -F ssh_config --irqlab irqlab --connect-limit 10m \
    -- handlers -d "$duration" 2>second.txt || code=$?
echo "$code" >second-code.txt
"$irqlab" fleet report fleet --json >report.json
"$irqlab" fleet report fleet -o fleet.html >report.txt
find host*/tmp -mindepth 1 >left.txt
