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
say rights "$(chroot . setpriv --reuid 65534 --regid 65534 --clear-groups irqlab doctor |
    grep "^[a-z]* *tracing rights")"
say man "$(chroot . man -w irqlab-handlers)"
say bash "$(chroot . bash -c '. /usr/share/bash-completion/bash_completion
    . /usr/share/bash-completion/completions/irqlab
    COMP_WORDS=(irqlab hand) COMP_CWORD=1; _irqlab irqlab hand irqlab; echo "${COMPREPLY[@]}"')"
say zsh "$(chroot . zsh -fc 'autoload -U compinit && compinit -u -D && autoload +X _irqlab && print $_comps[irqlab]')"
say fish "$(chroot . fish -c 'complete -C "irqlab hand"' | cut -f 1 | tr '\n' ' ')"
chroot . dpkg --purge irqlab >&2
say left "$(chroot . find /usr -path "*irqlab*" -print | head -n 3)"
