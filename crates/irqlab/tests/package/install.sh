#!/bin/bash
# Installs the package in a copy-on-write view of a small Debian, in a mount namespace of its own, tries it
# and removes it: install.sh DEBIAN SCRATCH PACKAGE SETPRIV-OPTION
# Prints `NAME: WHAT` for each thing that was tried.
# shellcheck disable=SC2016 # words for the shells in there
set -euo pipefail
lower=$1 scratch=$2 package=$3 drop=$4
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work" none "$scratch/root"
cd "$scratch/root"
mount --rbind /proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs none tmp
cp "$package" tmp/irqlab.deb
# Its own words, and those of dpkg, are for people.
setpriv "$drop" chroot . dpkg -i /tmp/irqlab.deb >&2
say() { printf '%s: %s\n' "$1" "$2"; }
say capabilities "$(chroot . getcap /usr/bin/irqlab)"
say doctor "$(setpriv "$drop" chroot . irqlab doctor | tail -n 1)"
# A member of the group, and a user who is none. The shell has no capabilities any more: setpriv keeps root's until
# it starts it.
member() { chroot . setpriv --reuid 65534 --regid 65534 --groups "$(stat -c %g usr/bin/irqlab)" sh -c "$1"; }
stranger() { chroot . setpriv --reuid 65533 --regid 65533 --clear-groups sh -c "$1"; }
rights() { "$1" 'irqlab doctor 2>&1' | grep -e "^[a-z]* *tracing rights" -e "Permission denied" | head -n 1; }
owner() { chroot . stat -c '%U %G %a' /usr/bin/irqlab; }
say file "$(owner)"
say rights "$(rights member)"
say stranger "$(rights stranger)"
say slots "$(cd var/lib/irqlab/instances && echo ./* | tr -d ./)"
say unit "$(cd usr/lib/systemd/system && echo ./irqlab*)"
# Other settings. One place, which another process has.
chroot . sed -i -e s/MEASURE=group/MEASURE=all/ -e s/INSTANCES_MAX=4/INSTANCES_MAX=1/ /etc/irqlab/irqlab.conf
setpriv "$drop" chroot . /usr/lib/irqlab/apply-rights >&2
say all-file "$(owner)"
say all-rights "$(rights stranger)"
say second "$(cd tmp && chroot .. flock /var/lib/irqlab/instances/1 setpriv --reuid 65533 --regid 65533 --clear-groups \
    env --chdir /tmp irqlab handlers -q -d 50ms 2>&1 | grep INSTANCES_MAX | head -n 1)"
chroot . sed -i s/MEASURE=all/MEASURE=root/ /etc/irqlab/irqlab.conf
setpriv "$drop" chroot . /usr/lib/irqlab/apply-rights >&2
say root-file "$(owner) $(chroot . getcap /usr/bin/irqlab)"
say refused "$(chroot . sh -c 'sed -i s/MEASURE=root/MEASURE=nobody/ /etc/irqlab/irqlab.conf
    /usr/lib/irqlab/apply-rights' 2>&1)"
say man "$(chroot . man -w irqlab-handlers)"
say bash "$(chroot . bash -c '. /usr/share/bash-completion/bash_completion
    . /usr/share/bash-completion/completions/irqlab
    COMP_WORDS=(irqlab hand) COMP_CWORD=1; _irqlab irqlab hand irqlab; echo "${COMPREPLY[@]}"')"
say zsh "$(chroot . zsh -fc 'autoload -U compinit && compinit -u -D && autoload +X _irqlab && print $_comps[irqlab]')"
say fish "$(chroot . fish -c 'complete -C "irqlab hand"' | cut -f 1 | tr '\n' ' ')"
chroot . dpkg --purge irqlab >&2
say left "$(chroot . find /usr /etc /var/lib/irqlab -path "*irqlab*" -print 2>/dev/null | head -n 3)"
say group-left "$(chroot . getent group irqlab || true)"
